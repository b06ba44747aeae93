"""What the records say was sent: which keys the API has, and with which rows those that should be gone."""

import collections
from collections.abc import Iterator

import orjson

from ondatra_dagster.changes import Change, ChangeType, FeedPage, Layout, Segment
from ondatra_dagster.delivery.queue.enqueue import CHUNK_KEYS, known_keys
from ondatra_dagster.delivery.queue.tables import Queue
from ondatra_dagster.delivery.target import Shape
from ondatra_dagster.sync.ports import SourceState
from ondatra_dagster.sync.sync import Sync
from ondatra_dagster.tracking.record import Delivered, Operation, RecordStatus
from ondatra_dagster.tracking.store import TrackingStore

Mark = tuple[str, int, bool]  # the run in which it was acknowledged, its version, whether the key stays


class Sent:
    """The newest acknowledged change of each key."""

    def __init__(self, sync: Sync, tracking: TrackingStore, table_id: str, *, since: str | None) -> None:
        self._sync = sync
        self._tracking = tracking
        self._table_id = table_id
        self._since = since
        self._newest: dict[str, Mark] = {}
        for end in self._ends():
            key, mark = self._key(end), _mark(end)
            self._newest[key] = max(mark, self._newest.get(key, mark))

    def is_held(self, key: str) -> bool:
        """Whether its newest acknowledged change wasn't its end."""
        return key in self._newest and self._newest[key][2]

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
        for end in self._tracking.delivered_since(self._sync.id, self._since, with_payload=with_payload):
            if end.status == RecordStatus.SUCCEEDED:
                yield end

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
    return end.run_id, end.table_version, end.operation != Operation.DELETE


def _known(queue: Queue, keys: set[str]) -> Iterator[str]:
    wanted = sorted(keys)
    for start in range(0, len(wanted), CHUNK_KEYS):
        yield from known_keys(queue, wanted[start : start + CHUNK_KEYS])
