"""One sync run from end to end: feed → queue → cross-check → deliver → records → summary.

Each step can be cut off at any instant; the next run goes on from what is on disk.
"""

import contextlib
import dataclasses
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime

import orjson

from ondatra_dagster.changes import ChangeType, Column, InvalidRow
from ondatra_dagster.delivery.deliver import Course, Delivery, deliver
from ondatra_dagster.delivery.finalizing import finalize, forget_debt
from ondatra_dagster.delivery.frontier import NOTHING_ENQUEUED
from ondatra_dagster.delivery.push.push_port import Push
from ondatra_dagster.delivery.queue import publication
from ondatra_dagster.delivery.queue.backlog import oldest
from ondatra_dagster.delivery.queue.claim import Batch, make_due
from ondatra_dagster.delivery.queue.removals import Removals, let_through, remember_contents
from ondatra_dagster.delivery.queue.settle import Settled
from ondatra_dagster.delivery.queue.settled import Attempt
from ondatra_dagster.delivery.queue.states import look
from ondatra_dagster.delivery.queue.tables import Queue
from ondatra_dagster.delivery.queue.takeover import Recovered, frontier_of
from ondatra_dagster.errors import BusyError, OndatraError
from ondatra_dagster.sync.cross_check import cross_check, take_in
from ondatra_dagster.sync.guard import look_at_removals
from ondatra_dagster.sync.planned import planned, told
from ondatra_dagster.sync.ports import Ports, SourceState
from ondatra_dagster.sync.records import Publisher, keep_invalid
from ondatra_dagster.sync.run_id import new_run_id
from ondatra_dagster.sync.summary import SAMPLES, Cell, Grid, RunSummary, Sample, invalid_of
from ondatra_dagster.sync.sync import Sync
from ondatra_dagster.sync.verdicts import Severity, judge
from ondatra_dagster.tracking.history import Mode, PastRun, Result
from ondatra_dagster.tracking.metadata import Endpoint, RunMetadata

ERRORS = 5  # different messages that a summary keeps


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Occasion:
    """Why a sync run happens."""

    trigger: str  # the command, the UI, a sensor, a schedule
    dagster_run_id: str | None = None
    allows_deletes: bool = False  # past @max_deletes


def run_sync(sync: Sync, ports: Ports, occasion: Occasion) -> RunSummary:
    """Bring the destination as far as it goes now, and say what became of each row.

    When another process delivers this sync, or nothing is to be done, the summary says so and has no run id.
    """
    started = ports.now()
    source = ports.source()
    if source is None:
        return _nothing(started, sync, f"{sync.model.name} has no table yet; it is made when the model runs")
    with contextlib.ExitStack() as stack:
        try:
            queue = stack.enter_context(sync.open_queue())
        except BusyError as busy:
            return _nothing(started, sync, str(busy))
        return _SyncRun(sync, ports, occasion, queue, source, started).go()


def _nothing(started: datetime, sync: Sync, message: str) -> RunSummary:
    return RunSummary(
        sync_id=sync.id,
        run_id=None,
        started_at=started,
        ended_at=started,
        version_from=None,
        version_to=None,
        grid=Grid(),
        queue=None,
        message=message,
    )


