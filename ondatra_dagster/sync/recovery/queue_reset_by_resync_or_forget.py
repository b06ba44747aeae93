"""The preparation of a queue for a resync, and the deletion of a queue by `ondatra forget`.

A resync sends all rows of the table again, or assumes that the API has them. A resync only prepares the queue;
the next run delivers as usual.
"""

import collections
import dataclasses
import re
import uuid
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path

from ondatra_dagster.delivery.acknowledged_to_desired_diff import UnitKind
from ondatra_dagster.delivery.finalize_call import renew_pending_finalize
from ondatra_dagster.delivery.queue.enqueue_changes import (
    DELETE_UNITS_AND_WATERMARK,
    enqueue_all_rows,
    enqueue_deletes,
    enqueue_segment,
)
from ondatra_dagster.delivery.queue.outcomes_recorded_after_snapshot import RecordedOutcomes
from ondatra_dagster.delivery.queue.queue_database import (
    KEY_GENERATION,
    PENDING_FINALIZE,
    Queue,
    create_forgotten_queue,
)
from ondatra_dagster.delivery.queue.removal_count import delete_content_sizes, write_content_sizes
from ondatra_dagster.delivery.queue.snapshot_and_restore import QueueSnapshot, clear_queue, end_restore, is_restoring
from ondatra_dagster.delivery.unit_shape_by_model_kind import (
    KEY_NAMES_SINCE,
    UnitFormat,
    read_unit_format,
    write_unit_format,
)
from ondatra_dagster.errors import ResyncNeededError, StateError
from ondatra_dagster.records.record_store import RecordStore
from ondatra_dagster.row_changes import ChangeType, FeedSegment
from ondatra_dagster.storage.file_errors import explain_file_errors
from ondatra_dagster.storage.file_lock import FileLock
from ondatra_dagster.sync.enqueue_step import enqueue_table_changes
from ondatra_dagster.sync.record_publisher import note_runs_with_invalid_records
from ondatra_dagster.sync.recovery.delivered_keys_for_resync import DeliveredKeys
from ondatra_dagster.sync.recovery.queue_recovery import (
    is_queue_stale,
    read_base_url,
    recover_queue,
    write_queue_snapshot,
)
from ondatra_dagster.sync.recovery.state_folder_conflict import StateFolderConflictCheck, find_newest_run
from ondatra_dagster.sync.recovery.unit_shape_check import find_last_run_with_other_keys, read_snapshot_format
from ondatra_dagster.sync.run_bookkeeping import close_crashed_runs
from ondatra_dagster.sync.run_context import RESYNC_REQUEST, Ports, SourceState
from ondatra_dagster.sync.sync_definition import Sync
from ondatra_dagster.sync.whole_table_unit_and_clone_feeds import read_whole_table


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ResyncOptions:
    """The options of a resync."""

    assumes_delivered: bool = False  # nothing is sent: the table's present rows count as delivered
    deletes_missing_rows: bool = False  # delete rows that were sent according to the records, and that the table lacks


def resync_queue(sync: Sync, ports: Ports, way: ResyncOptions) -> int:
    """Enqueue every row of the table, or assume all rows as delivered; return how many keys the next run sends.

    An enqueued row is sent as an update if the API has acknowledged it, otherwise as an insert.
    """
    source = ports.read_source()
    if source is None:
        raise StateError(f"{sync.model.name} has no table yet: run the model first")
    with sync.open_queue() as queue:
        source = ports.read_source() or source  # again: other processes may have used the queue until it was locked
        conflict_check = StateFolderConflictCheck(sync, ports)
        conflict_check.check_before_run()
        conflict_check.begin_run(f"resync-{uuid.uuid4().hex[:12]}")
        if is_queue_stale(queue, sync, ports):
            clear_queue(queue)
        keys = _Resync(sync, ports, queue, source).execute(way)
        write_queue_snapshot(queue, sync, ports)
        conflict_check.end_run()
        return keys


