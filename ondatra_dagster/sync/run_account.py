"""What is kept of a sync run: in the queue while it goes on, in its metadata.json, in the history.

What is kept of its rows: records.
"""

import dataclasses
from datetime import UTC, datetime
from typing import Any, Self

import orjson

from ondatra_dagster.changes import Column
from ondatra_dagster.delivery.frontier import NOTHING_ENQUEUED
from ondatra_dagster.delivery.queue import publication
from ondatra_dagster.delivery.queue.jobs import count_in_jobs
from ondatra_dagster.delivery.queue.run_counts import PLANNED, read_counts
from ondatra_dagster.delivery.queue.tables import Queue
from ondatra_dagster.delivery.queue.takeover import frontier_of, is_taking_over, taken_over_upto
from ondatra_dagster.delivery.queue.unit_counts import NONE, End, Operation, UnitCounter
from ondatra_dagster.errors import OndatraError, ResyncNeededError, StateError
from ondatra_dagster.sync.other_states import OtherStates, newest_run
from ondatra_dagster.sync.ports import Ports
from ondatra_dagster.sync.records import Publisher
from ondatra_dagster.sync.run_id import new_run_id
from ondatra_dagster.sync.start import RESYNC, Start
from ondatra_dagster.sync.summary import RECORDED, Cell, Grid, RunSummary
from ondatra_dagster.sync.sync import Sync
from ondatra_dagster.tracking.history import NEVER_BEGUN, Mode, PastRun, Result
from ondatra_dagster.tracking.metadata import Endpoint, RunMetadata


def close_crashed_runs(queue: Queue, sync: Sync, ports: Ports) -> None:
    """Publish what runs that were cut off had settled, and note what that was."""
    for run_id, about in publication.open_runs(queue).items():
        _publisher(queue, sync, ports, run_id).publish_all()
        known = ports.tracking.metadata(sync.id, run_id)
        counts: Any = known and known.get("counts")
        if not counts:  # else it was cut off at its very end, and knew more than its files tell
            counts = _counts_of(queue, sync, ports, run_id).to_json()
            metadata = dataclasses.replace(_load_metadata(about), counts=counts)
            ports.tracking.finish_run(sync.id, run_id, metadata)
        ports.history.close_crashed(sync.id, run_id, {"grid": counts})
        publication.end_run(queue, run_id)


def _counts_of(queue: Queue, sync: Sync, ports: Ports, run_id: str) -> Grid:
    """What a run that was cut off had counted by then; what it left in jobs is counted as it is now."""
    counts = read_counts(queue, run_id)
    grid = Grid(counted=frozenset(Cell) if PLANNED in counts else RECORDED)
    grid.add(Cell.PLANNED, counts.get(PLANNED, NONE))
    grid.add_ends({end: counts.get(end, NONE) for end in End})
    if PLANNED in counts:
        grid.close(count_in_jobs(queue, UnitCounter(queue)))
    grid.add(Cell.INVALID, {Operation.INSERT: ports.tracking.count_invalid(sync.id, run_id)})
    return grid


def note_refusal(start: Start, error: OndatraError) -> None:
    """Leave a line in the history of a run that must not begin."""
    ports = start.ports
    # one that asks for a resync knows of others that had begun
    has_begun = start.queue.meta("table_id") is not None or isinstance(error, ResyncNeededError)
    run_id = new_run_id(start.at, after=newest_known_run(start), random=ports.random)
    refused = dataclasses.replace(
        past_run(start, run_id),
        ended_at=ports.now(),
        reason="it was refused before anything was looked at" if has_begun else NEVER_BEGUN,
        version_to=start.version_from,
        result=Result.FAILED,
        first_errors=(str(error),),
    )
    ports.history.finish(refused)


def newest_known_run(start: Start) -> str | None:
    """The newest one that anybody has left a trace of; a queue that was gone on from knows it itself."""
    known = max(start.queue.meta("last_run") or "", taken_over_upto(start.queue) or "")
    return known or newest_run(start.sync, start.ports) or None


