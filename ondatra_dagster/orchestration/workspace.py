"""A project with its syncs, as every door finds it: commands, assets, sensors. No Dagster, no Spark.

Loading reads the user's files and nothing else. What a run does with it belongs to engine.
"""

import dataclasses
import functools
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from ondatra_dagster.collector.event_file import Waiting, event_path, events_in_file
from ondatra_dagster.collector.waiting import ModelEvents
from ondatra_dagster.delivery.push.library_check import LibraryCheck, check_library, check_use
from ondatra_dagster.delivery.queue.states import QueueState, file_of, lock_of, queue_state
from ondatra_dagster.errors import BadSettingsError, Problem, ProjectError, StateError
from ondatra_dagster.operations.sync_log import SyncLog
from ondatra_dagster.planning.delta_log import TableState, invalid_path, read_table_state, table_path
from ondatra_dagster.planning.known_columns import known_columns
from ondatra_dagster.planning.noop_cache import NoopCache
from ondatra_dagster.planning.plan import NEVER, Look, Plan, SyncStep, make_plan, plan_sync
from ondatra_dagster.planning.versions import table_version, tables_of
from ondatra_dagster.planning.wrong_columns import settled_tables, wrong_columns
from ondatra_dagster.project.lineage import Lineage
from ondatra_dagster.project.load import Reading, read_project
from ondatra_dagster.project.model import Model
from ondatra_dagster.project.project import Project
from ondatra_dagster.project.settings.addresses import Address
from ondatra_dagster.project.settings.setting_places import place_of
from ondatra_dagster.project.settings.settings import Settings, read_settings
from ondatra_dagster.project.settings.unknown_variables import unknown_variables
from ondatra_dagster.store.lock import is_held
from ondatra_dagster.store.state_id import take_state_id
from ondatra_dagster.sync.sync import Sync
from ondatra_dagster.tracking.history import History
from ondatra_dagster.tracking.store import TrackingStore


class QueueSeen(NamedTuple):
    """How a sync's queue stands, as far as it is there and can be read."""

    state: QueueState | None  # None: it never ran, or nobody knows
    unread: str | None = None  # why nobody does, and what to do
    lost: str | None = None  # the sync has run, and its queue is gone: what the next run makes of that

    @property
    def why_unknown(self) -> str | None:
        """Why nobody knows what waits and what is dead; None when that is known."""
        return self.unread or self.lost

    @property
    def is_forgotten(self) -> bool:
        return self.state is not None and self.state.is_forgotten


class SyncWork(NamedTuple):
    """Whether a sync has something to do."""

    is_there: bool
    reason: str
    name: str  # the same while the work is the same
    is_new: bool  # the table has versions that nobody has looked at


@dataclasses.dataclass(frozen=True, kw_only=True)
class Workspace:
    """One project, read whole and without a problem."""

    project: Project
    syncs: Mapping[str, Sync]  # by sync id, in the order of their models
    warnings: tuple[Problem, ...] = ()
    clock: Callable[[], float] = time.time

    @property
    def settings(self) -> Settings:
        return self.project.settings

    def sync(self, name: str) -> Sync:
        """The sync of that id, or of the model of that name; raises SelectionError."""
        sink = self.project.sync(name).sink
        return self.syncs[sink.sync_id if sink else name]

    @functools.cached_property
    def history(self) -> History:
        state = self.settings.state
        return History(
            state / "history.sqlite",
            is_at_work=lambda sync_id: is_held(lock_of(file_of(state, sync_id))),
        )

    @functools.cached_property
    def tracking(self) -> TrackingStore:
        settings = self.settings
        return TrackingStore(
            Address(settings.tracking, settings.s3),
            organization=settings.organization,
            workspace=settings.workspace,
            state=lambda: take_state_id(settings.state),
        )

    @property
    def sync_log(self) -> SyncLog:
        return SyncLog(self.settings, self.tracking)

    @functools.cached_property
    def lineage(self) -> Lineage:
        """Of what each column is made; read when it is first asked for."""
        return Lineage(self.project, known_columns(self.project))

    def check_columns(self, running: Collection[str] | None = None) -> None:
        """Raise ProjectError with each column that surely doesn't exist, of all models or of those that run.

        A model that doesn't run is read as its table is, whatever its definition says by now.
        """
        if running is None:
            is_settled = settled_tables(self.project, self.noop_cache.read())
        else:
            is_settled = set(self.project.models).difference(running).__contains__
        if problems := wrong_columns(self.project, is_settled, running):
            raise ProjectError(problems)

    @property
    def noop_cache(self) -> NoopCache:
        return NoopCache(self.settings.state / "cache.sqlite")

    def queue(self, sync_id: str) -> QueueState | None:
        """How the sync's queue stands; None when it never ran. StateError: it can't be read."""
        return queue_state(self.syncs[sync_id].queue, now=self.clock())

    def queue_seen(self, sync_id: str) -> QueueSeen:
        """The same for who looks at all syncs: one whose queue can't be read hides no other.

        One that is lost passes for none that ever was until the next run, but for the history.
        """
        try:
            state = self.queue(sync_id)
            is_lost = not (state and state.has_begun) and self.history.has_begun(sync_id)
        except StateError as error:
            return QueueSeen(None, unread=str(error))
        return QueueSeen(state, lost=_lost(sync_id, state) if is_lost else None)

    def invalid_version(self, model_id: str) -> int:
        """The version of the table of the model's rows that were set aside."""
        state = self._invalid(model_id)
        return NEVER if state is None else state.version

    def invalid_count(self, model_id: str) -> int:
        """How many rows the newest write of the model set aside."""
        state = self._invalid(model_id)
        return (state.note.rows or 0) if state and state.note else 0

    def _invalid(self, model_id: str) -> TableState | None:
        return read_table_state(invalid_path(table_path(self.settings, model_id)))

    def events(self, model: Model) -> ModelEvents | None:
        """What the collector took for the model and its table hasn't; None for a model with a query."""
        return None if model.kind.has_query else ModelEvents(self.settings, model)

    def events_waiting(self, model_id: str) -> Waiting:
        """How many of these there are, and since when."""
        events = self.events(self.project.models[model_id])
        return events.waiting() if events else Waiting()

    def homeless_events(self) -> dict[str, int]:
        """How many events wait for each model that the project no longer has."""
        waiting = events_in_file(event_path(self.settings))
        return {name: events for name, events in waiting.items() if name not in self.project.models}

    def look(self) -> Look:
        """The world as it is now."""
        return Look(
            tables=tables_of(self.settings),
            invalid_versions=self.invalid_version,
            queues=self.queue,
            unchanged=self.noop_cache.read(),
            has_begun=self.history.has_begun,
            events_waiting=lambda model_id: self.events_waiting(model_id).events,
        )

    def sync_work(self, sync: Sync) -> SyncWork:
        """What the sync has to do now, when its model isn't computed first."""
        look = self.look()
        step = self._step(sync, look)
        table, queue = look.tables(sync.model.id), self.queue_seen(sync.id).state
        version = table_version(table) if table else "no table"
        due_at = int(queue.next_due_at) if queue and queue.next_due_at else None
        if queue and queue.is_clock_behind:  # what counts as now is another time at each look
            due_at = -1
        name = f"{version}/{look.invalid_versions(sync.model.id)}" + (f"/{due_at}" if due_at else "")
        return SyncWork(is_there=step.will_run, reason=step.reason, name=name, is_new=step.reads_table)

    def sync_plan(self, sync: Sync) -> Plan:
        """What a run of just the sync has to do, with its table as it is: no model is looked at."""
        return Plan(models=(), syncs=(self._step(sync, self.look()),))

    def _step(self, sync: Sync, look: Look) -> SyncStep:
        return plan_sync(self.project, sync.model, sync.sink, look)

    def plan(self, selection: Collection[str] | None = None, *, is_full: bool = False) -> Plan:
        """What a run of the whole project, or of the selected model ids, has to do."""
        return make_plan(self.project, self.look(), selection=selection, is_full=is_full)