class _Resync:
    """A resync of an open queue."""

    def __init__(self, sync: Sync, ports: Ports, queue: Queue, source: SourceState) -> None:
        self._sync = sync
        self._ports = ports
        self._queue = queue
        self._source = source
        self._now = ports.clock()
        self._only_adds = sync.model.kind.is_insert_only
        self._is_lost = queue.read_meta("table_id") is None or is_restoring(queue)
        self._snapshot = snapshot = ports.record_store.read_newest_snapshot(sync.id) if self._is_lost else None
        table_id = snapshot.table_id if snapshot else queue.read_meta("table_id")
        self._is_another_table = table_id != source.table_id
        self._unit_format = sync.unit_format.with_key_types(source.columns)
        self._last_run_with_other_keys = _find_last_run_with_other_keys(
            queue, snapshot, self._unit_format, ports.record_store.list_runs(sync.id)
        )

    def execute(self, way: ResyncOptions) -> int:
        recorded_outcomes = None if way.assumes_delivered else self._try_recovery()
        # the API also has the rows that crashed runs settled
        close_crashed_runs(self._queue, self._sync, self._ports)
        if way.assumes_delivered:
            self._restart_queue(holds=self._count_mirror_rows())
            return 0
        # before any row is enqueued again: an API would answer the old idempotency keys with stored responses
        self._queue.write_meta(KEY_GENERATION, uuid.uuid4().hex)
        keys = (
            self._enqueue_by_queue(recorded_outcomes) if recorded_outcomes is not None else self._enqueue_by_records()
        )
        self._queue.write_meta(RESYNC_REQUEST, 1)
        return keys + (self._enqueue_deletes() if way.deletes_missing_rows else 0)

    def _try_recovery(self) -> RecordedOutcomes | None:
        """Recover the queue, and return the outcomes recorded after its snapshot; None if it can't be recovered."""
        try:
            return recover_queue(self._queue, self._sync, self._ports, self._source)
        except ResyncNeededError:
            return None

    def _enqueue_by_queue(self, recorded_outcomes: RecordedOutcomes) -> int:
        """Enqueue all rows, after a recovery: the queue shows what the API has."""
        enqueue_table_changes(self._queue, self._sync, self._ports, self._source, recorded_outcomes)
        return enqueue_all_rows(self._queue, self._read_table(), now=self._now, only_adds=self._only_adds)

    def _enqueue_by_records(self) -> int:
        """Enqueue all rows without a recovered queue. Only the kept records show what the API has."""
        with self._queue.store.write_transaction():
            self._restore_from_snapshot()
            self._drop_old_destination()
            delivered_keys = self._read_delivered_keys()
            self._clear_queue()
        is_held = None if self._only_adds else delivered_keys.is_delivered
        keys = enqueue_segment(self._queue, self._read_table(), now=self._now, is_held=is_held)
        self._restart_queue()
        return keys

    def _read_table(self) -> FeedSegment:
        """Return all rows of the table as a feed segment."""
        feed, version = self._ports.feed, self._source.version
        if self._sync.is_whole_table:
            return read_whole_table(feed, after=-1, upto=version, columns=self._source.columns)
        pages = (page for segment in feed.segments(None, version) for page in segment.pages)
        return FeedSegment(-1, version, pages)

    def _enqueue_deletes(self) -> int:
        if self._sync.unit_shape is UnitKind.MIRROR:
            return 0  # each delivery replaces the whole content, so rows that the table lacks need no delete
        deletes = self._read_delivered_keys().build_deletes(self._queue, self._source)
        return enqueue_deletes(self._queue, deletes, now=self._now)

    def _read_delivered_keys(self) -> DeliveredKeys:
        since = self._queue.read_meta("known_since")
        return DeliveredKeys(
            self._sync,
            self._ports.record_store,
            self._source.table_id,
            since=since or None,
            last_run_with_other_keys=self._last_run_with_other_keys,
        )

    def _count_mirror_rows(self) -> Mapping[str, int]:
        """Return the number of rows of each mirror by its key; an empty mapping if the sync has no mirrors."""
        if self._sync.unit_shape is not UnitKind.MIRROR:
            return {}
        pages = self._read_table().pages
        changes = (change for page in pages for change in page.changes)
        return collections.Counter(
            row_change.key for row_change in changes if row_change.change_type is ChangeType.INSERT
        )

    def _restart_queue(self, *, holds: Mapping[str, int] | None = None) -> None:
        with self._queue.store.write_transaction():
            if holds is not None:
                self._restore_from_snapshot()
                self._drop_old_destination()
                self._clear_queue()
                delete_content_sizes(self._queue)
                write_content_sizes(self._queue, holds.items())
            end_restore(self._queue)
            self._queue.write_meta("table_id", self._source.table_id)
            self._queue.write_meta("base_url", self._sync.push_config.base_url or "")
            self._queue.write_meta("watermark", self._source.version)
            if self._is_another_table:
                # the new table has its own invalid rows, which count from its first version
                self._queue.delete_meta("invalid_watermark")
            write_unit_format(self._queue, self._unit_format, last_run_with_other_keys=self._last_run_with_other_keys)

    def _restore_from_snapshot(self) -> None:
        """Restore a lost queue's metadata. Its units aren't restored, because they are enqueued again."""
        if not self._is_lost:
            return
        snapshot = self._snapshot
        if snapshot:
            self._queue.write_meta("known_since", snapshot.known_since)
            self._queue.write_meta("invalid_watermark", snapshot.invalid_watermark)
            if PENDING_FINALIZE in snapshot.queue_metadata and self._queue.read_meta(PENDING_FINALIZE) is None:
                self._queue.write_meta(PENDING_FINALIZE, snapshot.queue_metadata[PENDING_FINALIZE])
                renew_pending_finalize(self._queue, journal=self._sync.journal_file)
        note_runs_with_invalid_records(
            self._queue, since=snapshot.run_id if snapshot else "", upto=find_newest_run(self._sync, self._ports)
        )

    def _drop_old_destination(self) -> None:
        """Ignore all records so far if base_url has changed, because they show what another API has."""
        if read_base_url(self._queue, self._sync, self._ports) != (self._sync.push_config.base_url or ""):
            self._queue.write_meta("known_since", find_newest_run(self._sync, self._ports))
            delete_content_sizes(self._queue)

    def _clear_queue(self) -> None:
        for statement in DELETE_UNITS_AND_WATERMARK:
            self._queue.store.execute(statement)


