"""The run service, which plans, computes, writes, pushes and checks. Each process with a run has one.

The service doesn't use Dagster. It uses Spark through a protocol, and Spark starts when the first model or feed
needs it.
"""

import dataclasses
import logging
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from ondatra_dagster import interruption
from ondatra_dagster.app import push_and_check_sync
from ondatra_dagster.app.alert_service import ALERT_TASK, AlertService
from ondatra_dagster.app.compute_write_and_read_tables import RunTables
from ondatra_dagster.app.error_traces import store_trace
from ondatra_dagster.app.maintenance_task_list import build_maintenance_tasks
from ondatra_dagster.app.run_events import ModelResult, RunProgress, SyncResult
from ondatra_dagster.app.ui_urls import RecordLocations, page_url, run_path, sync_path
from ondatra_dagster.app.workspace import Workspace
from ondatra_dagster.collector.pending_events import delete_flushed_events
from ondatra_dagster.count_time_and_size_format import describe_invalid_events, describe_invalid_rows
from ondatra_dagster.deltalog.commit_user_metadata import CommitMetadata
from ondatra_dagster.errors import BusyError, ChecksFailedError, OndatraError
from ondatra_dagster.operations.alert_store import SubjectType
from ondatra_dagster.operations.maintenance_task_runner import TaskResult, run_tasks
from ondatra_dagster.planning.input_versions import format_table_version
from ondatra_dagster.planning.plan import ModelStep, plan_model
from ondatra_dagster.planning.unchanged_run_cache import UnchangedRun
from ondatra_dagster.project.model import Model
from ondatra_dagster.row_changes import format_key
from ondatra_dagster.sync.run_context import RunOptions
from ondatra_dagster.sync.sync_checks import Severity, SyncCheckResult
from ondatra_dagster.sync.sync_definition import Sync
from ondatra_dagster.warehouse.model_write_request import ModelWrite
from ondatra_dagster.warehouse.result_of_write_and_checks import (
    InvalidRowSample,
    ModelWriteResult,
    RowCheckResult,
    count_warnings,
)

log = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ComputedModel:
    """The result of a model's query, which the IO manager writes next."""

    step: ModelStep
    frame: Any
    run_id: str
    started_at: float


