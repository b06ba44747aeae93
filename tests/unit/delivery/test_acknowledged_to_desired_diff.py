"""What goes out from which base to which target, and what is known of the API afterwards."""

import orjson
import pytest

from ondatra_dagster.delivery.acknowledged_to_desired_diff import (
    NO_ROWS,
    KeyState,
    SendResult,
    SentRow,
    StoredRow,
    UnitKind,
    dump_row_set,
    find_rows_to_send,
    load_row_set,
    state_after,
)
from ondatra_dagster.row_changes import ChangeType, Column, Layout

LAYOUTS = {
    1: Layout((Column("id", "int"), Column("name", "string"))),
    2: Layout((Column("id", "int"), Column("name", "string"), Column("plan", "string"))),
}
INSERT, DELETE = ChangeType.INSERT, ChangeType.DELETE
PREIMAGE, POSTIMAGE = ChangeType.UPDATE_PREIMAGE, ChangeType.UPDATE_POSTIMAGE


def row(rowid: int, payload: str, layout: int = 1) -> StoredRow:
    return StoredRow(rowid, layout, payload)


ADA, ANN = row(1, '[1,"Ada"]'), row(1, '[1,"Ann"]')
X1, X2, Y1 = row(11, '[7,"x"]'), row(12, '[7,"xx"]'), row(13, '[7,"y"]')


@pytest.mark.parametrize(
    ("standing", "expected"),
    [
        (KeyState(NO_ROWS, (ADA,)), [(INSERT, ADA)]),
        (KeyState((ADA,), (ANN,)), [(PREIMAGE, ADA), (POSTIMAGE, ANN)]),
        (KeyState((ADA,), NO_ROWS), [(DELETE, ADA)]),
        (KeyState((ADA,), (ADA,)), []),
        (KeyState(NO_ROWS, NO_ROWS), []),
        # an unanswered insert goes out as an insert again, with the newest values
        (KeyState(NO_ROWS, (ANN,), maybe_sent=(ADA,)), [(INSERT, ANN)]),
        # and if the row is gone by then, it may have to be removed
        (KeyState(NO_ROWS, NO_ROWS, maybe_sent=(ADA,)), [(DELETE, ADA)]),
        # an unanswered update goes out although the row is back at its base
        (KeyState((ADA,), (ADA,), maybe_sent=(ANN,)), [(PREIMAGE, ADA), (POSTIMAGE, ADA)]),
        (KeyState((ADA,), NO_ROWS, maybe_sent=(ANN,)), [(DELETE, ANN)]),
        # an unanswered delete goes first again
        (KeyState((ADA,), (ANN,), maybe_sent=NO_ROWS), [(DELETE, ADA), (INSERT, ANN)]),
        (KeyState((ADA,), NO_ROWS, maybe_sent=NO_ROWS), [(DELETE, ADA)]),
        # there is nothing that a delete could be of
        (KeyState(NO_ROWS, (ANN,), maybe_sent=NO_ROWS), [(INSERT, ANN)]),
    ],
)
def test_a_row_goes_from_its_base_to_its_target(standing, expected):
    """Insert, update and delete are only names for the way between the two."""
    assert [SentRow(*pair) for pair in expected] == find_rows_to_send(standing, UnitKind.ROW, LAYOUTS)


@pytest.mark.parametrize(
    ("standing", "expected"),
    [
        (KeyState(NO_ROWS, (X1, X2)), [(INSERT, X1), (INSERT, X2)]),
        (KeyState((X1, X2), (Y1,)), [(DELETE, X1), (DELETE, X2), (INSERT, Y1)]),
        (KeyState((X1, X2), NO_ROWS), [(DELETE, X1), (DELETE, X2)]),
        (KeyState((X1, X2), (row(21, X2.payload), row(22, X1.payload))), []),
        (KeyState((X1,), (row(21, X1.payload), row(22, X1.payload))), None),
        (KeyState(NO_ROWS, (Y1,), maybe_sent=(X1,)), [(INSERT, Y1)]),
        (KeyState(NO_ROWS, NO_ROWS, maybe_sent=(X1,)), [(DELETE, X1)]),
        (KeyState((X1,), NO_ROWS, maybe_sent=(Y1,)), [(DELETE, X1), (DELETE, Y1)]),
    ],
)
def test_a_group_goes_as_a_whole(standing, expected):
    """An API that takes whole invoices needs all of one, and nothing when only rowids changed."""
    sent = find_rows_to_send(standing, UnitKind.GROUP, LAYOUTS)
    if expected is None:
        assert [DELETE, INSERT, INSERT] == [change for change, _ in sent]
    else:
        assert [SentRow(*pair) for pair in expected] == sent


def test_an_added_column_that_is_null_is_no_change():
    """A new column must not send a million equal rows."""
    same = KeyState((ADA,), (row(1, '[1,"Ada",null]', layout=2),))
    other = KeyState((ADA,), (row(1, '[1,"Ada","pro"]', layout=2),))
    assert [] == find_rows_to_send(same, UnitKind.ROW, LAYOUTS)
    assert [PREIMAGE, POSTIMAGE] == [change for change, _ in find_rows_to_send(other, UnitKind.ROW, LAYOUTS)]


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
    assert is_same == (not find_rows_to_send(KeyState(before, now), UnitKind.GROUP, LAYOUTS))
    assert [] == find_rows_to_send(KeyState(now, now[::-1]), UnitKind.GROUP, LAYOUTS)


