"""The publication of settled rows as record files: when a file is due, and what its records contain."""

import functools
import itertools
import math
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime

import orjson

from ondatra_dagster.delivery.acknowledged_to_desired_diff import UnitKind
from ondatra_dagster.delivery.queue import unpublished_records
from ondatra_dagster.delivery.queue.queue_database import INVALID_RECORDED_IN_RUNS, Queue
from ondatra_dagster.delivery.queue.unpublished_records import (
    RECORDS_DELETED,
    RECORDS_INVALID,
    PushAttempt,
    SettledRow,
    store_settled_rows,
)
from ondatra_dagster.future_time_correction import is_from_future
from ondatra_dagster.records.file_paths import RecordFileType
from ondatra_dagster.records.record_schema import RecordOperation, SyncRecord
from ondatra_dagster.records.record_store import RecordStore
from ondatra_dagster.row_changes import ChangeType, InvalidRow, Layout

PUBLISH_SECONDS = 10.0  # a lost disk loses only records younger than this; older records are in the tracking store
OBJECT_PAYLOAD = 0  # instead of a layout's number: the payload is a JSON object already, as in invalid rows
INVALID_CHUNK_ROWS = 1_000


class RecordPublisher:
    """The publisher of one run's settled rows, which publishes while the run is in progress."""

    def __init__(
        self,
        queue: Queue,
        tracking: RecordStore,
        *,
        sync_id: str,
        run_id: str,
        operation: RecordOperation,
        publish_seconds: float = PUBLISH_SECONDS,
    ) -> None:
        self._queue = queue
        self._record_store = tracking
        self._sync_id = sync_id
        self._run_id = run_id
        self._operation = operation
        self._publish_seconds = publish_seconds  # no record waits longer than this for its file
        self._unpublished_rows = 0
        self._due_at = 0.0  # when the oldest row without a file must get one; 0: unknown, so at once

    def add_settled_rows(self, rows: int, *, now: float) -> None:
        """Count newly settled rows, and publish those whose file is due."""
        self._unpublished_rows += rows
        self._due_at = min(self._due_at, now + self._publish_seconds)
        self.publish_if_due(now=now)

    def publish_if_due(self, *, now: float) -> None:
        """Publish rows if a file is due now."""
        is_due = now >= self._due_at or is_from_future(self._due_at - self._publish_seconds, now)
        if self._unpublished_rows >= unpublished_records.FILE_ROWS or is_due:
            self.publish_due(now=now)

    def seconds_to_next(self, *, now: float) -> float:
        """Return the seconds until the oldest unpublished record must be in a file; 0 if a file is due now."""
        return max(self._due_at - now, 0.0)

    def publish_due(self, *, now: float) -> None:
        """Write a file for each record type that has enough rows, or whose oldest row has waited long enough."""
        due_kinds = {
            kind
            for kind, rows, oldest_time in unpublished_records.count_unassigned_rows(self._queue, self._run_id)
            if rows >= unpublished_records.FILE_ROWS
            or now - oldest_time >= self._publish_seconds
            or is_from_future(oldest_time, now)
        }
        if due_kinds and (self._queue.replaces_rows or self._queue.unit_kind is UnitKind.GROUP):
            # deletes first: recovery counts a delete before recorded rows as done, unless a record says otherwise
            while self._publish_next(RECORDS_DELETED):
                pass
        for kind in sorted(due_kinds):  # deletes first
            self._publish_next(kind)
        unassigned_rows = unpublished_records.count_unassigned_rows(self._queue, self._run_id)
        self._unpublished_rows = sum(rows for _, rows, _ in unassigned_rows)
        self._due_at = min(
            (oldest_time + self._publish_seconds for _, _, oldest_time in unassigned_rows), default=math.inf
        )

    def publish_all(self) -> None:
        """Write all settled rows that aren't published yet, first the files that a crash left incomplete."""
        for file in unpublished_records.read_assigned_files(self._queue, self._run_id):
            self._publish_file(file)
        for kind, _, _ in unpublished_records.count_unassigned_rows(self._queue, self._run_id):
            while self._publish_next(kind):
                pass

    def _publish_next(self, kind: str) -> bool:
        file = unpublished_records.assign_rows_to_file(self._queue, self._run_id, kind)
        if file is None:
            return False
        self._publish_file(file)
        return True

    def _publish_file(self, file: unpublished_records.RecordFile) -> None:
        records = self._read_records(file)
        self._record_store.publish_records(self._sync_id, file.run_id, RecordFileType(file.type), file.number, records)
        unpublished_records.delete_published_rows(self._queue, file)

    def _read_records(self, file: unpublished_records.RecordFile) -> Iterator[SyncRecord]:
        return build_records(
            unpublished_records.read_file_rows(self._queue, file),
            layouts=self._queue.layouts,
            operation=RecordOperation.DELETE if file.type == RECORDS_DELETED else self._operation,
            table_id=self._queue.read_meta("table_id") or "",
        )


