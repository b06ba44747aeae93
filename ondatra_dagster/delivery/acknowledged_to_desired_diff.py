"""The rows that bring the API from a delivery key's acknowledged rows to its desired rows.

The functions here are pure: they use no clock and no file. For each delivery key the queue knows two row sets. The
*acknowledged* rows are its base: what the API last acknowledged. The *desired* rows are its target: what the table
has now. Coalesced changes, retries, replays, dead letters and restored queues all use this one difference.

A *row set* is a delivery key's rows at one moment. A key that names a single row has at most one row, a group has
any number. After an unanswered attempt it is unknown whether the API has the acknowledged rows or the rows of that
attempt. Then `maybe_sent` is the row set that the API may have instead.
"""

import enum
from collections import Counter
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import NamedTuple, Self

from ondatra_dagster.row_changes import ChangeType, Layout, comparable_content


class StoredRow(NamedTuple):
    rowid: int
    layout_id: int  # which columns the payload has
    payload: str


class SentRow(NamedTuple):
    """A row that push gets, with its change type."""

    change_type: ChangeType
    row: StoredRow

    @property
    def result_key(self) -> str:
        """Return the key under which push returns the row's status."""
        return f"{self.row.rowid}:{self.change_type}"


RowSet = tuple[StoredRow, ...]
NO_ROWS: RowSet = ()


def dump_row_set(image: RowSet) -> str:
    """Return the row set as text with one line for each row, because a row's JSON text has no line breaks."""
    return "\n".join([f"{row.rowid} {row.layout_id} {row.payload}" for row in image])


def load_row_set(text: str) -> RowSet:
    if "\n" in text:
        return tuple([_load_row(line) for line in text.split("\n")])
    return (_load_row(text),) if text else NO_ROWS


def _load_row(line: str) -> StoredRow:
    rowid, layout, payload = line.split(" ", 2)
    return StoredRow(int(rowid), int(layout), payload)


class UnitKind(enum.Enum):
    """The kind of a unit: how many rows one delivery key has, and how they are sent."""

    ROW = "row"  # one row, which is inserted, updated (as a pair of images) or deleted
    VERSION = "version"  # one row, as above; all versions of a key are sent together
    GROUP = "group"  # any number of rows, always replaced as a whole
    MIRROR = "mirror"  # any number of rows; each attempt sends the present rows and nothing else


class KeyState(NamedTuple):
    """The known state of one delivery key, as row sets."""

    acknowledged: RowSet
    desired: RowSet
    maybe_sent: RowSet | None = None  # None: the acknowledged rows are certain

    @classmethod
    def load(cls, base: str, target: str, maybe_sent: str | None) -> Self:
        """Return the key's state from the texts of its row sets."""
        return cls(load_row_set(base), load_row_set(target), None if maybe_sent is None else load_row_set(maybe_sent))

    def dump_maybe_sent(self) -> str | None:
        return None if self.maybe_sent is None else dump_row_set(self.maybe_sent)

    def if_delivered(self, shape: UnitKind) -> Self:
        """Return the key's state after the API has acknowledged all sent rows."""
        return self._replace(acknowledged=NO_ROWS if shape is UnitKind.MIRROR else self.desired, maybe_sent=None)

    def if_unknown(self, sent_rows: Sequence[SentRow], shape: UnitKind) -> "KeyState":
        """Return the key's state after an attempt that sent these rows and whose outcome is unknown."""
        return state_after(self, sent_rows, {row.result_key: SendResult.UNANSWERED for row in sent_rows}, shape)

    def count_rows(self, shape: UnitKind, layouts: Mapping[int, Layout]) -> int:
        """Return how many rows of a batch the key takes; 0 if nothing must be sent.

        An empty mirror takes one row, because it is a call, too.
        """
        return count_batch_rows(find_rows_to_send(self, shape, layouts), shape)


def find_rows_to_send(key_state: KeyState, shape: UnitKind, layouts: Mapping[int, Layout]) -> list[SentRow]:
    """Return, in sending order, the rows to send so that the API has the desired rows.

    Return no rows if both row sets are the same. For a mirror return all present rows, because the queue doesn't
    store which rows of it the API has.
    """
    is_certain = shape is not UnitKind.MIRROR and key_state.maybe_sent is None
    if is_certain and has_same_rows(key_state.acknowledged, key_state.desired, layouts):
        return []
    return _DIFFS.get(shape, _diff_row)(key_state)


def count_batch_rows(sent_rows: Sequence[SentRow], shape: UnitKind) -> int:
    """Return how many rows of a batch these sent rows count as; an empty mirror counts as one."""
    return max(len(sent_rows), 1) if shape is UnitKind.MIRROR else len(sent_rows)


def has_same_rows(left: RowSet, right: RowSet, layouts: Mapping[int, Layout]) -> bool:
    """Return whether two row sets have the same content; the order and the rowids don't matter."""
    if len(left) != len(right):
        return False
    if {row.layout_id for row in (*left, *right)} <= {left[0].layout_id if left else 0}:
        return sorted(row.payload for row in left) == sorted(row.payload for row in right)
    return _has_same_content(left, right, layouts)


def _has_same_content(left: RowSet, right: RowSet, layouts: Mapping[int, Layout]) -> bool:
    def count_contents(image: RowSet) -> Counter[Hashable]:
        return Counter(comparable_content(layouts[row.layout_id].parse_row(row.payload)) for row in image)

    return count_contents(left) == count_contents(right)


