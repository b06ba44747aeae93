"""The rows to send so that the API gets from a key's base to its target. Pure: no clock, no file.

For each delivery key we know its *base*, what the API last acknowledged, and its *target*, what the table has
now. Folding, retries, replays, dead letters that come back and lost queues are all this one difference.

An *image* is a delivery key's rows at one moment: one row or none for a key that names rows, any number for a
group. When a try got no answer nobody knows whether the API has the base or what was *tried*: then `tried` is
an image too.
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
    """One row as it is handed to push."""

    change_type: ChangeType
    row: StoredRow

    @property
    def result_key(self) -> str:
        """The name under which push returns the row's status."""
        return f"{self.row.rowid}:{self.change_type}"


RowSet = tuple[StoredRow, ...]
NO_ROWS: RowSet = ()


def dump_row_set(image: RowSet) -> str:
    """The image as text, a line for each row. JSON has no line breaks of its own."""
    return "\n".join([f"{row.rowid} {row.layout_id} {row.payload}" for row in image])


def load_row_set(text: str) -> RowSet:
    if "\n" in text:
        return tuple([_load_row(line) for line in text.split("\n")])
    return (_load_row(text),) if text else NO_ROWS


def _load_row(line: str) -> StoredRow:
    rowid, layout, payload = line.split(" ", 2)
    return StoredRow(int(rowid), int(layout), payload)


class UnitKind(enum.Enum):
    """What a delivery key stands for."""

    ROW = "row"  # one row: inserted, updated as a pair of images, deleted
    VERSION = "version"  # the same, being one of several that belong to a key: these go together
    GROUP = "group"  # any number of rows, always replaced as a whole
    MIRROR = "mirror"  # any number of rows, of which the API always gets the present ones and nothing else


class KeyState(NamedTuple):
    """What is known of one delivery key."""

    acknowledged: RowSet
    desired: RowSet
    maybe_sent: RowSet | None = None  # None: the base is certain

    @classmethod
    def load(cls, base: str, target: str, tried: str | None) -> Self:
        """Return what a queue keeps of the key, from the texts of its images."""
        return cls(load_row_set(base), load_row_set(target), None if tried is None else load_row_set(tried))

    def dump_maybe_sent(self) -> str | None:
        return None if self.maybe_sent is None else dump_row_set(self.maybe_sent)

    def if_delivered(self, shape: UnitKind) -> Self:
        """Return what is known of the key once all that was sent is acknowledged."""
        return self._replace(acknowledged=NO_ROWS if shape is UnitKind.MIRROR else self.desired, maybe_sent=None)

    def if_unknown(self, sent: Sequence[SentRow], shape: UnitKind) -> "KeyState":
        """Return what is known of the key when the rows may have been sent, and nobody knows what became of them."""
        return state_after(self, sent, {row.result_key: SendResult.UNANSWERED for row in sent}, shape)

    def count_rows(self, shape: UnitKind, layouts: Mapping[int, Layout]) -> int:
        """Return how many rows of a batch the key takes; 0: it is as it should be. An empty mirror is a call, too."""
        return count_batch_rows(find_rows_to_send(self, shape, layouts), shape)


def find_rows_to_send(standing: KeyState, shape: UnitKind, layouts: Mapping[int, Layout]) -> list[SentRow]:
    """The rows that lead from base to target, in their order of going out; none when these are the same.

    A mirror's are those that are there now: of what the API has of it nothing is kept.
    """
    is_certain = shape is not UnitKind.MIRROR and standing.maybe_sent is None
    if is_certain and has_same_rows(standing.acknowledged, standing.desired, layouts):
        return []
    return _DIFFS.get(shape, _diff_row)(standing)


def count_batch_rows(sent: Sequence[SentRow], shape: UnitKind) -> int:
    """The same, where it is known what is to be sent."""
    return max(len(sent), 1) if shape is UnitKind.MIRROR else len(sent)


def has_same_rows(left: RowSet, right: RowSet, layouts: Mapping[int, Layout]) -> bool:
    """Whether both hold the same rows, in any order and under any rowids."""
    if len(left) != len(right):
        return False
    if {row.layout_id for row in (*left, *right)} <= {left[0].layout_id if left else 0}:
        return sorted(row.payload for row in left) == sorted(row.payload for row in right)
    return _has_same_content(left, right, layouts)


def _has_same_content(left: RowSet, right: RowSet, layouts: Mapping[int, Layout]) -> bool:
    def contents(image: RowSet) -> Counter[Hashable]:
        return Counter(comparable_content(layouts[row.layout_id].parse_row(row.payload)) for row in image)

    return contents(left) == contents(right)


