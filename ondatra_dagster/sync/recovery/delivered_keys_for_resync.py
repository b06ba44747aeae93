"""The delivered keys according to the records: the keys that the API has, and rows for the deletes of these keys."""

import collections
from collections.abc import Iterator
from typing import NamedTuple, TypeVar

import orjson

from ondatra_dagster.delivery.acknowledged_to_desired_diff import UnitKind, load_row_set
from ondatra_dagster.delivery.queue.enqueue_changes import CHUNK_KEYS, CoalescedChange, keys_with_units
from ondatra_dagster.delivery.queue.queue_database import Queue
from ondatra_dagster.delivery.unit_shape_by_model_kind import KEY_NAMES_SINCE
from ondatra_dagster.records.record_schema import DeliveredRecord, RecordOperation, RecordStatus
from ondatra_dagster.records.record_store import RecordStore
from ondatra_dagster.row_changes import ChangeType, FeedPage, FeedSegment, Layout, RowChange
from ondatra_dagster.sync.run_context import SourceState
from ondatra_dagster.sync.sync_definition import Sync

MarkKey = TypeVar("MarkKey")


class DeliveredChange(NamedTuple):
    """An acknowledged change of a key or a row. A newer change compares as greater than an older one."""

    run_id: str
    version: int
    is_present: bool  # the API has the key or the row after this change


class DeliveredKeys:
    """The newest acknowledged change of each key."""

    def __init__(
        self,
        sync: Sync,
        tracking: RecordStore,
        table_id: str,
        *,
        since: str | None = None,
        upto: str | None = None,
        last_run_with_other_keys: str,
    ) -> None:
        self._sync = sync
        self._record_store = tracking
        self._table_id = table_id
        self._after_run_id = since
        self._upto_run_id = upto
        self._last_run_with_other_keys = last_run_with_other_keys
        self._newest_by_key: dict[str, DeliveredChange] = {}
        # identifiers made from an earlier key match no present key; such records are matched by rowid
        self._newest_by_rowid: dict[int | None, DeliveredChange] = {}
        for end in self._read_succeeded_records():
            if self._has_other_key(end):
                if end.table_id == table_id:
                    _update_newest(self._newest_by_rowid, end.rowid, _build_change(end))
            else:
                _update_newest(self._newest_by_key, self._derive_key(end), _build_change(end))

    def is_delivered(self, coalesced_change: CoalescedChange) -> bool:
        """Return whether the API has the change's key, or one of its rows, after the newest acknowledged change."""
        if coalesced_change.key in self._newest_by_key or not self._newest_by_rowid:
            return self.is_key_delivered(coalesced_change.key)
        changes = (self._newest_by_rowid.get(row.rowid) for row in load_row_set(coalesced_change.desired))
        return any(change.is_present for change in changes if change)

    def is_key_delivered(self, key: str) -> bool:
        """Return whether the API has the key after the key's newest acknowledged change."""
        return key in self._newest_by_key and self._newest_by_key[key].is_present

    def read_delivered_records(self) -> Iterator[DeliveredRecord]:
        """Yield the newest records, with payloads, of each key or row that the API has."""
        for end in self._read_succeeded_records(with_payload=True):
            change = _build_change(end)
            newest_change = (
                self._find_by_rowid(end) if self._has_other_key(end) else self._newest_by_key[self._derive_key(end)]
            )
            if change.is_present and newest_change == change:
                yield end

    def build_deletes(self, queue: Queue, source: SourceState) -> FeedSegment:
        """Return deletes of the keys that the API has and the queue lacks; call it with the whole table enqueued."""
        layout = Layout(source.columns)
        keys = {key for key in self._newest_by_key if self.is_key_delivered(key)}
        keys -= set(_find_known_keys(queue, keys))
        changes: dict[str, list[RowChange]] = collections.defaultdict(list)
        for record in self._read_succeeded_records(with_payload=True) if keys else ():
            key = self._derive_key(record)
            if key in keys and _build_change(record) == self._newest_by_key[key]:
                changes[key].append(self._build_delete(key, record, layout, source.version))
        all_changes = [change for key_changes in changes.values() for change in key_changes]
        return FeedSegment(-1, source.version, [FeedPage(layout, all_changes)])

    def _read_succeeded_records(self, *, with_payload: bool = False) -> Iterator[DeliveredRecord]:
        delivered_records = self._record_store.read_delivered_since(
            self._sync.id, self._after_run_id, upto=self._upto_run_id, with_payload=with_payload
        )
        for record in delivered_records:
            if record.status == RecordStatus.SUCCEEDED:
                yield record

    def _has_other_key(self, record: DeliveredRecord) -> bool:
        """Return whether the record's identifier was made from an earlier key of the model: other columns or types."""
        return self._sync.delivers_by_key and record.run_id <= self._last_run_with_other_keys

    def _find_by_rowid(self, record: DeliveredRecord) -> DeliveredChange | None:
        return self._newest_by_rowid.get(record.rowid) if record.table_id == self._table_id else None

    def _derive_key(self, record: DeliveredRecord) -> str:
        """Return the key of the record's unit. A rowid of another table is made unique with the table's id."""
        if self._sync.delivers_by_key:
            return record.identifier
        return str(record.rowid) if record.table_id == self._table_id else f"{record.rowid}@{record.table_id}"

    def _build_delete(self, key: str, record: DeliveredRecord, layout: Layout, version: int) -> RowChange:
        row = orjson.loads(record.payload)
        payload = orjson.dumps([row.get(name) for name in layout.names]).decode()
        group_key = record.identifier if self._sync.unit_shape is UnitKind.VERSION else ""
        return RowChange(key, record.rowid or 0, ChangeType.DELETE, version, payload, group_key)


def _build_change(record: DeliveredRecord) -> DeliveredChange:
    return DeliveredChange(record.run_id, record.table_version, record.operation != RecordOperation.DELETE)


def _update_newest(newest: dict[MarkKey, DeliveredChange], name: MarkKey, mark: DeliveredChange) -> None:
    newest[name] = max(mark, newest.get(name, mark))


def store_delivered_keys(sync: Sync, tracking: RecordStore, *, last_run: str) -> None:
    """Store the keys that were delivered until `last_run`, so that a resync works without these runs' records.

    Nothing is stored for kinds that only insert or that replace rows, and for whole tables and partitions. For a
    kind that replaces rows, a resync counts a row as new if its records were removed.
    """
    kind, snapshot = sync.model.kind, tracking.read_newest_snapshot(sync.id)
    if snapshot is None or kind.is_insert_only or kind.replaces_rows or sync.unit_shape is UnitKind.MIRROR:
        return
    last_run_with_other_keys = snapshot.queue_metadata.get(KEY_NAMES_SINCE, "")
    delivered_keys = DeliveredKeys(
        sync, tracking, snapshot.table_id, upto=last_run, last_run_with_other_keys=last_run_with_other_keys
    )
    tracking.write_delivered(sync.id, delivered_keys.read_delivered_records(), last_run=last_run)


def _find_known_keys(queue: Queue, keys: set[str]) -> Iterator[str]:
    sorted_keys = sorted(keys)
    for start in range(0, len(sorted_keys), CHUNK_KEYS):
        yield from keys_with_units(queue, sorted_keys[start : start + CHUNK_KEYS])