def _diff_row(key_state: KeyState) -> list[SentRow]:
    base, target = key_state.acknowledged, key_state.desired
    if not target:
        # maybe_sent has the newest rows that the API can have
        return [SentRow(ChangeType.DELETE, row) for row in key_state.maybe_sent or base]
    if key_state.maybe_sent == NO_ROWS and base:
        # it is unknown whether the delete arrived, so it is sent again before the insert
        return [SentRow(ChangeType.DELETE, base[0]), SentRow(ChangeType.INSERT, target[0])]
    if not base:
        return [SentRow(ChangeType.INSERT, target[0])]
    preimage = base[0]._replace(rowid=target[0].rowid)
    return [SentRow(ChangeType.UPDATE_PREIMAGE, preimage), SentRow(ChangeType.UPDATE_POSTIMAGE, target[0])]


def _diff_group(key_state: KeyState) -> list[SentRow]:
    deleted_rows = key_state.acknowledged
    if key_state.maybe_sent and (key_state.acknowledged or not key_state.desired):
        # if the API had no rows, an unanswered insert is repeated; otherwise all rows that the API may have are
        # deleted first
        deleted_rows = tuple(dict.fromkeys((*key_state.acknowledged, *key_state.maybe_sent)))
    return [
        *(SentRow(ChangeType.DELETE, row) for row in deleted_rows),
        *(SentRow(ChangeType.INSERT, row) for row in key_state.desired),
    ]


_DIFFS: Mapping[UnitKind, Callable[[KeyState], list[SentRow]]] = {
    UnitKind.GROUP: _diff_group,
    UnitKind.MIRROR: lambda key_state: [SentRow(ChangeType.INSERT, row) for row in key_state.desired],
}


class SendResult(enum.Enum):
    """The result of sending one row, as far as it tells which rows the API has now."""

    DELIVERED = "delivered"
    REFUSED = "refused"  # the API refused the row, so its data is unchanged
    FAILED = "failed"  # the API certainly didn't take the row
    UNANSWERED = "unanswered"  # the API may have taken the row


def state_after(
    key_state: KeyState, sent_rows: Sequence[SentRow], fates: Mapping[str, SendResult], shape: UnitKind
) -> KeyState:
    """Return the key's state after an attempt; `fates` has each sent row's result, by result key.

    `key_state` is the state when the rows were sent, and its desired rows are the rows that were sent. The attempt
    doesn't change the desired rows.
    """
    row_results = [(row, fates[row.result_key]) for row in sent_rows]
    return _STATES_AFTER.get(shape, _row_state_after)(key_state, row_results)


_RETRIED_RESULTS = frozenset({SendResult.FAILED, SendResult.UNANSWERED})


def _row_state_after(key_state: KeyState, fate: Sequence[tuple[SentRow, SendResult]]) -> KeyState:
    old_state = key_state
    for row, result in fate:
        if row.change_type is ChangeType.UPDATE_PREIMAGE:
            continue  # a preimage only shows push the old row
        image = NO_ROWS if row.change_type is ChangeType.DELETE else (row.row,)
        if result is SendResult.DELIVERED:
            key_state = KeyState(image, key_state.desired)
        elif result is SendResult.UNANSWERED:
            key_state = key_state._replace(maybe_sent=_maybe_sent_after(key_state, image))
    if any(row.change_type is ChangeType.UPDATE_PREIMAGE and result in _RETRIED_RESULTS for row, result in fate):
        # the pair is sent again, even if its other half has arrived
        return (
            old_state._replace(maybe_sent=old_state.desired)
            if key_state.acknowledged != old_state.acknowledged
            else key_state
        )
    return key_state


def _maybe_sent_after(key_state: KeyState, maybe_sent: RowSet) -> RowSet:
    """Return the rows that the API may have instead of the acknowledged ones after an unanswered attempt.

    `maybe_sent` are the rows that this attempt leaves at the API if they arrived.
    """
    if not maybe_sent:
        return key_state.maybe_sent or NO_ROWS  # the API may have rows that were sent before the delete
    if key_state.maybe_sent == NO_ROWS:
        return NO_ROWS  # the delete before this insert has no answer yet, and is sent again first
    return maybe_sent


def _group_state_after(key_state: KeyState, fate: Sequence[tuple[SentRow, SendResult]]) -> KeyState:
    results = {result for _, result in fate}
    # if there are inserts, deletes are context: they show push the group's old rows
    final_change_type = ChangeType.INSERT if key_state.desired else ChangeType.DELETE
    delivered_rows = [
        row.row for row, result in fate if result is SendResult.DELIVERED and row.change_type is final_change_type
    ]
    if SendResult.UNANSWERED in results or (SendResult.FAILED in results and delivered_rows):
        # the API may have some of these rows, and some of earlier attempts: the whole group is sent again
        return key_state._replace(maybe_sent=tuple(dict.fromkeys((*(key_state.maybe_sent or ()), *key_state.desired))))
    if not delivered_rows or SendResult.FAILED in results:
        return key_state
    remaining_rows = [
        row.row for row, result in fate if result is SendResult.REFUSED and row.change_type is ChangeType.DELETE
    ]
    return KeyState((*remaining_rows, *(delivered_rows if key_state.desired else ())), key_state.desired)


_STATES_AFTER: Mapping[UnitKind, Callable[[KeyState, Sequence[tuple[SentRow, SendResult]]], KeyState]] = {
    UnitKind.GROUP: _group_state_after,
    # the next attempt sends the rows that the table has then, whatever the outcome of this attempt
    UnitKind.MIRROR: lambda key_state, _: key_state,
}