class RunService:
    """The run service of one project."""

    is_dry = False  # whether this is a dry run, which stores and sends nothing

    def __init__(self, workspace: Workspace, tables: RunTables, *, progress: RunProgress | None = None) -> None:
        self.workspace = workspace
        self.current_state = workspace  # plans read the tables, queues and events of this workspace
        self.tables = tables
        self.progress = progress or RunProgress()
        self.alerts = AlertService(workspace)
        self._write_summaries: dict[str, ModelWriteResult] = {}
        self._model_verdicts: dict[str, tuple[SyncCheckResult, ...]] = {}
        # by sync id: the check results of the sync in this run
        self._sync_verdicts: dict[str, tuple[SyncCheckResult, ...]] = {}

    def plan_model(self, model: Model, *, is_full: bool = False) -> ModelStep:
        """Return the model's step: whether the model must be computed, with the present versions of its inputs."""
        return plan_model(self.workspace.project, model, self.current_state.plan_inputs(), is_full=is_full)

    def report_unchanged(self, step: ModelStep) -> ModelResult:
        """Report and return the result of a model that doesn't have to be computed."""
        table = step.table
        if table is None:
            raise ValueError(f"{step.model.name} has no table to keep")
        # the check results from the run that wrote the table
        checks = (
            RowCheckResult(check=each, failed_rows=step.warning_counts.get(each.name, 0)) for each in step.model.checks
        )
        result = ModelResult(
            model=step.model,
            has_changes=False,
            reason=step.reason,
            run_type="skip",
            table_version=format_table_version(table),
            version=table.version,
            rows=table.commit_metadata.rows if table.commit_metadata else None,
            columns=table.columns,
            verdicts=self._store_verdicts(step.model, checks),
        )
        return self._report_model_result(result)

    @interruption.raise_on_signal()
    def compute(self, step: ModelStep, *, run_id: str) -> ComputedModel:
        """Return the model's query result, which isn't written yet."""
        started = time.monotonic()
        self.progress.on_model_start(step.model, self.tables.activity)
        frame = self.tables.compute(step.model, step.inputs, is_full=step.is_full)
        return ComputedModel(step=step, frame=frame, run_id=run_id, started_at=started)

    @interruption.raise_on_signal()
    def write(self, computed_model: ComputedModel) -> ModelResult:
        """Write the computed rows to the model's table; report and return the result."""
        step, model = computed_model.step, computed_model.step.model
        note = CommitMetadata(
            definition=model.definition, inputs=step.inputs, run_id=computed_model.run_id, checks=model.checks_digest
        )
        events = self.current_state.events(model)
        write = ModelWrite(
            model=model,
            frame=computed_model.frame,
            note=note,
            is_full=step.is_full,
            planned_version=format_table_version(step.table) if step.table else "",
            events=events,
        )
        try:
            written = self.tables.write(write)
        except ChecksFailedError as error:
            self._store_verdicts(model, error.findings)
            raise
        if events:
            self._delete_flushed_events(model)
        self._store_unchanged_run(model, written)
        self._write_summaries[model.id] = written
        return self._report_model_result(self._model_result(computed_model, written))

    def _report_model_result(self, result: ModelResult) -> ModelResult:
        self.progress.on_model_end(result)
        if not self.is_dry:
            self.alerts.on_model_end(result.model)
        return result

    def _delete_flushed_events(self, model: Model) -> None:
        """Delete the events that are in the table now, unless a collector deletes them."""
        delete_flushed_events(self.workspace.settings, model)

    def _store_unchanged_run(self, model: Model, write_result: ModelWriteResult) -> None:
        """Store that a run of the model changed nothing, because no commit shows such a run."""
        if write_result.has_changes:
            return
        unchanged = UnchangedRun(
            definition=model.definition,
            inputs=write_result.inputs,
            table_version=_table_version(write_result),
            checks=model.checks_digest,
            warned=count_warnings(write_result.findings),
            at=self.workspace.clock(),
        )
        self.workspace.unchanged_run_cache.store_run(model.id, unchanged)

    def _model_result(self, computed_model: ComputedModel, write_result: ModelWriteResult) -> ModelResult:
        step = computed_model.step
        return ModelResult(
            model=step.model,
            has_changes=write_result.has_changes,
            reason=step.reason,
            run_type="full" if step.is_full else "incremental" if step.table else "backfill",
            table_version=_table_version(write_result),
            version=write_result.version,
            rows=write_result.rows,
            columns=write_result.columns,
            inserted=write_result.inserted,
            updated=write_result.updated,
            deleted=write_result.deleted,
            invalid_rows=sum(write_result.invalid_counts.values()),
            verdicts=self._store_verdicts(step.model, write_result.findings),
            seconds=time.monotonic() - computed_model.started_at,
        )

    def model_verdicts(self, model: Model) -> Iterator[SyncCheckResult]:
        """Yield the check results of a model from this run, or from the newest run that wrote its table."""
        if model.kind.has_invalid_table:
            yield self._invalid_rows_verdict(model)
        yield from self.row_verdicts(model)

    def row_verdicts(self, model: Model) -> tuple[SyncCheckResult, ...]:
        """Return the results of @constraint, @warning and @audit; an empty tuple if no check ran."""
        return self._model_verdicts.get(model.id, ())

    def _store_verdicts(self, model: Model, findings: Iterable[RowCheckResult]) -> tuple[SyncCheckResult, ...]:
        self._model_verdicts[model.id] = tuple(map(judge_finding, findings))
        return self._model_verdicts[model.id]

    def _invalid_rows_verdict(self, model: Model) -> SyncCheckResult:
        written = self._write_summaries.get(model.id)
        if not model.kind.has_query:
            samples = written.invalid_samples if written else ()
            return judge_invalid_events(self.workspace.invalid_count(model.id), samples)
        if written:
            return judge_invalid_rows(written.invalid_counts, written.invalid_samples)
        return judge_invalid_rows({"invalid_rows": self.workspace.invalid_count(model.id)})

    @interruption.raise_on_signal()
    def push(self, sync: Sync, options: RunOptions) -> SyncResult:
        """Deliver the sync's rows as far as possible now, and return the result."""
        self.progress.on_sync_start(sync, lambda: push_and_check_sync.describe_pending(self.workspace, sync))
        result = push_and_check_sync.push_sync(
            self.workspace, sync, self.tables.feed(sync), options, notify=self._report_notice
        )
        self._sync_verdicts[sync.id] = result.verdicts
        self.progress.on_sync_end(result)
        self.alerts.on_sync_end(result)
        return result

    def finish_run(self) -> None:
        """Send alerts and, if Spark is running, append missing records to the sync log.

        A sync log that can't be written doesn't fail the run: the next run, or `ondatra maintain`, appends
        the missing records. After Ctrl-C, do nothing.
        """
        if interruption.received_signal():
            return
        self._finish_run()

    @interruption.raise_on_signal()
    def _finish_run(self) -> None:
        self.alerts.resolve_alerts()
        self.alerts.send()
        if not self.tables.is_open:
            return
        try:
            task_result = self.workspace.sync_log.append_missing(lambda: self.tables.sync_log(waits=False))
        except BusyError:
            return  # another run appends to the log; a later run appends the records that it hasn't seen
        except OndatraError as error:
            interruption.raise_if_interrupted()  # an interruption caused the error
            log.warning("the sync log was not updated: %s", error)
            return
        log.info("%s", task_result.message)

    def run_maintenance(self) -> Iterator[TaskResult]:
        """Run the maintenance tasks, and yield the result of each task when it has ended."""
        return run_tasks(
            {
                **build_maintenance_tasks(self.workspace, self.tables),
                ALERT_TASK: lambda: self.alerts.check_and_send(is_current=True),
            },
            lambda error: store_trace(error, self.workspace.settings.state),
        )

    def records_address(self, result: SyncResult) -> str | None:
        """Return the address of the records of a sync's run; None if there was no run."""
        run_id = result.summary.run_id
        return self.workspace.tracking.run_address(result.sync.id, run_id) if run_id else None

    def record_locations(self, result: SyncResult) -> RecordLocations:
        """Return the places of a sync run's records: their folder for programs, and their page for users."""
        sync_id, run_id = result.sync.id, result.summary.run_id
        path = run_path(sync_id, run_id) if run_id else sync_path(sync_id)
        return RecordLocations(self.records_address(result), page_url(self.workspace.settings.ui_port, path))

    def verdicts(self, sync: Sync) -> tuple[SyncCheckResult, ...]:
        """Return the sync's check results from this run; otherwise from its newest run and its current queue."""
        return self._sync_verdicts.get(sync.id) or push_and_check_sync.current_verdicts(self.workspace, sync)

    def _report_notice(self, message: str) -> None:
        log.info("%s", message)
        self.progress.on_notice(message)

    def report_error(self, name: str, error: Exception, *, subject_type: SubjectType | None = None) -> str:
        """Report a failure of a model or sync, and return it as a sentence.

        An unexpected error also leaves its trace in the log folder.
        """
        message = str(error) if isinstance(error, OndatraError) else store_trace(error, self.workspace.settings.state)
        self.progress.on_failure(name, message)
        if subject_type and not self.is_dry:
            self.alerts.on_failure(subject_type, name, message)
        return message