def build_records(
    settled_rows: Iterable[tuple[float, float, SettledRow]],
    *,
    layouts: Mapping[int, Layout],
    operation: RecordOperation,
    table_id: str,
) -> Iterator[SyncRecord]:
    """Yield a record for each settled row; each input tuple has the batch's start, its end, and the row."""
    for started_at, ended_at, row in settled_rows:
        is_object = row.layout == OBJECT_PAYLOAD
        yield SyncRecord(
            identifier=row.key,
            payload=row.payload if is_object else orjson.dumps(layouts[row.layout].parse_row(row.payload)).decode(),
            operation=operation,
            status=row.status,
            status_message=row.message,
            batch_started_at=to_datetime(started_at),
            batch_ended_at=to_datetime(ended_at),
            rowid=row.rowid,
            change_type=row.change_type,
            table_version=row.version,
            table_id=table_id,
        )


@functools.lru_cache(maxsize=2)  # the rows of a batch share their times
def to_datetime(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)


def note_runs_with_invalid_records(queue: Queue, *, since: str, upto: str) -> None:
    """Note that runs after `since`, up to `upto`, may have recorded invalid rows that the queue doesn't know."""
    run_span = queue.read_meta(INVALID_RECORDED_IN_RUNS)
    first_run_id, _, last_run_id = (run_span or f"{since}:{upto}").partition(":")
    queue.write_meta(INVALID_RECORDED_IN_RUNS, f"{min(first_run_id, since)}:{max(last_run_id, upto)}")


def drop_recorded_invalid_rows(
    queue: Queue, tracking: RecordStore, sync_id: str, rows: Iterable[InvalidRow]
) -> Iterator[InvalidRow]:
    """Yield the invalid rows without a record in the runs that note_runs_with_invalid_records() noted.

    Without such a note, yield all rows, because none of them has a record.
    """
    run_span = queue.read_meta(INVALID_RECORDED_IN_RUNS)
    if run_span is None:
        yield from rows
        return
    since, _, upto = run_span.partition(":")
    table_id = queue.read_meta("table_id")
    recorded_rows = tracking.read_invalid_rows(sync_id, since=since, upto=upto)
    recorded_rowids = {rowid for rowid, row_table_id in recorded_rows if row_table_id == table_id}
    yield from (row for row in rows if row.rowid not in recorded_rowids)


def store_invalid_rows(queue: Queue, rows: Iterable[InvalidRow], attempt: PushAttempt, *, upto: int) -> int:
    """Store invalid rows as records, and advance the watermark of invalid rows; return the number of rows.

    One transaction does both, so that an invalid row is recorded only once.
    """
    stored_count = 0
    with queue.store.write_transaction():
        for settled_rows in _chunk_settled_rows(rows):
            store_settled_rows(queue, RECORDS_INVALID, settled_rows, attempt)
            stored_count += len(settled_rows)
        queue.write_meta("invalid_watermark", upto)
        queue.delete_meta(INVALID_RECORDED_IN_RUNS)
    return stored_count


def _chunk_settled_rows(rows: Iterable[InvalidRow]) -> Iterator[list[SettledRow]]:
    settled_rows = (
        SettledRow(row.key, row.rowid, ChangeType.INSERT, row.version, row.reason, None, OBJECT_PAYLOAD, row.payload)
        for row in rows
    )
    while chunk := list(itertools.islice(settled_rows, INVALID_CHUNK_ROWS)):
        yield chunk
