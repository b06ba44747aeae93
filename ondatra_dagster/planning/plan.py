"""The plan of a run: which models and syncs run, and why. It is made from the project, Delta logs and queues.

This module needs no Spark and no Dagster. `ondatra run`, the assets, the sensors and `status` use the same plan.
"""

import dataclasses
import enum
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Protocol

from ondatra_dagster.count_time_and_size_format import format_count
from ondatra_dagster.deltalog.commit_user_metadata import CommitMetadata, newer_version_error
from ondatra_dagster.deltalog.log_reader import TableState
from ondatra_dagster.errors import SelectionError, StateError
from ondatra_dagster.planning.find_table_and_columns import TableStateLookup
from ondatra_dagster.planning.input_versions import (
    INPUT_NOT_FOUND,
    MODEL_NOT_BUILT,
    UNVERSIONED,
    format_table_version,
    list_changed_inputs,
    read_input_versions,
)
from ondatra_dagster.planning.unchanged_run_cache import UnchangedRun
from ondatra_dagster.project.model import FileInput, Model, ModelInput, ModelSink
from ondatra_dagster.project.project import Project

MAX_NAMED_INPUTS = 3  # the number of inputs that a reason names
VERSIONLESS_REASONS = {INPUT_NOT_FOUND: "isn't there", UNVERSIONED: "can't be shown to be unchanged"}
JOBS_DUE_REASON = "open jobs are to be polled"
NO_VERSION = -1  # the watermark or version if the queue or table doesn't exist yet


class WorkNeeded(enum.StrEnum):
    """The answer to whether a model or sync has work: no, maybe or certainly."""

    NO = "none"
    MAYBE = "maybe"  # an input of the model, or the model of the sync, runs first
    YES = "sure"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class PlanStep:
    """The part of a plan that is about one model or one sync."""

    model: Model
    work_needed: WorkNeeded
    reason: str

    @property
    def will_run(self) -> bool:
        return self.work_needed is not WorkNeeded.NO


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ModelStep(PlanStep):
    """The part of a plan that is about one model."""

    inputs: Mapping[str, str]  # name of an input → its current version
    table: TableState | None
    warning_counts: Mapping[str, int] = dataclasses.field(
        default_factory=dict
    )  # name of a @warning → rows that failed it in the last run
    is_full: bool = False  # whether a full refresh was requested


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class SyncStep(PlanStep):
    """The part of a plan that is about one sync."""

    sync_id: str
    reads_table: bool = False  # whether the table has versions that aren't in the queue yet


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The requested models and syncs in the order in which they run, also those without work."""

    models: tuple[ModelStep, ...]
    syncs: tuple[SyncStep, ...]

    @property
    def has_work(self) -> bool:
        return any(step.will_run for step in self.models) or any(step.will_run for step in self.syncs)

    @property
    def needs_tables(self) -> bool:
        """Return whether the plan computes rows or reads rows of a table."""
        return any(step.will_run for step in self.models) or any(step.reads_table for step in self.syncs)


class PlanQueueState(Protocol):
    """The part of a queue's state that the plan needs. delivery/queue/queue_status.py reads it."""

    @property
    def table_id(self) -> str | None: ...
    @property
    def watermark(self) -> int: ...
    @property
    def invalid_watermark(self) -> int: ...
    @property
    def pending_units(self) -> int: ...
    @property
    def due_units(self) -> int: ...
    @property
    def polls_due(self) -> int: ...
    @property
    def can_finalize(self) -> bool: ...
    @property
    def next_due_at(self) -> float | None: ...
    @property
    def can_send(self) -> bool: ...
    @property
    def is_paused(self) -> bool: ...


QueueStateLookup = Callable[[str], PlanQueueState | None]  # sync id → the state of its queue
HasEverRun = Callable[[str], bool]  # sync id → whether it has ever run
PendingEventCount = Callable[[str], int]  # model id → accepted events that aren't in its table yet
InvalidTableVersion = Callable[[str], int]  # model id → the current version of its table of invalid rows


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class PlanInputs:
    """The state that a plan is made from: lookup functions, and the cached runs that changed no table."""

    tables: TableStateLookup
    invalid_table_version: InvalidTableVersion
    queues: QueueStateLookup
    unchanged_runs: Mapping[str, UnchangedRun]  # by model id
    pending_event_count: PendingEventCount = lambda _: 0
    has_ever_run: HasEverRun = lambda _: False