def _table_version(write_result: ModelWriteResult) -> str:
    return f"{write_result.table_id}@{write_result.version}"


def judge_finding(check_result: RowCheckResult) -> SyncCheckResult:
    """Return the verdict for one check of a model, from the rows that the check tested."""
    severity = (
        Severity.ERROR if check_result.blocks_write else Severity.WARN if check_result.failed_rows else Severity.PASS
    )
    rows = {} if check_result.rows is None else {"rows": check_result.rows}
    return SyncCheckResult(
        name=check_result.check.name,
        severity=severity,
        description=str(check_result),
        counts={"failed": check_result.failed_rows, **rows},
        samples=tuple(dict(row) for row in check_result.samples),
    )


def judge_invalid_events(total: int, samples: Sequence[InvalidRowSample] = ()) -> SyncCheckResult:
    """Return the verdict for events that no longer fit the table's columns."""
    message = describe_invalid_events(total) if total else "every event fits the columns"
    return _invalid_records_result("event", message, {"invalid_rows": total} if total else {}, samples)


def judge_invalid_rows(counts: Mapping[str, int], samples: Sequence[InvalidRowSample] = ()) -> SyncCheckResult:
    """Return the verdict for invalid rows, which a write kept out of the table."""
    total = sum(counts.values())
    message = describe_invalid_rows(total) if total else "every row has a unique key"
    return _invalid_records_result("key", message, dict(counts), samples)


def _invalid_records_result(
    key_label: str, message: str, counts: Mapping[str, int], samples: Sequence[InvalidRowSample]
) -> SyncCheckResult:
    return SyncCheckResult(
        name="invalid_records",
        severity=Severity.WARN if any(counts.values()) else Severity.PASS,
        description=message,
        counts=counts,
        samples=tuple({key_label: format_key(sample.key), "reason": sample.reason} for sample in samples),
    )