def _lost(sync_id: str, state: QueueState | None) -> str:
    if state and state.is_forgotten:
        return f"it was forgotten: the next run asks for `ondatra resync {sync_id}`"
    return (
        "its queue is lost: the next run rebuilds it from the frontier and the records,"
        f" or asks for `ondatra resync {sync_id}` where these are gone too"
    )


def load_workspace(root: Path) -> Workspace:
    """The project at `root` with its syncs; raises ProjectError with all that is wrong with its files.

    Raises SettingsError where its settings are such that the rest can't be judged.
    """
    settings, problems = _settings(root)
    reading = read_project(settings.root, settings)
    project = reading.project
    checks = _check_sinks(reading)
    problems += [*reading.problems, *_misuses(project, checks)]
    problems += [problem for check in checks.values() for problem in check.problems]
    if problems:
        raise ProjectError(problems)
    variables = [
        *_unset(settings),
        *(warning for check in checks.values() for warning in check.warnings),
        *unknown_variables(settings.root, settings.secrets.names),
    ]
    return Workspace(
        project=project, syncs=_syncs(project, checks), warnings=(*project.warnings, *sorted(variables))
    )


def _settings(root: Path) -> tuple[Settings, list[Problem]]:
    try:
        return read_settings(root), []
    except BadSettingsError as error:
        if error.usable is None:
            raise
        return error.usable, list(error.problems)


def _unset(settings: Settings) -> Iterator[Problem]:
    """The variables that alerts need and that aren't there."""
    file, line = place_of("alerts.webhook", settings.root)
    for name in settings.alerts.variables:
        if not settings.secret(name):
            what, remedy = f"the variable {name} is not set", "set it in .env or the environment"
            yield Problem(file=file, line=line, what=what, remedy=remedy)


def _check_sinks(reading: Reading) -> dict[str, LibraryCheck]:
    """What is known of the sinks that are used; of all when the models don't tell which those are."""
    project = reading.project
    used = {model.sink.name for model in project.with_sinks() if model.sink}
    return {
        name: check_library(path, secrets=project.settings.secret)
        for name, path in project.sink_files.items()
        if name in used or (not reading.is_whole and _has_push(path))
    }


def _has_push(path: Path) -> bool:
    """Whether it is a sink: else it is there for others to load."""
    return "def push(" in path.read_text(encoding="utf-8", errors="replace")


def _misuses(project: Project, checks: Mapping[str, LibraryCheck]) -> Iterator[Problem]:
    for model in project.with_sinks():
        check = checks.get(model.sink.name) if model.sink else None  # None: there is no such file
        if check and check.config:
            yield from check_use(check.config, model)


def _syncs(project: Project, checks: Mapping[str, LibraryCheck]) -> dict[str, Sync]:
    return {
        model.sink.sync_id: Sync(
            model=model, sink=model.sink, config=config, library=path, state=project.settings.state
        )
        for model in project.with_sinks()
        if model.sink
        and (config := checks[model.sink.name].config)
        and (path := project.sink_files[model.sink.name])
    }