def settled(standing: KeyState, shape: UnitKind, *fates: SendResult) -> KeyState:
    sent = find_rows_to_send(standing, shape, LAYOUTS)
    keys = [sent_row.result_key for sent_row in sent]
    return state_after(standing, sent, dict(zip(keys, fates, strict=True)), shape)


@pytest.mark.parametrize(
    ("standing", "fates", "expected"),
    [
        (KeyState(NO_ROWS, (ADA,)), [SendResult.DELIVERED], KeyState((ADA,), (ADA,))),
        (KeyState(NO_ROWS, (ADA,)), [SendResult.REFUSED], KeyState(NO_ROWS, (ADA,))),
        (KeyState(NO_ROWS, (ADA,)), [SendResult.UNANSWERED], KeyState(NO_ROWS, (ADA,), (ADA,))),
        (KeyState((ADA,), (ANN,)), [SendResult.DELIVERED, SendResult.FAILED], KeyState((ADA,), (ANN,))),
        # a pair of which one half failed goes out again as a pair, though its other half has arrived
        (KeyState((ADA,), (ANN,)), [SendResult.FAILED, SendResult.DELIVERED], KeyState((ADA,), (ANN,), (ANN,))),
        (KeyState((ADA,), (ANN,)), [SendResult.FAILED, SendResult.REFUSED], KeyState((ADA,), (ANN,))),
        # the image before only tells push what was there: that it was refused changes nothing
        (KeyState((ADA,), (ANN,)), [SendResult.REFUSED, SendResult.DELIVERED], KeyState((ANN,), (ANN,))),
        (KeyState((ADA,), NO_ROWS), [SendResult.UNANSWERED], KeyState((ADA,), NO_ROWS, NO_ROWS)),
        # what went out before the unanswered delete may still be there
        (
            KeyState(NO_ROWS, NO_ROWS, maybe_sent=(ADA,)),
            [SendResult.UNANSWERED],
            KeyState(NO_ROWS, NO_ROWS, maybe_sent=(ADA,)),
        ),
        (KeyState((ADA,), (ANN,), maybe_sent=NO_ROWS), [SendResult.DELIVERED] * 2, KeyState((ANN,), (ANN,))),
        (
            KeyState((ADA,), (ANN,), maybe_sent=NO_ROWS),
            [SendResult.UNANSWERED, SendResult.UNANSWERED],
            KeyState((ADA,), (ANN,), maybe_sent=NO_ROWS),
        ),
    ],
)
def test_a_row_s_base_follows_what_the_api_acknowledged(standing, fates, expected):
    """What isn't known is kept as unknown: a guess here is a lost row later."""
    assert expected == settled(standing, UnitKind.ROW, *fates)


OK, NO, LATER, SILENT = SendResult.DELIVERED, SendResult.REFUSED, SendResult.FAILED, SendResult.UNANSWERED


@pytest.mark.parametrize(
    ("standing", "fates", "expected"),
    [
        (KeyState((X1,), (Y1,)), [OK, OK], KeyState((Y1,), (Y1,))),
        (KeyState((X1,), (Y1,)), [NO, NO], KeyState((X1,), (Y1,))),
        # push calls deletes beside inserts ok because they are only context
        (KeyState((X1,), (Y1,)), [OK, NO], KeyState((X1,), (Y1,))),
        (KeyState((X1,), (Y1,)), [OK, LATER], KeyState((X1,), (Y1,))),
        (KeyState(NO_ROWS, (X1, X2)), [OK, NO], KeyState((X1,), (X1, X2))),
        (KeyState(NO_ROWS, (X1, X2)), [OK, LATER], KeyState(NO_ROWS, (X1, X2), (X1, X2))),
        (KeyState((X1,), (Y1,)), [NO, OK], KeyState((X1, Y1), (Y1,))),
        (KeyState((X1,), (Y1,)), [SILENT, SILENT], KeyState((X1,), (Y1,), (Y1,))),
        (KeyState((X1, X2), NO_ROWS), [OK, OK], KeyState(NO_ROWS, NO_ROWS)),
        (KeyState((X1, X2), NO_ROWS), [OK, NO], KeyState((X2,), NO_ROWS)),
        (KeyState(NO_ROWS, NO_ROWS, (X1,)), [SILENT], KeyState(NO_ROWS, NO_ROWS, (X1,))),
    ],
)
def test_a_group_s_base_follows_what_the_api_acknowledged(standing, fates, expected):
    """Parts of a group may arrive; a group of which nobody knows goes out whole again."""
    assert expected == settled(standing, UnitKind.GROUP, *fates)


def test_an_image_survives_being_text():
    """Payloads have spaces, quotes and escaped line breaks of their own."""
    image = (row(1, '[1,"a \\n b"]'), row(-2, '["","é 😀"]', layout=12))
    assert image == load_row_set(dump_row_set(image))
    assert NO_ROWS == load_row_set(dump_row_set(NO_ROWS))
