"""The workspace: a project and its syncs, loaded for commands, assets and sensors without Dagster and Spark.

Loading reads only the user's files. A cached project is read again only if one of its files has changed. The
module model_and_sync_steps has the steps of a run.
"""

import dataclasses
import functools
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple, TypeAlias

from ondatra_dagster.collector.event_store import PendingSummary, count_stored_events, event_store_path
from ondatra_dagster.collector.pending_events import ModelEvents
from ondatra_dagster.delivery.push.sink_setup_check import PushFileCheck, check_push_file, check_sink_line
from ondatra_dagster.delivery.queue.queue_database import queue_file_path, queue_lock_path
from ondatra_dagster.delivery.queue.queue_status import QueueStatus, read_status_of_file
from ondatra_dagster.deltalog.log_reader import TableState, read_table_state
from ondatra_dagster.errors import InvalidSettingsError, OndatraError, Problem, ProjectError, StateError
from ondatra_dagster.operations.sync_log_appender import SyncLogAppender
from ondatra_dagster.planning.find_table_and_columns import current_columns_lookup, invalid_table_path, table_path
from ondatra_dagster.planning.input_versions import format_table_version, table_state_lookup
from ondatra_dagster.planning.missing_column_errors import find_missing_columns, up_to_date_check
from ondatra_dagster.planning.plan import NO_VERSION, Plan, PlanInputs, SyncStep, make_plan, plan_sync
from ondatra_dagster.planning.unchanged_run_cache import UnchangedRunCache
from ondatra_dagster.project.column_lineage import LineageResolver
from ondatra_dagster.project.find_and_parse_model_files import read_file_states
from ondatra_dagster.project.model import Model
from ondatra_dagster.project.project import Project
from ondatra_dagster.project.project_loader import PartialProject, read_project
from ondatra_dagster.project.settings.environment_warnings import unknown_variable_warnings
from ondatra_dagster.project.settings.read_raw_setting_entries import find_setting_line
from ondatra_dagster.project.settings.read_settings_and_defaults import Settings, read_settings
from ondatra_dagster.project.settings.storage_access import StorageAddress
from ondatra_dagster.records.record_store import RecordStore
from ondatra_dagster.storage.file_lock import is_locked
from ondatra_dagster.storage.state_folder_id import ensure_state_id
from ondatra_dagster.sync.run_history_store import RunHistory
from ondatra_dagster.sync.sync_definition import Sync


class QueueReadResult(NamedTuple):
    """The status of a sync's queue, or the reason why the status is unknown."""

    status: QueueStatus | None  # None: the sync never ran, or the status is unknown
    read_error: str | None = None  # why the queue can't be read, and what to do
    loss_message: str | None = None  # the queue of a sync that has run is lost: what the next run does

    @property
    def unknown_reason(self) -> str | None:
        """Return the reason why pending rows and dead letters are unknown; None if they are known."""
        return self.read_error or self.loss_message

    @property
    def is_forgotten(self) -> bool:
        return self.status is not None and self.status.is_forgotten


class SyncWork(NamedTuple):
    """The work that a sync has now, if any, and the reason."""

    has_work: bool
    reason: str
    work_digest: str  # a text that is equal for equal work
    is_new: bool  # the table has versions that the queue doesn't have yet


