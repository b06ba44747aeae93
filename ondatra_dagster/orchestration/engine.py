"""What the doors of a run call: plan, compute, write, push, judge. One for each process that runs something.

No Dagster here, and Spark behind a port: it starts when the first model or feed asks for it, not before.
"""

import dataclasses
import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol

from ondatra_dagster import interruption
from ondatra_dagster.arrivals import WaitingEvents
from ondatra_dagster.changes import Column, identifier
from ondatra_dagster.collector.waiting import forget_flushed
from ondatra_dagster.errors import BusyError, ChecksFailedError, OndatraError
from ondatra_dagster.operations.alert_book import SubjectType
from ondatra_dagster.operations.fact_tables import refresh_fact_tables
from ondatra_dagster.operations.maintain import Done, Duty, maintain
from ondatra_dagster.operations.sync_log import LogTable
from ondatra_dagster.operations.tables import Maintained, UpkeepTable
from ondatra_dagster.orchestration import sync_runs
from ondatra_dagster.orchestration.alerting import ALERTS, Alerts
from ondatra_dagster.orchestration.maintenance import duties
from ondatra_dagster.orchestration.progress import ModelResult, Progress, Silence, SyncResult
from ondatra_dagster.orchestration.records_page import RecordsPlaces, page_address, run_path, sync_path
from ondatra_dagster.orchestration.traces import keep_trace
from ondatra_dagster.orchestration.workspace import Workspace
from ondatra_dagster.planning.commit_note import CommitNote
from ondatra_dagster.planning.noop_cache import Unchanged
from ondatra_dagster.planning.plan import ModelStep, plan_model
from ondatra_dagster.planning.versions import table_version
from ondatra_dagster.project.finding import Finding, warned
from ondatra_dagster.project.model import Model
from ondatra_dagster.sync.ports import Feed
from ondatra_dagster.sync.start import Occasion
from ondatra_dagster.sync.sync import Sync
from ondatra_dagster.sync.verdicts import CheckVerdict, Severity
from ondatra_dagster.wording import misfits_set_aside, set_aside

log = logging.getLogger(__name__)


class InvalidSample(Protocol):
    """A row that was set aside."""

    @property
    def key(self) -> tuple[str | None, ...]: ...
    @property
    def reason(self) -> str: ...


class Written(Protocol):
    """What the warehouse says of a write."""

    @property
    def changed(self) -> bool: ...
    @property
    def version(self) -> int: ...
    @property
    def table_id(self) -> str: ...
    @property
    def rows(self) -> int | None: ...
    @property
    def inputs(self) -> Mapping[str, str]: ...  # the versions that were read
    @property
    def columns(self) -> tuple[Column, ...]: ...
    @property
    def invalid(self) -> Mapping[str, int]: ...  # rows that were set aside, by reason
    @property
    def invalid_samples(self) -> Sequence[InvalidSample]: ...
    @property
    def findings(self) -> Sequence[Finding]: ...  # of the model's checks, each
    @property
    def inserted(self) -> int: ...
    @property
    def updated(self) -> int: ...
    @property
    def deleted(self) -> int: ...


class Tables(Protocol):
    """The warehouse, as far as a run asks for it."""

    def compute(self, model: Model, versions: Mapping[str, str], *, is_full: bool = False) -> Any:
        """What the model's query gives from its inputs at these versions: a DataFrame."""

    def write(
        self,
        model: Model,
        frame: Any,
        note: CommitNote,
        *,
        is_full: bool = False,
        planned: str | None = None,
        events: WaitingEvents | None = None,
    ) -> Written:
        """Bring the model's table to the frame, or the events to the table.

        Raises ChecksFailedError when rows fail the model's checks.
        """

    def feed(self, sync: Sync) -> Feed: ...
    def sync_log(self, *, waits: bool = True) -> LogTable:
        """The table of what was sent, for which one may have to wait."""

    def upkeep(self, table: Maintained) -> UpkeepTable:
        """A table, to be put in order."""

    @property
    def is_open(self) -> bool:
        """Whether Spark is up, so that nothing has to be started."""

    def start_early(self, models: Iterable[Model]) -> None: ...
    def activity(self) -> str:
        """What is being done just now; "" where nobody knows."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Computed:
    """A model's result on its way to its IO manager."""

    step: ModelStep
    frame: Any
    run_id: str
    started: float


