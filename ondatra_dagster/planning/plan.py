"""What a run has to do, and why: from the project, the tables' logs and the queues. No Spark, no Dagster.

`ondatra run`, the assets, the sensors and `status` all ask this plan, so they can't disagree.
"""

import dataclasses
import enum
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Protocol

from ondatra_dagster.errors import SelectionError, StateError
from ondatra_dagster.planning.commit_note import CommitNote, newer
from ondatra_dagster.planning.delta_log import TableState
from ondatra_dagster.planning.noop_cache import Unchanged
from ondatra_dagster.planning.versions import (
    MISSING,
    NOT_THERE,
    UNVERSIONED,
    Tables,
    changed_inputs,
    input_versions,
    table_version,
)
from ondatra_dagster.project.model import FileInput, Model, ModelInput, SinkUse
from ondatra_dagster.project.project import Project
from ondatra_dagster.wording import count

NAMED = 3  # inputs that a reason names
WITHOUT_VERSION = {NOT_THERE: "isn't there", UNVERSIONED: "can't be told to be unchanged"}
JOBS_DUE = "open jobs are to be asked about"
NEVER = -1  # the watermark of a queue, or the version of a table, that isn't there yet


class Need(enum.StrEnum):
    """Whether there is work."""

    NONE = "none"
    MAYBE = "maybe"  # something that it is made from runs first
    SURE = "sure"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ModelStep:
    """One model's part of a plan."""

    model: Model
    need: Need
    reason: str
    inputs: Mapping[str, str]  # name → version, as they are now
    table: TableState | None
    warned: Mapping[str, int] = dataclasses.field(default_factory=dict)  # @warning → rows, at the last run
    is_full: bool = False  # a full refresh was asked for

    @property
    def will_run(self) -> bool:
        return self.need is not Need.NONE


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class SyncStep:
    """One sync's part of a plan."""

    sync_id: str
    model: Model
    need: Need
    reason: str
    reads_table: bool = False  # there are versions that it hasn't looked at

    @property
    def will_run(self) -> bool:
        return self.need is not Need.NONE


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Every model and sync that was asked for, in order, with and without work."""

    models: tuple[ModelStep, ...]
    syncs: tuple[SyncStep, ...]

    @property
    def has_work(self) -> bool:
        return any(step.will_run for step in self.models) or any(step.will_run for step in self.syncs)

    @property
    def needs_tables(self) -> bool:
        """Whether rows are to be computed or read."""
        return any(step.will_run for step in self.models) or any(step.reads_table for step in self.syncs)


class QueueState(Protocol):
    """What the plan asks of a queue; delivery.queue.states fills it."""

    @property
    def table_id(self) -> str | None: ...
    @property
    def watermark(self) -> int: ...
    @property
    def invalid_watermark(self) -> int: ...
    @property
    def pending(self) -> int: ...
    @property
    def due(self) -> int: ...
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


QueueStates = Callable[[str], QueueState | None]  # sync id → its queue
HasBegun = Callable[[str], bool]  # sync id → whether it has ever run
EventsWaiting = Callable[[str], int]  # model id → events that were taken and aren't in its table
InvalidVersions = Callable[[str], int]  # model id → the version of the table of rows that were set aside


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """The state of the world that a plan is made from, each part through a port."""

    tables: Tables
    invalid_versions: InvalidVersions
    queues: QueueStates
    unchanged: Mapping[str, Unchanged]  # by model id
    events_waiting: EventsWaiting = lambda _: 0
    has_begun: HasBegun = lambda _: False


def make_plan(
    project: Project, look: Look, *, selection: Collection[str] | None = None, is_full: bool = False
) -> Plan:
    """What a run of the project, or of the selected model ids and their syncs, has to do.

    A full refresh computes all of them anew.
    """
    chosen = [model for model in project.models.values() if selection is None or model.id in selection]
    models: dict[str, ModelStep] = {}
    for model in chosen:
        running = {id_ for id_, step in models.items() if step.will_run}
        models[model.id] = plan_model(project, model, look, running=running, is_full=is_full)
    syncs = [
        plan_sync(project, model, model.sink, look, runs_first=models[model.id].will_run)
        for model in chosen
        if model.sink
    ]
    return Plan(models=tuple(models.values()), syncs=tuple(syncs))


def plan_model(
    project: Project, model: Model, look: Look, *, running: Collection[str] = (), is_full: bool = False
) -> ModelStep:
    """Whether the model has to be computed, when those of `running` are computed before it."""
    inputs = input_versions(model.inputs, project.settings, look.tables)
    absent = [name for name, version in inputs.items() if version == MISSING and name not in running]
    if absent:
        names = _named([project.model(name).name for name in absent])
        raise SelectionError(
            f"{model.name} needs {names} to be made before it; select +{model.name} to do that"
        )
    table = look.tables(model.id)
    if table and table.is_newer:
        raise newer(f"the table of {model.name}")
    last = last_run(table, look.unchanged.get(model.id)) if table else None
    asked = "a full refresh was asked for" if is_full and table else None
    sure = asked or next(_reasons(model, table, inputs, last), None) or _waiting(model, look)
    first = [
        project.model(read.model).name
        for read in model.inputs
        if isinstance(read, ModelInput) and read.model in running
    ]
    if sure:
        need, reason = Need.SURE, sure
    elif first:
        need, reason = Need.MAYBE, f"{_named(first)} may change"
    else:
        need, reason = Need.NONE, "nothing it reads has changed"
    return ModelStep(
        model=model,
        need=need,
        reason=reason,
        inputs=inputs,
        table=table,
        is_full=bool(asked),
        warned=last.warned if last else {},
    )


def _waiting(model: Model, look: Look) -> str | None:
    """The events that a run would take."""
    waiting = 0 if model.kind.has_query else look.events_waiting(model.id)
    return f"{count(waiting, 'event')} {'waits' if waiting == 1 else 'wait'}" if waiting else None


def last_run(table: TableState, unchanged: Unchanged | None) -> CommitNote | Unchanged | None:
    """What is known of the run that made the table what it is, or found it so; None of another hand's."""
    return unchanged if unchanged and unchanged.table_version == table_version(table) else table.note