def make_plan(
    project: Project, plan_inputs: PlanInputs, *, selection: Collection[str] | None = None, is_full: bool = False
) -> Plan:
    """Return the plan of a run of the whole project, or of the selected model ids and their syncs.

    A full refresh computes all of these models again.
    """
    selected_models = [model for model in project.models.values() if selection is None or model.id in selection]
    models: dict[str, ModelStep] = {}
    for model in selected_models:
        running_ids = {id_ for id_, step in models.items() if step.will_run}
        models[model.id] = plan_model(project, model, plan_inputs, running_ids=running_ids, is_full=is_full)
    syncs = [
        plan_sync(project, model, model.sink, plan_inputs, runs_first=models[model.id].will_run)
        for model in selected_models
        if model.sink
    ]
    return Plan(models=tuple(models.values()), syncs=tuple(syncs))


def plan_model(
    project: Project, model: Model, plan_inputs: PlanInputs, *, running_ids: Collection[str] = (), is_full: bool = False
) -> ModelStep:
    """Return the model's step: whether the model has to be computed if those in `running_ids` are computed first.

    Raise SelectionError if an input has no table and isn't computed first.
    """
    inputs = read_input_versions(model.inputs, project.settings, plan_inputs.tables)
    missing_ids = [name for name, version in inputs.items() if version == MODEL_NOT_BUILT and name not in running_ids]
    if missing_ids:
        names = _join_names([project.model(name).name for name in missing_ids])
        raise SelectionError(f"{model.name} needs {names} to be computed first; select +{model.name} to do that")
    table = plan_inputs.tables(model.id)
    if table and table.is_from_newer_version:
        raise newer_version_error(f"the table of {model.name}")
    last_run = find_last_run(table, plan_inputs.unchanged_runs.get(model.id)) if table else None
    refresh_reason = "a full refresh was requested" if is_full and table else None
    work_reason = (
        refresh_reason
        or next(_work_reasons(model, table, inputs, last_run), None)
        or _pending_events_reason(model, plan_inputs)
    )
    upstream_names = [
        project.model(input_.model).name
        for input_ in model.inputs
        if isinstance(input_, ModelInput) and input_.model in running_ids
    ]
    if work_reason:
        need, reason = WorkNeeded.YES, work_reason
    elif upstream_names:
        need, reason = WorkNeeded.MAYBE, f"{_join_names(upstream_names)} may change"
    else:
        need, reason = WorkNeeded.NO, "nothing it reads has changed"
    return ModelStep(
        model=model,
        work_needed=need,
        reason=reason,
        inputs=inputs,
        table=table,
        is_full=bool(refresh_reason),
        warning_counts=last_run.warned if last_run else {},
    )


def _pending_events_reason(model: Model, plan_inputs: PlanInputs) -> str | None:
    """Return the number of pending events as a reason to run; None if no event is pending."""
    event_count = 0 if model.kind.has_query else plan_inputs.pending_event_count(model.id)
    return f"{format_count(event_count, 'event')} {'waits' if event_count == 1 else 'wait'}" if event_count else None


def find_last_run(table: TableState, unchanged_run: UnchangedRun | None) -> CommitMetadata | UnchangedRun | None:
    """Return the metadata of the last run that wrote the table's current version, or found nothing new for it.

    Return None if another program wrote this version.
    """
    return (
        unchanged_run
        if unchanged_run and unchanged_run.table_version == format_table_version(table)
        else table.commit_metadata
    )


def _work_reasons(
    model: Model, table: TableState | None, inputs: Mapping[str, str], last: CommitMetadata | UnchangedRun | None
) -> Iterator[str]:
    """Yield the reasons why the model certainly has to be computed, the simplest reason first."""
    if table is None:
        yield "it has no table yet"
        return
    if not model.is_deterministic:
        yield "its query may give other rows each time"
    for version, description in VERSIONLESS_REASONS.items():
        if names := [name for name, input_version in inputs.items() if input_version == version]:
            yield f"{_format_inputs(model, names)} {description}"
    if last is None:
        yield "another program wrote its table last"
    else:
        yield from _difference_reasons(model, inputs, last)


def _difference_reasons(model: Model, inputs: Mapping[str, str], last: CommitMetadata | UnchangedRun) -> Iterator[str]:
    """Yield what has changed since the last run, each change as a reason."""
    if last.definition != model.definition:
        yield "its definition changed"
    if changed_inputs := list_changed_inputs(last.inputs, inputs):
        yield f"{_format_inputs(model, changed_inputs)} changed"
    if model.checks and last.checks != model.checks_digest:
        yield "its checks changed"


