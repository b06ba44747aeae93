"""The search for a sync's records in three places: record files, settled rows in the queue, and pending rows.

Results are sorted newest first. They show the state at the moment when the queue was read. During a run, rows
move from the queue into files. So the queue is read before the files, and no row is missed or listed twice. If
a run was open at that moment, the search uses only those of its files whose rows the queue had assigned to the file
before. Runs that began later are left out.
"""

import dataclasses
import itertools
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import orjson

from ondatra_dagster.delivery.queue.pending_rows import PendingRow, PendingRowReader
from ondatra_dagster.delivery.queue.queue_database import READ_META, open_for_reading, read_layouts
from ondatra_dagster.delivery.queue.unpublished_records import SettledRow, read_started_files, read_unpublished_rows
from ondatra_dagster.delivery.unit_shape_by_model_kind import UNIT_FORMAT, UnitFormat
from ondatra_dagster.errors import SelectionError
from ondatra_dagster.project.spelling_suggestions import find_nearest
from ondatra_dagster.records.file_paths import RecordFileId, RecordFileType
from ondatra_dagster.records.parquet_search import RunRecords, count_runs_matches, search_runs
from ondatra_dagster.records.record_query import RecordQuery, ResultRecord
from ondatra_dagster.records.record_schema import RecordOperation
from ondatra_dagster.records.record_store import RecordStore
from ondatra_dagster.records.search_result_chunks_and_reason_counts import (
    RecordChunk,
    SpooledChunks,
    chunk_records,
    slice_chunks,
)
from ondatra_dagster.row_changes import ChangeType
from ondatra_dagster.storage.sqlite_database import SqliteStore
from ondatra_dagster.sync.record_publisher import build_records, to_datetime
from ondatra_dagster.sync.sync_definition import Sync

MAX_LISTED_RUNS = 5  # runs in the error about a run that doesn't exist


def find_records(sync: Sync, tracking: RecordStore, search: RecordQuery) -> Iterator[RecordChunk]:
    """Return the search's records in chunks; raise SelectionError for a run without records.

    Pending rows count as the newest run's rows, so a search in an older run doesn't return them.
    """
    queue_chunks, files = _search_queue_and_files(sync, tracking, search)
    record_chunks = itertools.chain(queue_chunks, search_runs(tracking, sync.id, search, files))
    return slice_chunks(record_chunks, offset=search.offset, limit=search.limit)


def count_records(sync: Sync, tracking: RecordStore, search: RecordQuery) -> int:
    """Return how many records the search finds, without regard to its limit."""
    unlimited_search = dataclasses.replace(search, limit=None, offset=0)
    queue_chunks, files = _search_queue_and_files(sync, tracking, unlimited_search)
    queue_count: int = sum(record_chunk.num_rows for record_chunk in queue_chunks)
    return queue_count + count_runs_matches(tracking, sync.id, unlimited_search, files)


def _search_queue_and_files(
    sync: Sync, tracking: RecordStore, search: RecordQuery
) -> tuple[Iterable[RecordChunk], Sequence[RunRecords]]:
    """Return the matching pending records of the queue, and the places of each run's ended records."""
    runs = set(tracking.list_runs(sync.id))  # also the runs that a lost or older queue doesn't know
    with open_for_reading(sync.queue_file) as store:
        if store is None:
            queue = _NO_QUEUE
        else:
            with store.read_transaction():
                queue = _QueueSearch(sync, store, search).find_matches(tracking)
                runs |= {run for run in tracking.list_runs(sync.id) if run <= queue.last_run}
    known_run_ids = sorted({*runs, *queue.open_runs}, reverse=True)
    _refuse_unknown_run(sync, search.run_id, known_run_ids)
    chosen_run_ids = [run for run in known_run_ids if search.run_id in (None, run)] if search.includes_ended else []
    files = [queue.open_run_records.get(run) or RunRecords(run_id=run) for run in chosen_run_ids]
    is_newest = search.run_id in (None, *known_run_ids[:1])
    return queue.pending_records if is_newest else (), files


def _refuse_unknown_run(sync: Sync, run_id: str | None, known_runs: Sequence[str]) -> None:
    if run_id is None or run_id in known_runs:
        return
    nearest_run_id = find_nearest(run_id, known_runs)
    suggestion = f"did you mean {nearest_run_id!r}? " if nearest_run_id else ""
    newest_runs_text = (
        f"the newest runs are {', '.join(known_runs[:MAX_LISTED_RUNS])}" if known_runs else "no run has left any"
    )
    raise SelectionError(f"{sync.id} has no records of a run {run_id!r}; {suggestion}{newest_runs_text}")