class _SyncRun:
    """The state of one run, from its begin to its end."""

    def __init__(
        self,
        sync: Sync,
        ports: Ports,
        occasion: Occasion,
        queue: Queue,
        source: SourceState,
        started: datetime,
    ) -> None:
        self._sync = sync
        self._ports = ports
        self._occasion = occasion
        self._queue = queue
        self._source = source
        self._started = started
        self._grid = Grid()
        self._samples: list[Sample] = []
        self._errors: dict[str, None] = {}  # in order, each once
        self._invalid: list[Sample] = []
        self._died = 0
        self._removals: Removals | None = None

    def go(self) -> RunSummary:
        recovered = cross_check(self._queue, self._sync, self._ports, self._source)
        self._close_crashed_runs()
        make_due(self._queue, self._ports.clock())
        self._from = self._queue.watermark
        if not self._has_work():
            self._look_at_removals()
            idle = self._held() or "nothing is new, and nothing is due"
            return self._summary(None, is_outage=False, message=idle)
        self._begin()
        try:
            self._enqueue(recovered)
            self._look_at_removals()
            delivery = self._deliver()
        except OndatraError as error:
            self._publisher.publish_all()
            self._errors.setdefault(str(error))
            self._end(self._summary(self._run_id, is_outage=False, message=str(error)), failed=True)
            raise
        self._publisher.publish_all()
        summary = self._summary(self._run_id, is_outage=delivery.is_outage, message=self._held())
        failed = any(verdict.severity is Severity.ERROR for verdict in judge(summary, self._sync.limits))
        self._end(summary, failed=failed)
        return summary

    def _has_work(self) -> bool:
        return (
            self._source.version > self._queue.watermark
            or self._source.invalid_version > self._queue.invalid_watermark
            or (look(self._queue.store, now=self._ports.clock()).can_send and self._may_send())
        )

    def _close_crashed_runs(self) -> None:
        """Publish what runs that were cut off had settled."""
        for run_id, about in publication.open_runs(self._queue).items():
            self._publisher_of(run_id).publish_all()
            self._ports.tracking.finish_run(self._sync.id, run_id, _load_metadata(about))
            publication.end_run(self._queue, run_id)

    def _publisher_of(self, run_id: str) -> Publisher:
        return Publisher(
            self._queue,
            self._ports.tracking,
            sync_id=self._sync.id,
            run_id=run_id,
            operation=self._sync.operation,
        )

    def _begin(self) -> None:
        newest = max((*self._ports.tracking.runs(self._sync.id), self._queue.meta("last_run") or ""))
        self._run_id = new_run_id(self._started, after=newest or None, random=self._ports.random)
        self._publisher = self._publisher_of(self._run_id)
        metadata = self._metadata()
        with self._queue.store.immediate():
            self._queue.set_meta("last_run", self._run_id)
            publication.begin_run(self._queue, self._run_id, _dump_metadata(metadata))
        self._ports.tracking.write_metadata(self._sync.id, self._run_id, metadata)
        self._ports.history.begin(self._past_run())

    def _enqueue(self, recovered: Recovered) -> None:
        take_in(self._queue, self._sync, self._ports, self._source, recovered)
        now = self._ports.clock()
        if self._source.invalid_version > self._queue.invalid_watermark:
            rows = self._ports.feed.invalid(self._queue.invalid_watermark, self._source.invalid_version)
            attempt = Attempt(run_id=self._run_id, started_at=now, ended_at=now, max_attempts=0)
            kept = keep_invalid(
                self._queue, self._seen_invalid(rows), attempt, upto=self._source.invalid_version
            )
            self._grid.add(Cell.INVALID, {"insert": kept})

    def _seen_invalid(self, rows: Iterable[InvalidRow]) -> Iterator[InvalidRow]:
        for row in rows:
            if len(self._invalid) < SAMPLES:
                self._invalid.append(Sample(row.key, ChangeType.INSERT, row.reason))
            yield row

    def _samples_set_aside(self) -> tuple[Sample, ...]:
        """New ones first, and beside them those that earlier runs have seen."""
        if not self._source.set_aside:
            return ()
        past = self._ports.history.runs(self._sync.id, limit=2)
        known = [sample for run in past for sample in invalid_of(run)]
        return tuple(dict.fromkeys([*self._invalid, *known]))[:SAMPLES]

    def _look_at_removals(self) -> None:
        self._removals = look_at_removals(
            self._queue,
            self._sync,
            self._source,
            self._ports.feed,
            is_allowed=self._occasion.allows_deletes,
        )

    def _may_send(self) -> bool:
        """Asked before each batch: somebody may hold the sync while it runs."""
        return self._ports.hold() is None

    def _held(self) -> str:
        """Why rows were left in the queue that might have gone."""
        hold = self._ports.hold()
        planned_now = told(planned(self._queue)) if hold else ""
        return f"{hold}: {planned_now} to go" if planned_now else hold or ""

    def _deliver(self) -> Delivery:
        self._grid.add(Cell.PLANNED, planned(self._queue))
        standing = look(self._queue.store, now=self._ports.clock())
        if not (standing.can_deliver or standing.can_finalize) or not self._may_send():
            return Delivery()
        if self._removals:
            if self._sync.limits.are_too_many(self._removals):
                return Delivery()
            let_through(self._queue)
        remember_contents(self._queue)
        course = Course.of(self._sync.config, run_id=self._run_id, journal=self._sync.journal)
        with self._ports.push() as push_rows:
            delivery = deliver(
                self._queue,
                push_rows,
                course,
                clock=self._ports.clock,
                on_settled=self._note,
                may_go_on=self._may_send,
                sleep=self._ports.sleep,
            )
            self._finalize(push_rows)
        return delivery

    def _finalize(self, push: Push) -> None:
        """Tell the API's side that all has come to its end, if it has."""
        if "finalize" not in self._sync.config.functions:
            forget_debt(self._queue)
            return
        is_due = look(self._queue.store, now=self._ports.clock()).can_finalize and self._may_send()
        problem = finalize(self._queue, push, journal=self._sync.journal) if is_due else None
        if problem:
            self._errors.setdefault(problem)

    def _note(self, _batch: Batch, settled: Settled) -> None:
        self._grid.add_settled(settled)
        self._died += settled.died
        for row in settled.rejects[: SAMPLES - len(self._samples)]:
            self._samples.append(Sample(row.key, row.change_type, row.message or ""))
        for error in sorted(settled.errors):
            self._errors.setdefault(error)
        self._publisher.note(settled.records, now=self._ports.clock())

    def _end(self, summary: RunSummary, *, failed: bool) -> None:
        metadata = dataclasses.replace(
            self._metadata(), version_to=summary.version_to, counts=summary.counts()
        )
        self._ports.tracking.finish_run(self._sync.id, self._run_id, metadata)
        frontier = frontier_of(
            self._queue, sync_id=self._sync.id, run_id=self._run_id, written_at=self._ports.now()
        )
        self._ports.tracking.write_frontier(frontier)
        past = dataclasses.replace(
            self._past_run(),
            ended_at=summary.ended_at,
            version_to=summary.version_to,
            counts=summary.to_json(),
            result=Result.FAILED if failed else Result.SUCCEEDED,
            first_errors=summary.errors,
        )
        self._ports.history.finish(past)
        publication.end_run(self._queue, self._run_id)

    def _summary(self, run_id: str | None, *, is_outage: bool, message: str = "") -> RunSummary:
        return RunSummary(
            sync_id=self._sync.id,
            run_id=run_id,
            started_at=self._started,
            ended_at=self._ports.now(),
            version_from=_version(self._from),
            version_to=_version(self._queue.watermark),
            grid=self._grid,
            queue=look(self._queue.store, now=self._ports.clock()),
            set_aside=self._source.set_aside,
            removals=self._removals,
            waiting=tuple(oldest(self._queue.store, limit=SAMPLES)),
            samples=tuple(self._samples),
            invalid=self._samples_set_aside(),
            errors=tuple(self._errors)[:ERRORS],
            died=self._died,
            is_outage=is_outage,
            message=message,
        )

    def _metadata(self) -> RunMetadata:
        return RunMetadata(
            source=self._sync.ends.source_endpoint,
            destination=self._sync.ends.destination_endpoint,
            started_at=self._started,
            columns=self._source.columns,
            dagster_run_id=self._occasion.dagster_run_id,
            version_from=_version(self._from),
            version_to=self._source.version,
            counts={},
        )

    def _past_run(self) -> PastRun:
        mode, reason = self._mode()
        return PastRun(
            sync_id=self._sync.id,
            run_id=self._run_id,
            model=self._sync.model.name,
            dagster_run_id=self._occasion.dagster_run_id,
            started_at=self._started,
            trigger=self._occasion.trigger,
            mode=mode,
            reason=reason,
            version_from=_version(self._from),
            version_to=self._source.version,
        )

    def _mode(self) -> tuple[Mode, str]:
        if self._from == NOTHING_ENQUEUED:
            return Mode.FULL, "the first run sends the whole table"
        if self._source.version > self._from:
            return Mode.INCREMENTAL, f"versions {self._from + 1} to {self._source.version} are new"
        return Mode.RETRY, "rows were waiting"


def _version(watermark: int) -> int | None:
    return None if watermark == NOTHING_ENQUEUED else watermark


def _dump_metadata(metadata: RunMetadata) -> str:
    return orjson.dumps(dataclasses.asdict(metadata), default=tuple).decode()


def _load_metadata(text: str) -> RunMetadata:
    fields = orjson.loads(text)
    return RunMetadata(
        **{
            **fields,
            "source": Endpoint(*fields["source"]),
            "destination": Endpoint(*fields["destination"]),
            "started_at": datetime.fromisoformat(fields["started_at"]).astimezone(UTC),
            "columns": tuple(Column(*column) for column in fields["columns"]),
        }
    )