@dataclasses.dataclass(frozen=True, kw_only=True)
class Workspace:
    """A project that was loaded without errors, with its syncs and the access to its state."""

    project: Project
    syncs: Mapping[str, Sync]  # by sync id, in the order of their models
    warnings: tuple[Problem, ...] = ()
    clock: Callable[[], float] = time.time

    @property
    def settings(self) -> Settings:
        return self.project.settings

    def sync(self, name: str) -> Sync:
        """Return the sync with this id, or the sync of the model with this name.

        Raise SelectionError if there is no such sync.
        """
        sink = self.project.sync(name).sink
        return self.syncs[sink.sync_id if sink else name]

    @functools.cached_property
    def history(self) -> RunHistory:
        state = self.settings.state
        return RunHistory(
            state / "history.sqlite",
            is_at_work=lambda sync_id: is_locked(queue_lock_path(queue_file_path(state, sync_id))),
        )

    @functools.cached_property
    def tracking(self) -> RecordStore:
        settings = self.settings
        return RecordStore(
            StorageAddress(settings.tracking, settings.s3),
            organization=settings.organization,
            workspace=settings.workspace,
            state=lambda: ensure_state_id(settings.state),
        )

    @property
    def sync_log(self) -> SyncLogAppender:
        return SyncLogAppender(self.settings, self.tracking)

    @functools.cached_property
    def lineage(self) -> LineageResolver:
        """Return the resolver of column lineage, which reads the sources of the columns on first use."""
        return LineageResolver(self.project, current_columns_lookup(self.project))

    def check_columns(self, running_ids: Collection[str] | None = None) -> None:
        """Raise ProjectError with all columns that certainly don't exist, in all models or only in `running_ids`.

        For a model that doesn't run, the columns of its existing table count, and not its current definition.
        """
        if running_ids is None:
            is_settled = up_to_date_check(self.project, self.unchanged_run_cache.read_runs())
        else:
            is_settled = set(self.project.models).difference(running_ids).__contains__
        if problems := find_missing_columns(self.project, is_settled, running_ids):
            raise ProjectError(problems)

    @property
    def unchanged_run_cache(self) -> UnchangedRunCache:
        return UnchangedRunCache(self.settings.state / "cache.sqlite")

    def queue(self, sync_id: str) -> QueueStatus | None:
        """Return the status of the sync's queue; None if the sync has never run.

        Raise StateError if the queue can't be read.
        """
        return read_status_of_file(self.syncs[sync_id].queue_file, now=self.clock())

    def try_read_queue(self, sync_id: str) -> QueueReadResult:
        """Return the status of the sync's queue, or why it is unknown, so that an error doesn't hide other syncs.

        Until the next run, a lost queue looks like a queue that never existed. Only the history shows that
        the sync has run.
        """
        try:
            state = self.queue(sync_id)
            is_queue_lost = not (state and state.table_id is not None) and self.history.has_begun(sync_id)
        except StateError as error:
            return QueueReadResult(None, read_error=str(error))
        return QueueReadResult(state, loss_message=_lost_queue_message(sync_id, state) if is_queue_lost else None)

    def invalid_version(self, model_id: str) -> int:
        """Return the version of the model's table of invalid rows; NO_VERSION if the table doesn't exist."""
        state = self._invalid_table_state(model_id)
        return NO_VERSION if state is None else state.version

    def invalid_count(self, model_id: str) -> int:
        """Return the number of the model's invalid rows, which its newest write counted."""
        state = self._invalid_table_state(model_id)
        return (state.commit_metadata.rows or 0) if state and state.commit_metadata else 0

    def _invalid_table_state(self, model_id: str) -> TableState | None:
        return read_table_state(invalid_table_path(table_path(self.settings, model_id)))

    def events(self, model: Model) -> ModelEvents | None:
        """Return the model's events that aren't in its table yet; None if the model has a query and thus no events."""
        return None if model.kind.has_query else ModelEvents(self.settings, model)

    def events_waiting(self, model_id: str) -> PendingSummary:
        """Return the number of events that wait to be written to the model's table, and the time of the oldest."""
        events = self.events(self.project.models[model_id])
        return events.summarize_pending() if events else PendingSummary()

    def events_without_model(self) -> dict[str, int]:
        """Return the number of waiting events for each model that the project no longer has."""
        waiting_events = count_stored_events(event_store_path(self.settings))
        return {name: events for name, events in waiting_events.items() if name not in self.project.models}

    def plan_inputs(self) -> PlanInputs:
        """Return the current state of tables, queues, history and events, as a plan needs it."""
        return PlanInputs(
            tables=table_state_lookup(self.settings),
            invalid_table_version=self.invalid_version,
            queues=self.queue,
            unchanged_runs=self.unchanged_run_cache.read_runs(),
            has_ever_run=self.history.has_begun,
            pending_event_count=lambda model_id: self.events_waiting(model_id).events,
        )

    def sync_work(self, sync: Sync) -> SyncWork:
        """Return the work that the sync has now, without the changes that a run of its model would add."""
        input_plan = self.plan_inputs()
        step = self._plan_sync(sync, input_plan)
        table, queue = input_plan.tables(sync.model.id), self.try_read_queue(sync.id).status
        version = format_table_version(table) if table else "no table"
        due_at = int(queue.next_due_at) if queue and queue.next_due_at else None
        # a wait that was set while the clock was ahead is due now; -1 is used, because "now" changes at each call
        if queue and queue.is_clock_behind:
            due_at = -1
        name = f"{version}/{input_plan.invalid_table_version(sync.model.id)}" + (f"/{due_at}" if due_at else "")
        return SyncWork(has_work=step.will_run, reason=step.reason, work_digest=name, is_new=step.reads_table)

    def sync_plan(self, sync: Sync) -> Plan:
        """Return the plan of a run of only this sync, on its model's current table. The plan contains no model."""
        return Plan(models=(), syncs=(self._plan_sync(sync, self.plan_inputs()),))

    def _plan_sync(self, sync: Sync, plan_inputs: PlanInputs) -> SyncStep:
        return plan_sync(self.project, sync.model, sync.sink, plan_inputs)

    def plan(self, selection: Collection[str] | None = None, *, is_full: bool = False) -> Plan:
        """Return the plan of a run of the whole project, or only of the selected model ids."""
        return make_plan(self.project, self.plan_inputs(), selection=selection, is_full=is_full)


