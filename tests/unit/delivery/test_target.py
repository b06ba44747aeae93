"""What goes out from which base to which target, and what is known of the API afterwards."""

import orjson
import pytest

from ondatra_dagster.changes import ChangeType, Column, Layout
from ondatra_dagster.delivery.target import (
    NOTHING,
    Fate,
    ImageRow,
    SentRow,
    Shape,
    Standing,
    after,
    dump_image,
    load_image,
    to_send,
)

LAYOUTS = {
    1: Layout((Column("id", "int"), Column("name", "string"))),
    2: Layout((Column("id", "int"), Column("name", "string"), Column("plan", "string"))),
}
INSERT, DELETE = ChangeType.INSERT, ChangeType.DELETE
PREIMAGE, POSTIMAGE = ChangeType.UPDATE_PREIMAGE, ChangeType.UPDATE_POSTIMAGE


def row(rowid: int, payload: str, layout: int = 1) -> ImageRow:
    return ImageRow(rowid, layout, payload)


ADA, ANN = row(1, '[1,"Ada"]'), row(1, '[1,"Ann"]')
X1, X2, Y1 = row(11, '[7,"x"]'), row(12, '[7,"xx"]'), row(13, '[7,"y"]')


@pytest.mark.parametrize(
    ("standing", "expected"),
    [
        (Standing(NOTHING, (ADA,)), [(INSERT, ADA)]),
        (Standing((ADA,), (ANN,)), [(PREIMAGE, ADA), (POSTIMAGE, ANN)]),
        (Standing((ADA,), NOTHING), [(DELETE, ADA)]),
        (Standing((ADA,), (ADA,)), []),
        (Standing(NOTHING, NOTHING), []),
        # an unanswered insert goes out as an insert again, with the newest values
        (Standing(NOTHING, (ANN,), tried=(ADA,)), [(INSERT, ANN)]),
        # and if the row is gone by then, it may have to be removed
        (Standing(NOTHING, NOTHING, tried=(ADA,)), [(DELETE, ADA)]),
        # an unanswered update goes out although the row is back at its base
        (Standing((ADA,), (ADA,), tried=(ANN,)), [(PREIMAGE, ADA), (POSTIMAGE, ADA)]),
        (Standing((ADA,), NOTHING, tried=(ANN,)), [(DELETE, ANN)]),
        # an unanswered delete goes first again
        (Standing((ADA,), (ANN,), tried=NOTHING), [(DELETE, ADA), (INSERT, ANN)]),
        (Standing((ADA,), NOTHING, tried=NOTHING), [(DELETE, ADA)]),
        # there is nothing that a delete could be of
        (Standing(NOTHING, (ANN,), tried=NOTHING), [(INSERT, ANN)]),
    ],
)
def test_a_row_goes_from_its_base_to_its_target(standing, expected):
    """Insert, update and delete are only names for the way between the two."""
    assert [SentRow(*pair) for pair in expected] == to_send(standing, Shape.ROW, LAYOUTS)


@pytest.mark.parametrize(
    ("standing", "expected"),
    [
        (Standing(NOTHING, (X1, X2)), [(INSERT, X1), (INSERT, X2)]),
        (Standing((X1, X2), (Y1,)), [(DELETE, X1), (DELETE, X2), (INSERT, Y1)]),
        (Standing((X1, X2), NOTHING), [(DELETE, X1), (DELETE, X2)]),
        (Standing((X1, X2), (row(21, X2.payload), row(22, X1.payload))), []),
        (Standing((X1,), (row(21, X1.payload), row(22, X1.payload))), None),
        (Standing(NOTHING, (Y1,), tried=(X1,)), [(INSERT, Y1)]),
        (Standing(NOTHING, NOTHING, tried=(X1,)), [(DELETE, X1)]),
        (Standing((X1,), NOTHING, tried=(Y1,)), [(DELETE, X1), (DELETE, Y1)]),
    ],
)
def test_a_group_goes_as_a_whole(standing, expected):
    """An API that takes whole invoices needs all of one, and nothing when only rowids changed."""
    sent = to_send(standing, Shape.GROUP, LAYOUTS)
    if expected is None:
        assert [DELETE, INSERT, INSERT] == [change for change, _ in sent]
    else:
        assert [SentRow(*pair) for pair in expected] == sent


def test_an_added_column_that_is_null_is_no_change():
    """A new column must not send a million equal rows."""
    same = Standing((ADA,), (row(1, '[1,"Ada",null]', layout=2),))
    other = Standing((ADA,), (row(1, '[1,"Ada","pro"]', layout=2),))
    assert [] == to_send(same, Shape.ROW, LAYOUTS)
    assert [PREIMAGE, POSTIMAGE] == [change for change, _ in to_send(other, Shape.ROW, LAYOUTS)]


