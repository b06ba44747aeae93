"""What the records of runs after a frontier tell of the units that a new queue is made of.

What they say was delivered isn't sent again, and what they say was refused is a dead letter again. How a
queue is made of a frontier is in takeover.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

import orjson

from ondatra_dagster.changes import Change, ChangeType, FeedPage, Segment
from ondatra_dagster.delivery.frontier import NOTHING_ENQUEUED
from ondatra_dagster.delivery.queue.jobs import take_out_of_jobs
from ondatra_dagster.delivery.queue.settled import SUCCEEDED
from ondatra_dagster.delivery.queue.tables import Queue

DELIVERED = "delete from unit where key = ? and version <= ?"
# what comes in the version in which it goes is sent with it, but published after it
GONE = "delete from unit where key = ? and version <= ? and (version <> ? or target = '')"
# What arrived before the newest change was frozen in the frontier, which has it as tried. This leaves out
# tried = '': of a delete that goes before its insert, it tells the delete and not what the insert brought.
ARRIVED_BEFORE = """
update unit set base = tried, tried = null
where key = ? and version > ? and tried <> '' and state != 'claimed'
"""
LEFT_BEFORE = """
update unit set base = '', tried = null
where key = ? and version >= ? and (version = ? or tried is not null) and state != 'claimed'
"""
# no insert goes before the deletes of its version have ended; a dead one has a record
ROOM_MADE = """
delete from unit where phase = 0 and version <= ? and state != 'dead'
    and key not in (select value from json_each(?))
"""
REFUSED = """
update unit set state = 'dead', message = ?, died_at = ?, attempts = 0 where key = ? and version <= ?
"""

COMES = frozenset({ChangeType.INSERT, ChangeType.UPDATE_POSTIMAGE})
NO_RUNS: Mapping[str, int] = MappingProxyType({})


class KeyEnd(NamedTuple):
    """How one delivery key stood at the end of a run that left no frontier."""

    key: str
    version: int
    status: str
    message: str | None
    change_type: str
    run_id: str = ""

    @property
    def sending(self) -> tuple[str, str, int]:
        """What it has in common with the other rows that went out with it."""
        return self.key, self.run_id, self.version


def contents_told(ends: Iterable[KeyEnd], known: Mapping[str, int]) -> Mapping[str, int]:
    """How many rows at most the API has of each mirror by these ends and by what was `known` before them.

    A run that was cut off may have told of a part of what it gave, so that fewer than before tell nothing. Of
    a mirror that was empty there is no record.
    """
    rows = dict(known)
    for (key, _, _), told in Counter(end.sending for end in ends if end.status == SUCCEEDED).items():
        rows[key] = max(told, rows.get(key, 0))
    return rows


def _place(end: KeyEnd) -> tuple[int, bool]:
    """Its place among the ends of its key: of a row that goes and comes in one version it comes last."""
    return end.version, end.change_type != ChangeType.DELETE


def _arrived(ends: Collection[KeyEnd]) -> Mapping[str, KeyEnd]:
    """The newest that the API has taken of each key; a group of which a part was refused hasn't arrived."""
    refused = {end.sending for end in ends if end.status != SUCCEEDED}
    return {end.key: end for end in sorted(ends, key=_place) if end.sending not in refused}


def _refused(ends: Iterable[KeyEnd]) -> Mapping[str, KeyEnd]:
    """The newest that the API has refused of each key, as the newest run tells it."""
    refused = (end for end in ends if end.status != SUCCEEDED)
    return {end.key: end for end in sorted(refused, key=lambda end: (end.version, end.run_id))}


def _room_made(ends: Iterable[KeyEnd], frozen: Collection[str]) -> int:
    """Up to which version deletes have ended, most of them without a record: inserts have gone since."""
    inserts = (end for end in ends if end.change_type != ChangeType.DELETE and end.key not in frozen)
    return max((end.version for end in inserts), default=NOTHING_ENQUEUED)


def _deletes(ends: Mapping[str, KeyEnd]) -> Collection[str]:
    """The keys of which that was the end."""
    return {key for key, end in ends.items() if end.change_type == ChangeType.DELETE}