class RunAccount:
    """One run's, from its begin to its end."""

    def __init__(self, start: Start, run_id: str, others: OtherStates) -> None:
        self.run_id = run_id
        self.others = others
        self.publisher = _publisher(start.queue, start.sync, start.ports, run_id)
        self._start = start

    @classmethod
    def begin(cls, start: Start, others: OtherStates) -> Self:
        """Name the run, and note everywhere that it goes on."""
        ports, sync, queue = start.ports, start.sync, start.queue
        run_id = new_run_id(start.at, after=newest_known_run(start), random=ports.random)
        account = cls(start, run_id, others)
        others.begin(run_id)
        metadata = account._metadata()
        with queue.store.immediate():
            queue.set_meta("last_run", account.run_id)
            queue.forget_meta(RESYNC)
            publication.begin_run(queue, account.run_id, _dump_metadata(metadata))
        ports.tracking.write_metadata(sync.id, account.run_id, metadata)
        ports.history.begin(account._past_run())
        return account

    def end(self, summary: RunSummary, result: Result) -> None:
        """Publish all, and note everywhere how the run ended, the queue last: before it counts as cut off."""
        self.publisher.publish_all()
        ports, sync, queue = self._start.ports, self._start.sync, self._start.queue
        metadata = dataclasses.replace(
            self._metadata(), version_to=summary.version_to, counts=summary.counts()
        )
        ports.tracking.finish_run(sync.id, self.run_id, metadata)
        # a queue that is taking over doesn't say all that the last frontier and the records do; and what
        # another state folder has begun since is newer
        is_newest = self.others.overtaking() is None
        if is_newest and not is_taking_over(queue):
            publication.note_frontier(queue, self.run_id)
            frontier = frontier_of(queue, sync_id=sync.id, run_id=self.run_id, written_at=ports.now())
            ports.tracking.write_frontier(frontier)
        if is_newest:
            self.others.end()
        self._note_end(summary, result)
        publication.end_run(queue, self.run_id)

    def cut_off(self, summary: RunSummary, result: Result) -> None:
        """Note how the run was cut off. Where the tracking store failed, the next run publishes the rest."""
        try:
            self.end(summary, result)
        except StateError:
            self._note_end(summary, result)

    def _note_end(self, summary: RunSummary, result: Result) -> None:
        past = dataclasses.replace(
            self._past_run(),
            ended_at=summary.ended_at,
            version_to=summary.version_to,
            counts=summary.to_json(),
            result=result,
            first_errors=summary.errors,
        )
        self._start.ports.history.finish(past)

    def _metadata(self) -> RunMetadata:
        start = self._start
        return RunMetadata(
            source=start.sync.ends.source_endpoint,
            destination=start.sync.ends.destination_endpoint,
            destination_object=start.sync.ends.object_endpoint,
            started_at=start.at,
            columns=start.source.columns,
            dagster_run_id=start.occasion.dagster_run_id,
            version_from=start.version_from,
            version_to=start.source.version,
            counts={},
        )

    def _past_run(self) -> PastRun:
        return past_run(self._start, self.run_id)


def past_run(start: Start, run_id: str) -> PastRun:
    """A run's line in the history, as it begins."""
    mode, reason = mode_of(start)
    return PastRun(
        sync_id=start.sync.id,
        run_id=run_id,
        model=start.sync.model.name,
        dagster_run_id=start.occasion.dagster_run_id,
        started_at=start.at,
        trigger=start.occasion.trigger,
        mode=mode,
        reason=reason,
        version_from=start.version_from,
        version_to=start.source.version,
    )


def mode_of(start: Start) -> tuple[Mode, str]:
    """How much of the table the run looks at, and why."""
    if start.is_resync:
        return Mode.FULL, "a resync was asked for"
    if start.watermark == NOTHING_ENQUEUED:
        return Mode.FULL, "the first run sends the whole table"
    if start.source.version > start.watermark:
        first, last = start.watermark + 1, start.source.version
        told = f"version {last} is new" if first == last else f"versions {first} to {last} are new"
        return Mode.INCREMENTAL, told
    if start.source.invalid_version > start.invalid_watermark:
        return Mode.INCREMENTAL, "rows were newly set aside"
    return Mode.RETRY, "rows were waiting"


def _publisher(queue: Queue, sync: Sync, ports: Ports, run_id: str) -> Publisher:
    return Publisher(
        queue,
        ports.tracking,
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