def _find_last_run_with_other_keys(
    queue: Queue, snapshot: QueueSnapshot | None, form: UnitFormat, runs: Collection[str]
) -> str:
    if snapshot is None:
        return find_last_run_with_other_keys(
            read_unit_format(queue), queue.read_meta(KEY_NAMES_SINCE) or "", form, runs
        )
    return find_last_run_with_other_keys(
        read_snapshot_format(snapshot), snapshot.queue_metadata.get(KEY_NAMES_SINCE, ""), form, runs
    )


def forget_sync(sync: Sync, tracking: RecordStore) -> None:
    """Delete the sync's queue, with its bases, and its snapshots; keep records and history.

    The next run requires a resync. A queue file that says only that the sync was forgotten is left. Without
    this file, the queue would count as lost. Raise BusyError if a run of the sync is in progress.
    """
    with FileLock(sync.lock_file, purpose="forgets"):
        # the snapshots first: a lost queue would be rebuilt from them
        tracking.remove_snapshots(sync.id)
        for file in _list_queue_files(sync):
            with explain_file_errors(file):
                file.unlink(missing_ok=True)
        create_forgotten_queue(sync.queue_file)


def _list_queue_files(sync: Sync) -> Iterator[Path]:
    queue = sync.queue_file
    yield from (queue.with_name(queue.name + suffix) for suffix in ("-wal", "-shm", ""))
    journals = re.compile(re.escape(sync.journal_file.name) + r"(-\d+|-finalize)?")
    if queue.parent.exists():
        yield from [file for file in queue.parent.iterdir() if journals.fullmatch(file.name)]