def _lost_queue_message(sync_id: str, state: QueueStatus | None) -> str:
    if state and state.is_forgotten:
        return f"it was forgotten: the next run requires `ondatra resync {sync_id}`"
    return (
        "its queue is lost: the next run rebuilds it from the queue snapshot and the records,"
        f" or requires `ondatra resync {sync_id}` if these are lost too"
    )


def load_workspace(root: Path) -> Workspace:
    """Load the project at `root` with its syncs; raise ProjectError with all errors in its files.

    Raise SettingsError if errors in the settings make it impossible to check the other files.
    """
    settings, problems = _read_settings(root)
    parsed_project = read_project(settings.root, settings)
    project = parsed_project.project
    checks = _check_sinks(parsed_project)
    problems += [*parsed_project.problems, *_sink_use_problems(project, checks)]
    problems += [problem for check in checks.values() for problem in check.problems]
    if problems:
        raise ProjectError(problems)
    variables = [
        *_unset_alert_variables(settings),
        *(warning for check in checks.values() for warning in check.warnings),
        *unknown_variable_warnings(settings.root, settings.secrets.names),
    ]
    return Workspace(
        project=project, syncs=_build_syncs(project, checks), warnings=(*project.warnings, *sorted(variables))
    )


def _read_settings(root: Path) -> tuple[Settings, list[Problem]]:
    try:
        return read_settings(root), []
    except InvalidSettingsError as error:
        if error.usable_settings is None:
            raise
        return error.usable_settings, list(error.problems)


def _unset_alert_variables(settings: Settings) -> Iterator[Problem]:
    """Yield a problem for each variable that the alert settings use and that isn't set."""
    file, line = find_setting_line("alerts.webhook", settings.root)
    for name in settings.alerts.required_variables:
        if not settings.secret(name):
            problem, remedy = f"the variable {name} is not set", "set it in .env or the environment"
            yield Problem(file=file, line=line, description=problem, remedy=remedy)


def _check_sinks(partial_project: PartialProject) -> dict[str, PushFileCheck]:
    """Return the checks of the sink files in use, by sink name.

    If errors in models hide which sinks are in use, check all sink files.
    """
    project = partial_project.project
    used_sinks = {model.sink.name for model in project.models_with_sinks() if model.sink}
    return {
        name: check_push_file(path, secrets=project.settings.secret)
        for name, path in project.sink_files.items()
        if name in used_sinks or (not partial_project.is_complete and _has_push(path))
    }


def _has_push(path: Path) -> bool:
    """Return whether the file is a sink with push(). Otherwise it is a library that other files load."""
    return "def push(" in path.read_text(encoding="utf-8", errors="replace")


def _sink_use_problems(project: Project, checks: Mapping[str, PushFileCheck]) -> Iterator[Problem]:
    for model in project.models_with_sinks():
        check = checks.get(model.sink.name) if model.sink else None  # None: the sink file doesn't exist
        if check and check.config:
            yield from check_sink_line(check.config, model)


def _build_syncs(project: Project, checks: Mapping[str, PushFileCheck]) -> dict[str, Sync]:
    return {
        model.sink.sync_id: Sync(
            model=model, sink=model.sink, push_config=config, push_library=path, state_folder=project.settings.state
        )
        for model in project.models_with_sinks()
        if model.sink and (config := checks[model.sink.name].config) and (path := project.sink_files[model.sink.name])
    }


FileStates: TypeAlias = frozenset[tuple[str, int, int]]
PROJECT_FILES = ("models/*/*.sql", "lib/*.star", "pyproject.toml", ".env")


class ProjectCache:
    """A cached project that several threads use. The constructor raises the errors in the project's files."""

    def __init__(self, root: Path, *, load: Callable[[Path], Workspace] = load_workspace) -> None:
        self._root = root
        self._load = load
        self._lock = threading.Lock()
        self._file_states = read_file_states(self._root, PROJECT_FILES)
        self._workspace = load(root)
        self._load_error = ""

    def load_current_project(self) -> tuple[Workspace, str]:
        """Return the current project and a text about errors in its files.

        With errors, the project is the last one that was loaded without errors.
        """
        with self._lock:
            file_states = read_file_states(self._root, PROJECT_FILES)
            if file_states != self._file_states:
                self._file_states = file_states
                self._reload()
            return self._workspace, self._load_error

    def _reload(self) -> None:
        try:
            self._workspace, self._load_error = self._load(self._root), ""
        except OndatraError as error:
            self._load_error = f"The project can't be read, so its last readable state is shown. {error}"