def _diff_row(standing: KeyState) -> list[SentRow]:
    base, target = standing.acknowledged, standing.desired
    if not target:
        # what was tried is the newest that the API can have
        return [SentRow(ChangeType.DELETE, row) for row in standing.maybe_sent or base]
    if standing.maybe_sent == NO_ROWS and base:
        # nobody knows whether the delete came through, so it goes first again
        return [SentRow(ChangeType.DELETE, base[0]), SentRow(ChangeType.INSERT, target[0])]
    if not base:
        return [SentRow(ChangeType.INSERT, target[0])]
    before = base[0]._replace(rowid=target[0].rowid)
    return [SentRow(ChangeType.UPDATE_PREIMAGE, before), SentRow(ChangeType.UPDATE_POSTIMAGE, target[0])]


def _diff_group(standing: KeyState) -> list[SentRow]:
    gone = standing.acknowledged
    if standing.maybe_sent and (standing.acknowledged or not standing.desired):
        # from nothing, an unanswered insert goes out as one again; else all that may be there goes first
        gone = tuple(dict.fromkeys((*standing.acknowledged, *standing.maybe_sent)))
    return [
        *(SentRow(ChangeType.DELETE, row) for row in gone),
        *(SentRow(ChangeType.INSERT, row) for row in standing.desired),
    ]


_DIFFS: Mapping[UnitKind, Callable[[KeyState], list[SentRow]]] = {
    UnitKind.GROUP: _diff_group,
    UnitKind.MIRROR: lambda standing: [SentRow(ChangeType.INSERT, row) for row in standing.desired],
}


class SendResult(enum.Enum):
    """What became of one sent row, as far as the base is concerned."""

    DELIVERED = "delivered"
    REFUSED = "refused"  # the API has said no: it has what it had
    FAILED = "failed"  # not taken, and that is certain
    UNANSWERED = "unanswered"  # it may have been taken


def state_after(
    standing: KeyState, sent: Sequence[SentRow], fates: Mapping[str, SendResult], shape: UnitKind
) -> KeyState:
    """What is known of the key once each sent row has its fate (by result key); the target stays.

    `standing` is the key as it was when the rows were sent, its target what was sent.
    """
    fate = [(row, fates[row.result_key]) for row in sent]
    return _STATES_AFTER.get(shape, _row_state_after)(standing, fate)


_RETRIED_RESULTS = frozenset({SendResult.FAILED, SendResult.UNANSWERED})


def _row_state_after(standing: KeyState, fate: Sequence[tuple[SentRow, SendResult]]) -> KeyState:
    before = standing
    for row, what in fate:
        if row.change_type is ChangeType.UPDATE_PREIMAGE:
            continue  # only tells push what was there before
        image = NO_ROWS if row.change_type is ChangeType.DELETE else (row.row,)
        if what is SendResult.DELIVERED:
            standing = KeyState(image, standing.desired)
        elif what is SendResult.UNANSWERED:
            standing = standing._replace(maybe_sent=_maybe_sent_after(standing, image))
    if any(row.change_type is ChangeType.UPDATE_PREIMAGE and what in _RETRIED_RESULTS for row, what in fate):
        # the pair goes out once more, also when its other half has arrived
        return before._replace(maybe_sent=before.desired) if standing.acknowledged != before.acknowledged else standing
    return standing


def _maybe_sent_after(standing: KeyState, tried: RowSet) -> RowSet:
    """What the API may have beside the base after one more try without an answer."""
    if not tried:
        return standing.maybe_sent or NO_ROWS  # what went out before the delete may still be there
    if standing.maybe_sent == NO_ROWS:
        return NO_ROWS  # the delete before it is still open, and goes first again
    return tried


def _group_state_after(standing: KeyState, fate: Sequence[tuple[SentRow, SendResult]]) -> KeyState:
    fates = {what for _, what in fate}
    # beside inserts, deletes are context: they tell push what the group had before
    telling = ChangeType.INSERT if standing.desired else ChangeType.DELETE
    arrived = [row.row for row, what in fate if what is SendResult.DELIVERED and row.change_type is telling]
    if SendResult.UNANSWERED in fates or (SendResult.FAILED in fates and arrived):
        # a part of it may be there, and of what was tried before: the whole goes out again
        return standing._replace(maybe_sent=tuple(dict.fromkeys((*(standing.maybe_sent or ()), *standing.desired))))
    if not arrived or SendResult.FAILED in fates:
        return standing
    kept = [row.row for row, what in fate if what is SendResult.REFUSED and row.change_type is ChangeType.DELETE]
    return KeyState((*kept, *(arrived if standing.desired else ())), standing.desired)


_STATES_AFTER: Mapping[UnitKind, Callable[[KeyState, Sequence[tuple[SentRow, SendResult]]], KeyState]] = {
    UnitKind.GROUP: _group_state_after,
    # the next try sends all that is there then, whatever came of this one
    UnitKind.MIRROR: lambda standing, _: standing,
}
