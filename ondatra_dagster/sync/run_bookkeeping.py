"""The notes about a sync run's progress: in the queue, in the run's metadata.json and in the history."""

import dataclasses
from datetime import UTC, datetime
from typing import Any, Self

import orjson

from ondatra_dagster.delivery.queue import unpublished_records
from ondatra_dagster.delivery.queue.async_jobs import count_units_in_jobs
from ondatra_dagster.delivery.queue.change_and_outcome_counts import (
    NO_COUNTS,
    PLANNED,
    UnitCounter,
    UnitOperation,
    UnitOutcome,
    read_counts,
)
from ondatra_dagster.delivery.queue.queue_database import NOTHING_ENQUEUED, Queue
from ondatra_dagster.delivery.queue.snapshot_and_restore import is_restoring, make_snapshot, read_restore_upto
from ondatra_dagster.errors import OndatraError, ResyncNeededError, StateError
from ondatra_dagster.records.metadata_and_heartbeat_format import Endpoint, RunMetadata
from ondatra_dagster.row_changes import Column
from ondatra_dagster.sync.record_publisher import RecordPublisher
from ondatra_dagster.sync.recovery.state_folder_conflict import StateFolderConflictCheck, find_newest_run
from ondatra_dagster.sync.run_context import RESYNC_REQUEST, Ports, RunContext, create_run_id
from ondatra_dagster.sync.run_history_store import NEVER_BEGUN_REASON, PastRun, RunMode, RunResult
from ondatra_dagster.sync.run_summary import RECORDED_ROWS, CountGrid, GridRow, RunSummary
from ondatra_dagster.sync.sync_definition import Sync


def close_crashed_runs(queue: Queue, sync: Sync, ports: Ports) -> None:
    """Publish the settled rows of runs that crashed, and record the runs' counts."""
    for run_id, run_note in unpublished_records.open_runs(queue).items():
        _create_publisher(queue, sync, ports, run_id).publish_all()
        recorded_metadata = ports.record_store.read_metadata(sync.id, run_id)
        counts: Any = recorded_metadata and recorded_metadata.get("counts")
        if not counts:  # with counts in its metadata, the run crashed at its very end, and its files show less
            counts = _count_crashed_run(queue, sync, ports, run_id).to_json()
            metadata = dataclasses.replace(_load_metadata(run_note), counts=counts)
            ports.record_store.finish_run(sync.id, run_id, metadata)
        ports.history.close_crashed_run(sync.id, run_id, {"grid": counts})
        unpublished_records.end_run(queue, run_id)


def _count_crashed_run(queue: Queue, sync: Sync, ports: Ports, run_id: str) -> CountGrid:
    """Return a crashed run's counts until its crash; units in jobs are counted as of now."""
    counts = read_counts(queue, run_id)
    grid = CountGrid(known_rows=frozenset(GridRow) if PLANNED in counts else RECORDED_ROWS)
    grid.add_counts(GridRow.PLANNED, counts.get(PLANNED, NO_COUNTS))
    grid.add_attempts({end: counts.get(end, NO_COUNTS) for end in UnitOutcome})
    if PLANNED in counts:
        grid.count_unsent(count_units_in_jobs(queue, UnitCounter(queue)))
    grid.add_counts(GridRow.INVALID, {UnitOperation.INSERT: ports.record_store.count_invalid(sync.id, run_id)})
    return grid


def record_refusal(context: RunContext, error: OndatraError) -> None:
    """Add a row to the history for a run that was refused before it began."""
    ports = context.ports
    # a ResyncNeededError shows that earlier runs had begun
    has_queue_or_needs_resync = context.queue.read_meta("table_id") is not None or isinstance(error, ResyncNeededError)
    run_id = create_run_id(context.started_at, after=find_newest_known_run(context), random=ports.random)
    refused_run = dataclasses.replace(
        build_past_run(context, run_id),
        ended_at=ports.now(),
        reason="it was refused before anything was read" if has_queue_or_needs_resync else NEVER_BEGUN_REASON,
        version_to=context.version_from,
        result=RunResult.FAILED,
        first_errors=(str(error),),
    )
    ports.history.finish_run(refused_run)


def find_newest_known_run(context: RunContext) -> str | None:
    """Return the id of the sync's newest run; None if no run is known.

    A new or lost queue doesn't have the id. In that case, the run folders in the tracking store are searched.
    """
    newest_run_id = max(context.queue.read_meta("last_run") or "", read_restore_upto(context.queue) or "")
    return newest_run_id or find_newest_run(context.sync, context.ports) or None


