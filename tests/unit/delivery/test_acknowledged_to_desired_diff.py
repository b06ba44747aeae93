"""The rows to send from a base to its target, and the state of the key after each outcome."""

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
        # an unanswered insert is sent again as an insert, with the newest values
        (KeyState(NO_ROWS, (ANN,), maybe_sent=(ADA,)), [(INSERT, ANN)]),
        # if the table no longer has the row, the API may have to delete it
        (KeyState(NO_ROWS, NO_ROWS, maybe_sent=(ADA,)), [(DELETE, ADA)]),
        # after an unanswered update the row is sent, even if it equals its base again
        (KeyState((ADA,), (ADA,), maybe_sent=(ANN,)), [(PREIMAGE, ADA), (POSTIMAGE, ADA)]),
        (KeyState((ADA,), NO_ROWS, maybe_sent=(ANN,)), [(DELETE, ANN)]),
        # an unanswered delete is sent again, before the insert
        (KeyState((ADA,), (ANN,), maybe_sent=NO_ROWS), [(DELETE, ADA), (INSERT, ANN)]),
        (KeyState((ADA,), NO_ROWS, maybe_sent=NO_ROWS), [(DELETE, ADA)]),
        # no delete is sent, because there is no row to delete
        (KeyState(NO_ROWS, (ANN,), maybe_sent=NO_ROWS), [(INSERT, ANN)]),
    ],
)
def test_the_rows_to_send_lead_from_the_base_of_a_row_to_its_target(standing, expected):
    """Insert, update and delete are only names for the difference between base and target."""
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
def test_a_changed_group_is_sent_as_a_whole(standing, expected):
    """An API that takes whole invoices needs all rows of one. It needs nothing when only rowids changed."""
    rows = find_rows_to_send(standing, UnitKind.GROUP, LAYOUTS)
    if expected is None:
        assert [DELETE, INSERT, INSERT] == [change for change, _ in rows]
    else:
        assert [SentRow(*pair) for pair in expected] == rows


def test_an_added_column_that_is_null_is_no_change():
    """After a new column in the table, a million equal rows must not be sent again."""
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
def test_a_group_is_equal_in_any_order_and_with_added_columns_that_are_null(names, plans, *, is_same):
    """Each row must occur equally often in both, and a column that one side lacks counts as null."""
    before = tuple(row(n, orjson.dumps([7, name]).decode()) for n, name in enumerate(names))
    now = tuple(row(9 - n, orjson.dumps([7, *plan]).decode(), layout=2) for n, plan in enumerate(plans))
    assert is_same == (not find_rows_to_send(KeyState(before, now), UnitKind.GROUP, LAYOUTS))
    assert [] == find_rows_to_send(KeyState(now, now[::-1]), UnitKind.GROUP, LAYOUTS)


def settled(standing: KeyState, shape: UnitKind, *fates: SendResult) -> KeyState:
    rows = find_rows_to_send(standing, shape, LAYOUTS)
    keys = [sent_row.result_key for sent_row in rows]
    return state_after(standing, rows, dict(zip(keys, fates, strict=True)), shape)


@pytest.mark.parametrize(
    ("standing", "fates", "expected"),
    [
        (KeyState(NO_ROWS, (ADA,)), [SendResult.DELIVERED], KeyState((ADA,), (ADA,))),
        (KeyState(NO_ROWS, (ADA,)), [SendResult.REFUSED], KeyState(NO_ROWS, (ADA,))),
        (KeyState(NO_ROWS, (ADA,)), [SendResult.UNANSWERED], KeyState(NO_ROWS, (ADA,), (ADA,))),
        (KeyState((ADA,), (ANN,)), [SendResult.DELIVERED, SendResult.FAILED], KeyState((ADA,), (ANN,))),
        # if one half of a pair failed, both are sent again, even if the other half has arrived
        (KeyState((ADA,), (ANN,)), [SendResult.FAILED, SendResult.DELIVERED], KeyState((ADA,), (ANN,), (ANN,))),
        (KeyState((ADA,), (ANN,)), [SendResult.FAILED, SendResult.REFUSED], KeyState((ADA,), (ANN,))),
        # the image before the update is only context: a rejection of it changes nothing
        (KeyState((ADA,), (ANN,)), [SendResult.REFUSED, SendResult.DELIVERED], KeyState((ANN,), (ANN,))),
        (KeyState((ADA,), NO_ROWS), [SendResult.UNANSWERED], KeyState((ADA,), NO_ROWS, NO_ROWS)),
        # the rows sent before the unanswered delete may still be in the API
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
def test_the_base_of_a_row_follows_the_outcomes_of_its_push(standing, fates, expected):
    """An unknown outcome stays unknown, because a wrong guess here loses a row later."""
    assert expected == settled(standing, UnitKind.ROW, *fates)


OK, NO, LATER, SILENT = SendResult.DELIVERED, SendResult.REFUSED, SendResult.FAILED, SendResult.UNANSWERED


@pytest.mark.parametrize(
    ("standing", "fates", "expected"),
    [
        (KeyState((X1,), (Y1,)), [OK, OK], KeyState((Y1,), (Y1,))),
        (KeyState((X1,), (Y1,)), [NO, NO], KeyState((X1,), (Y1,))),
        # push returns ok for deletes next to inserts, because they are only context
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
def test_the_base_of_a_group_follows_the_outcomes_of_its_push(standing, fates, expected):
    """Some rows of a group may arrive. A group with an unknown outcome is sent again as a whole."""
    assert expected == settled(standing, UnitKind.GROUP, *fates)


def test_a_row_set_can_be_stored_as_text():
    """Payloads may contain spaces, quotes and escaped line breaks."""
    image = (row(1, '[1,"a \\n b"]'), row(-2, '["","é 😀"]', layout=12))
    assert image == load_row_set(dump_row_set(image))
    assert NO_ROWS == load_row_set(dump_row_set(NO_ROWS))