class _QueueMatches(NamedTuple):
    """A copy of a queue's matching records, so that the queue is closed before the records are used."""

    pending_records: Iterable[RecordChunk]
    last_run: str
    open_runs: Collection[str]  # the runs that hadn't ended when the queue was read
    open_run_records: Mapping[str, RunRecords]  # by run id: the open runs that the search covers


_NO_QUEUE = _QueueMatches((), "", (), {})


class _QueueSearch:
    """The search of one queue at one moment."""

    def __init__(self, sync: Sync, store: SqliteStore, search: RecordQuery) -> None:
        self._sync = sync
        self._store = store
        self._query = search
        self._layouts = read_layouts(store)
        self._table_id = self._read_meta("table_id")

    def find_matches(self, tracking: RecordStore) -> _QueueMatches:
        file_numbers_by_run = read_started_files(self._store)
        run_ids = [run for run in file_numbers_by_run if self._query.run_id in (None, run)]
        return _QueueMatches(
            pending_records=self._spool_records(self._read_pending_records()) if self._query.includes_pending else (),
            last_run=self._read_meta("last_run"),
            open_runs=file_numbers_by_run.keys(),
            open_run_records={run: self._read_open_run(run, file_numbers_by_run[run], tracking) for run in run_ids},
        )

    def _read_open_run(self, run_id: str, first_numbers: Mapping[str, int], tracking: RecordStore) -> RunRecords:
        published_files = tracking.list_record_files(self._sync.id, run_id)
        files = [(kind, number) for kind, number in published_files if number < first_numbers.get(kind, 0)]
        return RunRecords(
            run_id=run_id,
            files=files,
            unpublished_chunks={
                kind: self._spool_records(self._read_unpublished_records(run_id, kind, files))
                for kind in RecordFileType
            },
        )

    def _read_unpublished_records(
        self, run_id: str, kind: RecordFileType, files: Sequence[RecordFileId]
    ) -> Iterator[ResultRecord]:
        """Yield the matching settled rows of one record type that are in none of `files`."""
        numbers = [number for each, number in files if each is kind]
        settled = read_unpublished_rows(self._store, run_id, kind, numbers)
        records = build_records(
            (each for each in settled if self._matches(each[2])),
            layouts=self._layouts,
            operation=self._choose_operation(is_delete=kind is RecordFileType.DELETED),
            table_id=self._table_id,
        )
        for record in records:
            yield ResultRecord(*record[:7], self._sync.id, run_id, *record[7:])

    def _matches(self, row: SettledRow) -> bool:
        return self._query.matches(row.key, row.status, row.change_type, row.message)

    def _read_pending_records(self) -> Iterator[ResultRecord]:
        text = self._read_meta(UNIT_FORMAT)
        # the sync's present format may differ from the queue's
        unit_format = UnitFormat.load(text) if text else self._sync.unit_format
        queue = PendingRowReader(
            store=self._store,
            unit_kind=unit_format.unit_kind,
            replaces_rows=unit_format.replaces_rows,
            is_whole_table=unit_format.is_whole_table,
        )
        for row in queue.read_rows(stage=self._query.stage, prefix=self._query.prefix):
            if self._query.matches(row.key, row.stage, row.change_type, row.message):
                yield self._build_result_record(row)

    def _build_result_record(self, pending_row: PendingRow) -> ResultRecord:
        rowid, layout, payload = pending_row.stored_row
        return ResultRecord(
            identifier=pending_row.key,
            payload=orjson.dumps(self._layouts[layout].parse_row(payload)).decode(),
            operation=self._choose_operation(
                is_delete=pending_row.change_type is ChangeType.DELETE and not pending_row.is_context
            ),
            status=pending_row.stage,
            status_message=pending_row.message,
            batch_started_at=None,
            batch_ended_at=None,
            sync_id=self._sync.id,
            run_id=None,
            rowid=rowid,
            change_type=pending_row.change_type,
            table_version=pending_row.version,
            table_id=self._table_id,
            attempts=pending_row.attempts,
            next_try_at=None if pending_row.next_try_at is None else to_datetime(pending_row.next_try_at),
        )

    def _read_meta(self, name: str) -> str:
        return str(next((value for (value,) in self._store.fetch_rows(READ_META, (name,))), ""))

    def _choose_operation(self, *, is_delete: bool) -> RecordOperation:
        return RecordOperation.DELETE if is_delete else self._sync.operation

    def _spool_records(self, records: Iterator[ResultRecord]) -> SpooledChunks:
        max_records = None if self._query.limit is None else self._query.offset + self._query.limit
        return SpooledChunks(chunk_records(itertools.islice(records, max_records)))