class RunBookkeeper:
    """The bookkeeping of one run from its start to its end."""

    def __init__(self, context: RunContext, run_id: str, conflict_check: StateFolderConflictCheck) -> None:
        self.run_id = run_id
        self.conflict_check = conflict_check
        self.publisher = _create_publisher(context.queue, context.sync, context.ports, run_id)
        self._context = context

    @classmethod
    def begin_run(cls, context: RunContext, conflict_check: StateFolderConflictCheck) -> Self:
        """Create the run's id, and note in the queue, the tracking store and the history that the run has begun."""
        ports, sync, queue = context.ports, context.sync, context.queue
        run_id = create_run_id(context.started_at, after=find_newest_known_run(context), random=ports.random)
        bookkeeper = cls(context, run_id, conflict_check)
        conflict_check.begin_run(run_id)
        metadata = bookkeeper._build_metadata()
        with queue.store.write_transaction():
            queue.write_meta("last_run", bookkeeper.run_id)
            queue.delete_meta(RESYNC_REQUEST)
            unpublished_records.begin_run(queue, bookkeeper.run_id, _dump_metadata(metadata))
        ports.record_store.write_metadata(sync.id, bookkeeper.run_id, metadata)
        ports.history.begin_run(build_past_run(context, run_id))
        return bookkeeper

    def end_run(self, summary: RunSummary, result: RunResult) -> None:
        """Publish all rows, and note the run's end in the tracking store, the history and the queue.

        The queue is last: until then, the run counts as crashed.
        """
        self.publisher.publish_all()
        ports, sync, queue = self._context.ports, self._context.sync, self._context.queue
        metadata = dataclasses.replace(
            self._build_metadata(), version_to=summary.version_to, counts=summary.grid.to_json()
        )
        ports.record_store.finish_run(sync.id, self.run_id, metadata)
        # while a queue is restored, the last snapshot and the records know more than the queue; and if another state
        # folder has begun a run since, its snapshot is newer
        is_newest = self.conflict_check.find_newer_run() is None
        if is_newest and not is_restoring(queue):
            queue.write_meta(unpublished_records.SNAPSHOT_RUN, self.run_id)
            snapshot = make_snapshot(queue, sync_id=sync.id, run_id=self.run_id, written_at=ports.now())
            ports.record_store.write_snapshot(snapshot)
        if is_newest:
            self.conflict_check.end_run()
        self._write_history(summary, result)
        unpublished_records.end_run(queue, self.run_id)

    def record_failure(self, summary: RunSummary, result: RunResult) -> None:
        """End the run with a failed or interrupted result.

        If the tracking store can't be written, the end is noted only in the history, and the next run
        publishes the rest.
        """
        try:
            self.end_run(summary, result)
        except StateError:
            self._write_history(summary, result)

    def _write_history(self, summary: RunSummary, result: RunResult) -> None:
        past_run = dataclasses.replace(
            build_past_run(self._context, self.run_id),
            ended_at=summary.ended_at,
            version_to=summary.version_to,
            counts=summary.to_json(),
            result=result,
            first_errors=summary.first_errors,
        )
        self._context.ports.history.finish_run(past_run)

    def _build_metadata(self) -> RunMetadata:
        context = self._context
        return RunMetadata(
            source=context.sync.endpoints.source_endpoint,
            destination=context.sync.endpoints.destination_endpoint,
            destination_object=context.sync.endpoints.object_endpoint,
            started_at=context.started_at,
            columns=context.source.columns,
            dagster_run_id=context.options.dagster_run_id,
            version_from=context.version_from,
            version_to=context.source.version,
            counts={},
        )


def build_past_run(context: RunContext, run_id: str) -> PastRun:
    """Return the history row of a run that begins."""
    mode, reason = choose_mode(context)
    return PastRun(
        sync_id=context.sync.id,
        run_id=run_id,
        model=context.sync.model.name,
        dagster_run_id=context.options.dagster_run_id,
        started_at=context.started_at,
        trigger=context.options.trigger,
        mode=mode,
        reason=reason,
        version_from=context.version_from,
        version_to=context.source.version,
    )


def choose_mode(context: RunContext) -> tuple[RunMode, str]:
    """Return the run's mode, which says what share of the table it reads, and the reason for the mode."""
    if context.is_resync:
        return RunMode.FULL, "a resync was requested"
    if context.watermark == NOTHING_ENQUEUED:
        return RunMode.FULL, "the first run sends the whole table"
    if context.source.version > context.watermark:
        first_version, last_version = context.watermark + 1, context.source.version
        mode_reason = (
            f"version {last_version} is new"
            if first_version == last_version
            else f"versions {first_version} to {last_version} are new"
        )
        return RunMode.INCREMENTAL, mode_reason
    if context.source.invalid_version > context.invalid_watermark:
        return RunMode.INCREMENTAL, "rows were newly invalid"
    return RunMode.RETRY, "rows were waiting"


def _create_publisher(queue: Queue, sync: Sync, ports: Ports, run_id: str) -> RecordPublisher:
    return RecordPublisher(
        queue,
        ports.record_store,
        sync_id=sync.id,
        run_id=run_id,
        operation=sync.operation,
        publish_seconds=ports.publish_seconds,
    )


def _dump_metadata(metadata: RunMetadata) -> str:
    return orjson.dumps(dataclasses.asdict(metadata), default=tuple).decode()


def _load_metadata(text: str) -> RunMetadata:
    fields = orjson.loads(text)
    return RunMetadata(
        **{
            **fields,
            "source": Endpoint(*fields["source"]),
            "destination": Endpoint(*fields["destination"]),
            "destination_object": Endpoint(*fields["destination_object"]),
            "started_at": datetime.fromisoformat(fields["started_at"]).astimezone(UTC),
            "columns": tuple(Column(*column) for column in fields["columns"]),
        }
    )