class Engine:
    """A project at work."""

    is_dry = False  # whether all is as in a run, and nothing stays or is sent

    def __init__(
        self,
        workspace: Workspace,
        tables: Tables,
        *,
        progress: Progress | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.workspace = workspace
        self.tables = tables
        self._progress = progress or Silence()
        self.alerts = Alerts(workspace)
        self._clock = clock
        self._written: dict[str, Written] = {}
        self._verdicts: dict[str, tuple[CheckVerdict, ...]] = {}
        self._pushed: dict[str, tuple[CheckVerdict, ...]] = {}  # by sync, what its turn was judged

    def start_early(self, models: Iterable[Model]) -> None:
        """Let what takes long to start come up, fit for these models, while something else is being done."""
        self.tables.start_early(models)

    def plan_model(self, model: Model, *, is_full: bool = False) -> ModelStep:
        """Whether the model has to be computed now, when all that it reads has had its turn."""
        return plan_model(self.workspace.project, model, self.workspace.look(), is_full=is_full)

    def keep(self, step: ModelStep) -> ModelResult:
        """End a model's turn in which there was nothing to do."""
        table = step.table
        if table is None:
            raise ValueError(f"{step.model.name} has no table to keep")
        result = ModelResult(
            model=step.model,
            changed=False,
            reason=step.reason,
            run_type="skip",
            table_version=table_version(table),
            version=table.version,
            rows=table.note.rows if table.note else None,
            columns=table.columns,
            verdicts=self._judged(step.model, _standing(step)),
        )
        return self._model_ended(result)

    @interruption.interruptible()
    def compute(self, step: ModelStep, *, run_id: str) -> Computed:
        """The rows that the model's query gives now."""
        started = self._clock()
        self._progress.model_began(step.model, self.tables.activity)
        frame = self.tables.compute(step.model, step.inputs, is_full=step.is_full)
        return Computed(step=step, frame=frame, run_id=run_id, started=started)

    @interruption.interruptible()
    def write(self, computed: Computed) -> ModelResult:
        """Bring the model's table to what was computed, and end its turn."""
        step, model = computed.step, computed.step.model
        note = CommitNote(
            definition=model.definition,
            inputs=step.inputs,
            run_id=computed.run_id,
            checks=model.checks_digest,
        )
        planned = table_version(step.table) if step.table else ""
        events = self._events(model)
        try:
            written = self.tables.write(
                model, computed.frame, note, is_full=step.is_full, planned=planned, events=events
            )
        except ChecksFailedError as error:
            self._judged(model, error.findings)
            raise
        if events:
            self._forget_events(model)
        self._remember_no_change(model, written)
        self._written[model.id] = written
        return self._model_ended(self._result(computed, written))

    def _model_ended(self, result: ModelResult) -> ModelResult:
        self._progress.model_ended(result)
        if not self.is_dry:
            self.alerts.model_ended(result.model)
        return result

    def _events(self, model: Model) -> WaitingEvents | None:
        return self.workspace.events(model)

    def _forget_events(self, model: Model) -> None:
        """Drop what is in the table, where no collector does that."""
        forget_flushed(self.workspace.settings, model)

    def _remember_no_change(self, model: Model, written: Written) -> None:
        """A run that wrote nothing leaves no commit that would say so."""
        if written.changed:
            return
        unchanged = Unchanged(
            definition=model.definition,
            inputs=written.inputs,
            table_version=_version_of(written),
            checks=model.checks_digest,
            warned=warned(written.findings),
            at=self.workspace.clock(),
        )
        self.workspace.noop_cache.remember(model.id, unchanged)

    def _result(self, computed: Computed, written: Written) -> ModelResult:
        step = computed.step
        return ModelResult(
            model=step.model,
            changed=written.changed,
            reason=step.reason,
            run_type="full" if step.is_full else "incremental" if step.table else "backfill",
            table_version=_version_of(written),
            version=written.version,
            rows=written.rows,
            columns=written.columns,
            inserted=written.inserted,
            updated=written.updated,
            deleted=written.deleted,
            set_aside=sum(written.invalid.values()),
            verdicts=self._judged(step.model, written.findings),
            seconds=self._clock() - computed.started,
        )

    def model_verdicts(self, model: Model) -> Iterator[CheckVerdict]:
        """What a model's checks say: of this run, or of the newest that wrote."""
        if model.kind.sets_aside:
            yield self._invalid_rows(model)
        yield from self.row_verdicts(model)

    def row_verdicts(self, model: Model) -> tuple[CheckVerdict, ...]:
        """What its @constraint, @warning and @audit say; nothing of those that nobody came to judge."""
        return self._verdicts.get(model.id, ())

    def _judged(self, model: Model, findings: Iterable[Finding]) -> tuple[CheckVerdict, ...]:
        self._verdicts[model.id] = tuple(map(finding_verdict, findings))
        return self._verdicts[model.id]

    def _invalid_rows(self, model: Model) -> CheckVerdict:
        written = self._written.get(model.id)
        if not model.kind.has_query:
            samples = written.invalid_samples if written else ()
            return misfit_verdict(self.workspace.invalid_count(model.id), samples)
        if written:
            return invalid_verdict(written.invalid, written.invalid_samples)
        return invalid_verdict({"set_aside": self.workspace.invalid_count(model.id)})

    @interruption.interruptible()
    def push(self, sync: Sync, occasion: Occasion) -> SyncResult:
        """Bring the sync's destination as far as it goes now."""
        self._progress.sync_began(sync, lambda: sync_runs.activity(self.workspace, sync))
        result = sync_runs.push(self.workspace, sync, self.tables.feed(sync), occasion, notify=self._notice)
        self._pushed[sync.id] = result.verdicts
        self._progress.sync_ended(result)
        self.alerts.sync_ended(result)
        return result

    def end(self) -> None:
        """End a run: alerts are sent; with Spark up, the sync log gets the records that it lacks.

        A run is none the worse for a log that can't be written: the next one, or `maintain`, appends what is
        missing. After Ctrl-C nothing is begun any more.
        """
        if interruption.received():
            return
        self._end()

    @interruption.interruptible()
    def _end(self) -> None:
        self.alerts.settle()
        self.alerts.send()
        if not self.tables.is_open:
            return
        try:
            done = self.workspace.sync_log.bring_up(lambda: self.tables.sync_log(waits=False))
        except BusyError:
            return  # another run is at it, and it may not have seen what is new
        except OndatraError as error:
            interruption.check()  # the log isn't at fault
            log.warning("the sync log is left as it is: %s", error)
            return
        log.info("%s", done.did)

    def maintain(self) -> Iterator[Done]:
        """Do what has to be done from time to time, and tell of each duty when it has ended."""
        return maintain(
            [
                *duties(self.workspace, self.tables),
                Duty(name=ALERTS, do=lambda: self.alerts.look(is_current=True)),
            ],
            lambda error: keep_trace(error, self.workspace.settings.state),
        )

    def refresh_fact_tables(self) -> Done:
        return refresh_fact_tables(self.workspace.tracking, self.workspace.syncs.values())

    def records_address(self, result: SyncResult) -> str | None:
        """Where the records of a sync's run are; None when it left none."""
        run_id = result.summary.run_id
        return self.workspace.tracking.run_address(result.sync.id, run_id) if run_id else None

    def records_places(self, result: SyncResult) -> RecordsPlaces:
        """Where the records of a sync's run are, for programs and for people."""
        sync_id, run_id = result.sync.id, result.summary.run_id
        path = run_path(sync_id, run_id) if run_id else sync_path(sync_id)
        return RecordsPlaces(
            self.records_address(result), page_address(self.workspace.settings.ui_port, path)
        )

    def verdicts(self, sync: Sync) -> tuple[CheckVerdict, ...]:
        """What the sync's checks say: of its turn in this run, else of its newest one and its queue now."""
        return self._pushed.get(sync.id) or sync_runs.standing_verdicts(self.workspace, sync)

    def _notice(self, message: str) -> None:
        log.info("%s", message)
        self._progress.notice(message)

    def waits(self, message: str) -> None:
        """Tell that nothing goes on for now, and why."""
        self._progress.waits(message)

    def explain(self, name: str, error: Exception, *, of: SubjectType | None = None) -> str:
        """A failure as a sentence; one that nobody foresaw leaves its trace in the log folder."""
        message = (
            str(error)
            if isinstance(error, OndatraError)
            else keep_trace(error, self.workspace.settings.state)
        )
        self._progress.failed(name, message)
        if of and not self.is_dry:
            self.alerts.failed(of, name, message)
        return message


def _version_of(written: Written) -> str:
    return f"{written.table_id}@{written.version}"


def _standing(step: ModelStep) -> tuple[Finding, ...]:
    """What the checks of a table that stays as it is found when it became so."""
    return tuple(Finding(check=check, failed=step.warned.get(check.name, 0)) for check in step.model.checks)


def finding_verdict(finding: Finding) -> CheckVerdict:
    """The verdict on rows that a check of the model's looked at."""
    severity = Severity.ERROR if finding.refuses else Severity.WARN if finding.failed else Severity.PASS
    rows = {} if finding.rows is None else {"rows": finding.rows}
    return CheckVerdict(
        check=finding.check.name,
        severity=severity,
        description=str(finding),
        counts={"failed": finding.failed, **rows},
        samples=tuple(dict(row) for row in finding.samples),
    )


def misfit_verdict(total: int, samples: Sequence[InvalidSample] = ()) -> CheckVerdict:
    """The verdict on events that were taken and then had no place in the table's columns."""
    return CheckVerdict(
        check="invalid_records",
        severity=Severity.WARN if total else Severity.PASS,
        description=misfits_set_aside(total) if total else "every event fits the columns",
        counts={"set_aside": total} if total else {},
        samples=tuple({"event": identifier(sample.key), "reason": sample.reason} for sample in samples),
    )


def invalid_verdict(counts: Mapping[str, int], samples: Sequence[InvalidSample] = ()) -> CheckVerdict:
    """The verdict on rows that were set aside before a write."""
    total = sum(counts.values())
    return CheckVerdict(
        check="invalid_records",
        severity=Severity.WARN if total else Severity.PASS,
        description=set_aside(total) if total else "every row has a key of its own",
        counts=dict(counts),
        samples=tuple({"key": identifier(sample.key), "reason": sample.reason} for sample in samples),
    )
