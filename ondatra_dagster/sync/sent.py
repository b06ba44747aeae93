"""What the records say was sent: which keys the API has, and with which rows those that should be gone."""

import collections
from collections.abc import Iterator
from typing import NamedTuple, TypeVar

import orjson

from ondatra_dagster.changes import Change, ChangeType, FeedPage, Layout, Segment
from ondatra_dagster.delivery.queue.enqueue import CHUNK_KEYS, known_keys
from ondatra_dagster.delivery.queue.fold import Folded
from ondatra_dagster.delivery.queue.form import NAMED_SINCE
from ondatra_dagster.delivery.queue.tables import Queue
from ondatra_dagster.delivery.target import Shape, load_image
from ondatra_dagster.sync.ports import SourceState
from ondatra_dagster.sync.sync import Sync
from ondatra_dagster.tracking.record import Delivered, Operation, RecordStatus
from ondatra_dagster.tracking.store import TrackingStore

Name = TypeVar("Name")


class Mark(NamedTuple):
    """One acknowledged change; the newest is the greatest."""

    run_id: str
    version: int
    stays: bool  # the API has the key or the row after it


class Sent:
    """The newest acknowledged change of each key."""

    def __init__(
        self,
        sync: Sync,
        tracking: TrackingStore,
        table_id: str,
        *,
        since: str | None = None,
        upto: str | None = None,
        named_since: str,
    ) -> None:
        self._sync = sync
        self._tracking = tracking
        self._table_id = table_id
        self._since = since
        self._upto = upto
        self._named_since = named_since
        self._newest: dict[str, Mark] = {}
        # of records that call their keys otherwise, the rows are what can be found again
        self._rows: dict[int | None, Mark] = {}
        for end in self._ends():
            if self._is_named_otherwise(end):
                if end.table_id == table_id:
                    _keep_newest(self._rows, end.rowid, _mark(end))
            else:
                _keep_newest(self._newest, self._key(end), _mark(end))

    def holds(self, each: Folded) -> bool:
        """Whether the newest acknowledged change of the key, or of a row that it has, wasn't its end."""
        if each.key in self._newest or not self._rows:
            return self.is_held(each.key)
        marks = (self._rows.get(row.rowid) for row in load_image(each.target))
        return any(mark.stays for mark in marks if mark)

    def is_held(self, key: str) -> bool:
        """Whether its newest acknowledged change wasn't its end."""
        return key in self._newest and self._newest[key].stays

    def held(self) -> Iterator[Delivered]:
        """The records, with their payloads, of what the API has."""
        for end in self._ends(with_payload=True):
            mark = _mark(end)
            newest = self._row(end) if self._is_named_otherwise(end) else self._newest[self._key(end)]
            if mark.stays and newest == mark:
                yield end

    def gone(self, queue: Queue, source: SourceState) -> Segment:
        """Deletes of what the API has and the queue doesn't know, all of the table being in the queue."""
        layout = Layout(source.columns)
        keys = {key for key in self._newest if self.is_held(key)}
        keys -= set(_known(queue, keys))
        changes: dict[str, list[Change]] = collections.defaultdict(list)
        for end in self._ends(with_payload=True) if keys else ():
            key = self._key(end)
            if key in keys and _mark(end) == self._newest[key]:
                changes[key].append(self._delete(key, end, layout, source.version))
        together = [change for of_key in changes.values() for change in of_key]
        return Segment(-1, source.version, [FeedPage(layout, together)])

    def _ends(self, *, with_payload: bool = False) -> Iterator[Delivered]:
        delivered = self._tracking.delivered_since(
            self._sync.id, self._since, upto=self._upto, with_payload=with_payload
        )
        for end in delivered:
            if end.status == RecordStatus.SUCCEEDED:
                yield end

    def _is_named_otherwise(self, end: Delivered) -> bool:
        """Whether the record's identifier is of a key that the model had before."""
        return self._sync.delivers_by_key and end.run_id <= self._named_since

    def _row(self, end: Delivered) -> Mark | None:
        return self._rows.get(end.rowid) if end.table_id == self._table_id else None

    def _key(self, end: Delivered) -> str:
        """The unit that the record is of; rowids name rows of one table only."""
        if self._sync.delivers_by_key:
            return end.identifier
        return str(end.rowid) if end.table_id == self._table_id else f"{end.rowid}@{end.table_id}"

    def _delete(self, key: str, end: Delivered, layout: Layout, version: int) -> Change:
        row = orjson.loads(end.payload)
        payload = orjson.dumps([row.get(name) for name in layout.names]).decode()
        belongs_to = end.identifier if self._sync.shape is Shape.VERSION else ""
        return Change(key, end.rowid or 0, ChangeType.DELETE, version, payload, belongs_to)


def _mark(end: Delivered) -> Mark:
    return Mark(end.run_id, end.table_version, end.operation != Operation.DELETE)


def _keep_newest(newest: dict[Name, Mark], name: Name, mark: Mark) -> None:
    newest[name] = max(mark, newest.get(name, mark))


def keep_sent(sync: Sync, tracking: TrackingStore, *, through: str) -> None:
    """Keep what a resync has to know of the runs up to that one, so that their records may go.

    Nothing is kept where a resync doesn't ask, or where rows come and go without a key: of these, what is
    older than the records that are kept counts as new.
    """
    kind, frontier = sync.model.kind, tracking.newest_frontier(sync.id)
    if frontier is None or kind.only_adds or kind.replaces_rows or sync.shape is Shape.MIRROR:
        return
    named_since = frontier.notes.get(NAMED_SINCE, "")
    sent = Sent(sync, tracking, frontier.table_id, upto=through, named_since=named_since)
    tracking.keep_sent(sync.id, sent.held(), through=through)


def _known(queue: Queue, keys: set[str]) -> Iterator[str]:
    wanted = sorted(keys)
    for start in range(0, len(wanted), CHUNK_KEYS):
        yield from known_keys(queue, wanted[start : start + CHUNK_KEYS])