@pytest.mark.parametrize(
    ("names", "plans", "is_same"),
    [
        (["Ada", "Ben", "Ada"], [("Ada", None), ("Ada", None), ("Ben", None)], True),
        (["Ada", "Ben", "Ada"], [("Ada", None), ("Ben", None), ("Ben", None)], False),
        (["Ada"], [("Ada", {"a": [1, None]})], False),
    ],
)
def test_a_group_in_other_columns_and_another_order_is_the_same_group(names, plans, *, is_same):
    """As often as the other has it; a column that one doesn't have is null there."""
    before = tuple(row(n, orjson.dumps([7, name]).decode()) for n, name in enumerate(names))
    now = tuple(row(9 - n, orjson.dumps([7, *plan]).decode(), layout=2) for n, plan in enumerate(plans))
    assert is_same == (not to_send(Standing(before, now), Shape.GROUP, LAYOUTS))
    assert [] == to_send(Standing(now, now[::-1]), Shape.GROUP, LAYOUTS)


def settled(standing: Standing, shape: Shape, *fates: Fate) -> Standing:
    sent = to_send(standing, shape, LAYOUTS)
    keys = [sent_row.result_key for sent_row in sent]
    return after(standing, sent, dict(zip(keys, fates, strict=True)), shape)


@pytest.mark.parametrize(
    ("standing", "fates", "expected"),
    [
        (Standing(NOTHING, (ADA,)), [Fate.DELIVERED], Standing((ADA,), (ADA,))),
        (Standing(NOTHING, (ADA,)), [Fate.REFUSED], Standing(NOTHING, (ADA,))),
        (Standing(NOTHING, (ADA,)), [Fate.UNANSWERED], Standing(NOTHING, (ADA,), (ADA,))),
        (Standing((ADA,), (ANN,)), [Fate.DELIVERED, Fate.FAILED], Standing((ADA,), (ANN,))),
        # a pair of which one half failed goes out again as a pair, though its other half has arrived
        (Standing((ADA,), (ANN,)), [Fate.FAILED, Fate.DELIVERED], Standing((ADA,), (ANN,), (ANN,))),
        (Standing((ADA,), (ANN,)), [Fate.FAILED, Fate.REFUSED], Standing((ADA,), (ANN,))),
        # the image before only tells push what was there: that it was refused changes nothing
        (Standing((ADA,), (ANN,)), [Fate.REFUSED, Fate.DELIVERED], Standing((ANN,), (ANN,))),
        (Standing((ADA,), NOTHING), [Fate.UNANSWERED], Standing((ADA,), NOTHING, NOTHING)),
        # what went out before the unanswered delete may still be there
        (
            Standing(NOTHING, NOTHING, tried=(ADA,)),
            [Fate.UNANSWERED],
            Standing(NOTHING, NOTHING, tried=(ADA,)),
        ),
        (Standing((ADA,), (ANN,), tried=NOTHING), [Fate.DELIVERED] * 2, Standing((ANN,), (ANN,))),
        (
            Standing((ADA,), (ANN,), tried=NOTHING),
            [Fate.UNANSWERED, Fate.UNANSWERED],
            Standing((ADA,), (ANN,), tried=NOTHING),
        ),
    ],
)
def test_a_row_s_base_follows_what_the_api_acknowledged(standing, fates, expected):
    """What isn't known is kept as unknown: a guess here is a lost row later."""
    assert expected == settled(standing, Shape.ROW, *fates)


OK, NO, LATER, SILENT = Fate.DELIVERED, Fate.REFUSED, Fate.FAILED, Fate.UNANSWERED


@pytest.mark.parametrize(
    ("standing", "fates", "expected"),
    [
        (Standing((X1,), (Y1,)), [OK, OK], Standing((Y1,), (Y1,))),
        (Standing((X1,), (Y1,)), [NO, NO], Standing((X1,), (Y1,))),
        # push calls deletes beside inserts ok because they are only context
        (Standing((X1,), (Y1,)), [OK, NO], Standing((X1,), (Y1,))),
        (Standing((X1,), (Y1,)), [OK, LATER], Standing((X1,), (Y1,))),
        (Standing(NOTHING, (X1, X2)), [OK, NO], Standing((X1,), (X1, X2))),
        (Standing(NOTHING, (X1, X2)), [OK, LATER], Standing(NOTHING, (X1, X2), (X1, X2))),
        (Standing((X1,), (Y1,)), [NO, OK], Standing((X1, Y1), (Y1,))),
        (Standing((X1,), (Y1,)), [SILENT, SILENT], Standing((X1,), (Y1,), (Y1,))),
        (Standing((X1, X2), NOTHING), [OK, OK], Standing(NOTHING, NOTHING)),
        (Standing((X1, X2), NOTHING), [OK, NO], Standing((X2,), NOTHING)),
        (Standing(NOTHING, NOTHING, (X1,)), [SILENT], Standing(NOTHING, NOTHING, (X1,))),
    ],
)
def test_a_group_s_base_follows_what_the_api_acknowledged(standing, fates, expected):
    """Parts of a group may arrive; a group of which nobody knows goes out whole again."""
    assert expected == settled(standing, Shape.GROUP, *fates)


def test_an_image_survives_being_text():
    """Payloads have spaces, quotes and escaped line breaks of their own."""
    image = (row(1, '[1,"a \\n b"]'), row(-2, '["","é 😀"]', layout=12))
    assert image == load_image(dump_image(image))
    assert NOTHING == load_image(dump_image(NOTHING))