def _reasons(
    model: Model,
    table: TableState | None,
    inputs: Mapping[str, str],
    last: CommitNote | Unchanged | None,
) -> Iterator[str]:
    """Why the model surely has to be computed, the plainest reason first."""
    if table is None:
        yield "it has no table yet"
        return
    if not model.is_deterministic:
        yield "its query may give other rows each time"
    yield from _without_version(model, inputs)
    if last is None:
        yield "its table was last written by another hand"
    else:
        yield from _differences(model, inputs, last)


def _differences(model: Model, inputs: Mapping[str, str], last: CommitNote | Unchanged) -> Iterator[str]:
    """What is not as it was in the last run."""
    if last.definition != model.definition:
        yield "its definition changed"
    if changed := changed_inputs(last.inputs, inputs):
        yield f"{_told(model, changed)} changed"
    if model.checks and last.checks != model.checks_digest:
        yield "its checks changed"


def _without_version(model: Model, inputs: Mapping[str, str]) -> Iterator[str]:
    for state, told in WITHOUT_VERSION.items():
        if names := [name for name, version in inputs.items() if version == state]:
            yield f"{_told(model, names)} {told}"


def plan_sync(
    project: Project, model: Model, sink: SinkUse, look: Look, *, runs_first: bool = False
) -> SyncStep:
    """Whether the sync has something to enqueue or to send, when its model is computed before it or not."""
    if project.settings.sinks == "off":
        return SyncStep(sync_id=sink.sync_id, model=model, need=Need.NONE, reason="sinks are off")
    try:
        queue = look.queues(sink.sync_id)
    except StateError as error:  # a run of just this sync fails for it, and says so
        return SyncStep(sync_id=sink.sync_id, model=model, need=Need.SURE, reason=str(error))
    news = next(_news(model, sink, look, queue), None)
    backlog = _backlog(queue) if queue and queue.can_send else None
    held = _held(project, queue)
    if sure := news or (_jobs_due(project, queue) if held else backlog):
        need, reason = Need.SURE, sure
    elif runs_first:
        need, reason = Need.MAYBE, f"{model.name} may change"
    else:
        need = Need.NONE
        reason = f"{held}: {backlog or 'nothing waits'}" if held else "nothing is new, and nothing is due"
    return SyncStep(sync_id=sink.sync_id, model=model, need=need, reason=reason, reads_table=news is not None)


def _held(project: Project, queue: QueueState | None) -> str | None:
    """Why rows are taken into the queue, and none is sent."""
    if project.settings.sinks == "dry":
        return "sinks are dry"
    return "it is paused" if queue and queue.is_paused else None


def _jobs_due(project: Project, queue: QueueState | None) -> str | None:
    """What a held sync has to do all the same: a dry one makes no request at all."""
    return JOBS_DUE if queue and queue.polls_due and project.settings.sinks == "on" else None


def _news(model: Model, sink: SinkUse, look: Look, queue: QueueState | None) -> Iterator[str]:
    """What the model's tables have that the queue hasn't looked at."""
    table = look.tables(model.id)
    if table is None:
        return
    if queue is None or queue.table_id is None:
        yield "it has no queue any more" if look.has_begun(sink.sync_id) else "it has never run"
        return
    if queue.table_id != table.table_id:
        yield f"{model.name} has another table now"
    if table.version > queue.watermark:
        yield f"{_versions(queue.watermark, table.version)} of {model.name}"
    if look.invalid_versions(model.id) > queue.invalid_watermark:
        yield f"rows of {model.name} are newly invalid"


def _versions(watermark: int, version: int) -> str:
    if watermark == NEVER:
        return f"version {version}"
    return f"version {version}" if version == watermark + 1 else f"versions {watermark + 1} to {version}"


def _backlog(queue: QueueState) -> str:
    parts = [
        f"{count} {word}" for count, word in ((queue.pending, "pending"), (queue.due, "due again")) if count
    ]
    if parts:
        return " and ".join(parts) + " in the queue"
    if queue.polls_due:
        return JOBS_DUE
    return "finalize() is owed" if queue.can_finalize else "an earlier run left records to publish"


def _told(model: Model, names: Collection[str]) -> str:
    """Inputs as a person knows them: a file by its path, whatever its options."""
    told = [
        read.path if isinstance(read, FileInput) else read.name for read in model.inputs if read.name in names
    ]
    return _named(list(dict.fromkeys(told)))


def _named(names: list[str]) -> str:
    more = len(names) - NAMED
    shown = names if more <= 0 else [*names[:NAMED], f"{more} more"]
    return shown[0] if len(shown) == 1 else f"{', '.join(shown[:-1])} and {shown[-1]}"