class Recovered:
    """The newest end of each key after the frontier, as the records tell it.

    `cut_off_at` tells of each run since then up to which version it may have sent rows that nobody has noted.
    What was `frozen` had its turn before, so that it has arrived says nothing of deletes that are owed since.
    """

    def __init__(
        self,
        ends: Collection[KeyEnd],
        *,
        replaces_rows: bool = False,
        cut_off_at: Mapping[str, int] = NO_RUNS,
        frozen: Collection[str] = (),
    ) -> None:
        self._cut_off_at = frozenset(cut_off_at.values())
        self._buried_upto = NOTHING_ENQUEUED
        arrived = _arrived(ends)
        self._delivered = {key: end.version for key, end in arrived.items()}
        self._gone = _deletes(arrived)
        self._refused = _refused(ends)
        self._owed = _deletes(self._refused)
        self._room_made = _room_made(ends, frozen) if replaces_rows else NOTHING_ENQUEUED
        # what a run refused is dead once all is enqueued that this run had taken in
        self._dies_at = {
            key: max(end.version, cut_off_at.get(end.run_id, end.version))
            for key, end in self._refused.items()
        }

    def stops(self, *, after: int, upto: int) -> Sequence[int]:
        """The versions at which those up to `upto` are parted: between two of them nobody has sent anything.

        A row that came before one and went after it may be at the API, though nobody has noted it.
        """
        told = [*self._delivered.values(), *(end.version for end in self._refused.values())]
        first = [min(told)] if told and after == NOTHING_ENQUEUED else []
        between = (version for version in (*self._cut_off_at, *first) if after < version < upto)
        return [*sorted(set(between)), *([upto] if upto > after else [])]

    def may_be_sent(self, version: int) -> bool:
        """Whether a run was cut off that sent what the table had at this version."""
        return version in self._cut_off_at

    def __bool__(self) -> bool:
        return bool(self._delivered or self._refused)

    def drop_delivered(self, queue: Queue) -> None:
        """Units whose newest change the API has acknowledged; others go on from what it has."""
        gone = [(key, version, version) for key, version in self._delivered.items() if key in self._gone]
        there = [each for each in self._delivered.items() if each[0] not in self._gone]
        with queue.store.immediate():
            take_out_of_jobs(queue, self._delivered.keys() | self._refused.keys())
            queue.store.run_many(DELIVERED, there)
            queue.store.run_many(ARRIVED_BEFORE, there)
            queue.store.run_many(GONE, gone)
            queue.store.run_many(LEFT_BEFORE, gone)
        self.drop_replaced(queue)

    def drop_replaced(self, queue: Queue, *, after: int = NOTHING_ENQUEUED) -> None:
        """Rows whose places are known to be taken: a delete of theirs has arrived, or they never went out.

        Hardly any of them has a record. To be called again when changes `after` a version are enqueued: it
        does nothing once that version is past all such rows, for deletes that are owed again must stay.
        """
        if after < self._room_made:
            queue.store.run(ROOM_MADE, (self._room_made, orjson.dumps(list(self._owed)).decode()))

    def bury_refused(self, queue: Queue, now: float) -> None:
        """Units whose newest change the API has refused, each once all is enqueued that its run had taken in.

        To be called at each stop; what is enqueued later takes dead ones along, as ever.
        """
        upto = queue.watermark
        due = [end for key, end in self._refused.items() if self._buried_upto < self._dies_at[key] <= upto]
        with queue.store.immediate():
            queue.store.run_many(REFUSED, [(end.message, now, end.key, end.version) for end in due])
        self._buried_upto = upto

    def without_delivered(self, segment: Segment) -> Segment:
        """The segment less the changes that are known to have arrived, with the context rows beside them."""
        return segment._replace(pages=(self._page(page) for page in segment.pages))

    def _page(self, page: FeedPage) -> FeedPage:
        return page._replace(changes=[change for change in page.changes if self._is_owed(change)])

    def _is_owed(self, change: Change) -> bool:
        """Whether nobody told that it arrived: of a key that went, what came then isn't told of either."""
        arrived = self._delivered.get(change.key, NOTHING_ENQUEUED)
        came_with_it = change.version == arrived and change.change_type in COMES
        return change.version > arrived or (came_with_it and change.key in self._gone)