def plan_sync(
    project: Project, model: Model, sink: ModelSink, plan_inputs: PlanInputs, *, runs_first: bool = False
) -> SyncStep:
    """Return the sync's step: whether the sync has changes to enqueue or to send.

    `runs_first` says that the sync's model is computed before.
    """
    if project.settings.sinks == "off":
        return SyncStep(sync_id=sink.sync_id, model=model, work_needed=WorkNeeded.NO, reason="sinks are off")
    try:
        queue = plan_inputs.queues(sink.sync_id)
    except StateError as error:  # a run of only this sync fails with this error and reports it
        return SyncStep(sync_id=sink.sync_id, model=model, work_needed=WorkNeeded.YES, reason=str(error))
    change_reason = next(_table_change_reasons(model, sink, plan_inputs, queue), None)
    backlog = _backlog_reason(queue) if queue and queue.can_send else None
    pause_reason = _pause_reason(project, queue)
    if work_reason := change_reason or (_due_jobs_reason(project, queue) if pause_reason else backlog):
        need, reason = WorkNeeded.YES, work_reason
    elif runs_first:
        need, reason = WorkNeeded.MAYBE, f"{model.name} may change"
    else:
        need = WorkNeeded.NO
        reason = (
            f"{pause_reason}: {backlog or 'nothing waits'}" if pause_reason else "nothing is new, and nothing is due"
        )
    return SyncStep(
        sync_id=sink.sync_id, model=model, work_needed=need, reason=reason, reads_table=change_reason is not None
    )


def _pause_reason(project: Project, queue: PlanQueueState | None) -> str | None:
    """Return why rows are only enqueued and not sent; None if they are sent."""
    if project.settings.sinks == "dry":
        return "sinks are dry"
    return "it is paused" if queue and queue.is_paused else None


def _due_jobs_reason(project: Project, queue: PlanQueueState | None) -> str | None:
    """Return a reason if jobs are due although the sync is paused.

    With dry sinks there is no such reason, because no requests are made.
    """
    return JOBS_DUE_REASON if queue and queue.polls_due and project.settings.sinks == "on" else None


def _table_change_reasons(
    model: Model, sink: ModelSink, plan_inputs: PlanInputs, queue: PlanQueueState | None
) -> Iterator[str]:
    """Yield the changes of the model's tables that aren't in the queue yet, each as a reason."""
    table = plan_inputs.tables(model.id)
    if table is None:
        return
    if queue is None or queue.table_id is None:
        yield "it has no queue any more" if plan_inputs.has_ever_run(sink.sync_id) else "it has never run"
        return
    if queue.table_id != table.table_id:
        yield f"{model.name} has another table now"
    if table.version > queue.watermark:
        yield f"{_format_versions(queue.watermark, table.version)} of {model.name}"
    if plan_inputs.invalid_table_version(model.id) > queue.invalid_watermark:
        yield f"rows of {model.name} are newly invalid"


def _format_versions(watermark: int, version: int) -> str:
    if watermark == NO_VERSION:
        return f"version {version}"
    return f"version {version}" if version == watermark + 1 else f"versions {watermark + 1} to {version}"


def _backlog_reason(queue: PlanQueueState) -> str:
    parts = [
        f"{count} {word}" for count, word in ((queue.pending_units, "pending"), (queue.due_units, "due again")) if count
    ]
    if parts:
        return " and ".join(parts) + " in the queue"
    if queue.polls_due:
        return JOBS_DUE_REASON
    return "finalize() is still to be called" if queue.can_finalize else "an earlier run left records to publish"


def _format_inputs(model: Model, names: Collection[str]) -> str:
    """Return the names of inputs as the user knows them. A file's name is its path without options."""
    input_names = [
        input_.path if isinstance(input_, FileInput) else input_.name for input_ in model.inputs if input_.name in names
    ]
    return _join_names(list(dict.fromkeys(input_names)))


def _join_names(names: list[str]) -> str:
    hidden_count = len(names) - MAX_NAMED_INPUTS
    shown_names = names if hidden_count <= 0 else [*names[:MAX_NAMED_INPUTS], f"{hidden_count} more"]
    return shown_names[0] if len(shown_names) == 1 else f"{', '.join(shown_names[:-1])} and {shown_names[-1]}"
