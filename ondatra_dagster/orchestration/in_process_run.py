"""The Dagster run that `ondatra run` starts in its own process, for the models and syncs that have work.

The run is stored in the project's Dagster instance, so Dagster's page shows it in its history.
"""

import contextlib
import dataclasses
import io
import logging
import re
import sys
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import cast

import dagster as dg
from dagster._core.instance.ref import InstanceRef

from ondatra_dagster.app.model_and_sync_steps import RunService
from ondatra_dagster.errors import OndatraError
from ondatra_dagster.interruption import InterruptedRunError
from ondatra_dagster.log_line_escaping import EscapingFormatter
from ondatra_dagster.orchestration.asset_keys import model_key, sync_key
from ondatra_dagster.orchestration.definitions import definitions_of
from ondatra_dagster.orchestration.run_tags_and_abandoned_runs import (
    ALLOW_DELETES,
    ALLOW_NEW_STATE,
    DEFER_EVENTS_TAG,
    DRY_RUN,
    FULL_REFRESH,
    TRIGGER,
    close_abandoned_runs,
)
from ondatra_dagster.planning.plan import Plan
from ondatra_dagster.project.settings.read_settings_and_defaults import Settings
from ondatra_dagster.storage.file_errors import disk_error, explain_file_errors, storage_error
from ondatra_dagster.storage.private_files import make_private_folder, make_state_folder_private, open_private_file

LOGGER_KEY = "file"
STORAGE_ERROR = re.compile(r"\(sqlite3\.\w+\) ([^\n]*)")  # the SQLite message in the text of SQLAlchemy's errors
EXPLAINED_ERROR = dg.Failure.__name__  # the class of errors that the run service has already reported
INTERRUPTION_ERRORS = (dg.DagsterExecutionInterruptedError.__name__, InterruptedRunError.__name__)
WAIT_LOGGER = "ondatra_dagster.warehouse.spark.table_locks"  # its only warning: a step waits for a lock
OWN_LOGGERS = ("ondatra_dagster", "ondatra.dagster")  # loggers that log at level INFO


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class DagsterRunResult:
    """The result of a Dagster run."""

    run_id: str
    is_successful: bool  # no step failed, and no check has severity ERROR
    was_interrupted: bool = False
    other_errors: tuple[str, ...] = ()  # errors outside of models and syncs


def run_plan(
    run_service: RunService,
    plan: Plan,
    *,
    trigger: str,
    allow_deletes: Collection[str] = (),
    is_new_state: bool = False,
) -> DagsterRunResult:
    """Run the steps of the plan that have work; each model and sync reports its progress to the run service.

    The syncs whose ids are in `allow_deletes` may remove more than their @max_deletes. With `is_new_state`,
    syncs whose state is lost begin as in their first run.
    """
    keys = [
        *(model_key(step.model) for step in plan.models if step.will_run),
        *(sync_key(step.model) for step in plan.syncs if step.will_run),
    ]
    is_full, is_dry = any(step.is_full for step in plan.models), run_service.is_dry
    flags = {FULL_REFRESH: is_full, DRY_RUN: is_dry, DEFER_EVENTS_TAG: is_dry, ALLOW_NEW_STATE: is_new_state}
    tags = {TRIGGER: trigger, **{tag: "true" for tag, is_set in flags.items() if is_set}}
    tags |= {ALLOW_DELETES: ",".join(allow_deletes)} if allow_deletes else {}
    settings = run_service.workspace.settings
    definitions = definitions_of(
        run_service.workspace,
        open_service=lambda *_, **__: contextlib.nullcontext(run_service),
        loggers={LOGGER_KEY: file_logger},
    )
    folder = settings.state / "logs"
    with log_to_folder(folder), report_waits(run_service.progress.on_wait), open_instance(settings) as instance:
        close_abandoned_runs(instance, settings.state)
        result = definitions.resolve_implicit_global_asset_job_def().execute_in_process(
            instance=instance,
            asset_selection=keys,
            raise_on_error=False,
            run_config={"loggers": {LOGGER_KEY: {}}},
            tags=tags,
        )
    errors = list(_step_errors(result))
    return DagsterRunResult(
        run_id=result.run_id,
        is_successful=result.success and not any(map(_is_failed_check, result.all_events)),
        was_interrupted=any(name in INTERRUPTION_ERRORS for name, _ in errors),
        other_errors=tuple(
            _readable_error(text, settings)
            for name, text in errors
            if name not in (EXPLAINED_ERROR, *INTERRUPTION_ERRORS)
        ),
    )


@dg.logger({})
def file_logger(_: dg.InitLoggerContext) -> logging.Logger:
    """Return the logger for Dagster's own messages, which are written to the log file because there are many."""
    return logging.getLogger(OWN_LOGGERS[1])


@contextlib.contextmanager
def log_to_folder(folder: Path) -> Iterator[None]:
    """Write logs and warnings to a file in the folder, because the screen is for results."""
    with explain_file_errors(folder):
        make_private_folder(folder)
    handler = _LogFileHandler(folder / "ondatra.log", encoding="utf-8", delay=True)
    handler.setFormatter(EscapingFormatter("%(asctime)s %(levelname)s %(name)s %(message)s"))
    root = logging.getLogger()
    root.addHandler(handler)
    for name in OWN_LOGGERS:
        logging.getLogger(name).setLevel(logging.INFO)
    logging.captureWarnings(capture=True)
    try:
        yield
    finally:
        logging.captureWarnings(capture=False)
        root.removeHandler(handler)
        with contextlib.suppress(OSError):
            handler.close()


class _LogFileHandler(logging.FileHandler):
    """A log file that only its owner can read. On a full or read-only disk, lines are lost and the run continues."""

    def _open(self) -> io.TextIOWrapper:
        return cast("io.TextIOWrapper", open_private_file(self.baseFilename, self.mode, self.encoding))

    def emit(self, record: logging.LogRecord) -> None:
        with contextlib.suppress(OSError):
            super().emit(record)

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 - logging calls it so
        if not isinstance(sys.exception(), OSError):
            super().handleError(record)


@contextlib.contextmanager
def report_waits(on_message: Callable[[str], None]) -> Iterator[None]:
    """Report to the user when a step waits for a table that another process has locked."""
    handler = _WaitLogHandler(on_message)
    logger = logging.getLogger(WAIT_LOGGER)
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)


class _WaitLogHandler(logging.Handler):
    def __init__(self, on_message: Callable[[str], None]) -> None:
        super().__init__(logging.WARNING)
        self._on_message = on_message

    def emit(self, record: logging.LogRecord) -> None:
        self._on_message(record.getMessage())


def _is_failed_check(event: dg.DagsterEvent) -> bool:
    if event.event_type is not dg.DagsterEventType.ASSET_CHECK_EVALUATION:
        return False
    evaluation = event.asset_check_evaluation_data
    return not evaluation.passed and evaluation.severity is dg.AssetCheckSeverity.ERROR


def _step_errors(result: dg.ExecuteInProcessResult) -> Iterator[tuple[str, str]]:
    """Yield the class and the text of each error that ended a step, or that ended the run outside of its steps."""
    for event in result.all_events:
        if event.is_step_failure and (error := event.step_failure_data.error):
            yield error.cls_name or "", f"{event.step_key}: {error.message.strip()}"
        elif event.is_job_failure and (error := event.job_failure_data.error):
            yield error.cls_name or "", error.message.strip()


def _readable_error(text: str, settings: Settings) -> str:
    """Return the text of an error. For an error of Dagster's storage, return a sentence without SQL."""
    match = STORAGE_ERROR.search(text)
    return str(storage_error(match[1], storage_folder(settings), IF_DAMAGED)) if match else text


# the output of steps goes to the user's terminal, and not to Dagster's log files
NO_COMPUTE_LOGS = {"module": "dagster._core.storage.noop_compute_log_manager", "class": "NoOpComputeLogManager"}
IF_DAMAGED = "move it away: Dagster's own history starts again, and tables and queues stay"


@contextlib.contextmanager
def open_instance(settings: Settings) -> Iterator[dg.DagsterInstance]:
    """Open the Dagster instance in DAGSTER_HOME if that variable is set, otherwise the project's own instance."""
    dagster_home = settings.secret("DAGSTER_HOME")
    folder = Path(dagster_home) if dagster_home else settings.root
    is_configured = (folder / "dagster.yaml").exists()
    storage = storage_folder(settings)
    make_state_folder_private(settings.state)
    with explain_file_errors(storage):
        storage.mkdir(mode=0o700, parents=True, exist_ok=True)
    overrides: dict[str, object] = {"compute_logs": NO_COMPUTE_LOGS}
    if not is_configured:
        overrides["telemetry"] = {"enabled": False}  # a dagster.yaml can enable telemetry
    # paths in the project's dagster.yaml are relative to its folder, as for `dg dev`, which is started there
    with _explain_storage_errors(storage), contextlib.chdir(folder):
        ref = InstanceRef.from_dir(str(storage), config_dir=str(folder), overrides=overrides)
        with dg.DagsterInstance.from_ref(ref) as instance:
            yield instance


def storage_folder(settings: Settings) -> Path:
    """Return the folder of Dagster's storage, unless a dagster.yaml names another folder."""
    dagster_home = settings.secret("DAGSTER_HOME")
    if dagster_home:
        return Path(dagster_home)
    return settings.root if (settings.root / "dagster.yaml").exists() else settings.state / "dagster"


@contextlib.contextmanager
def _explain_storage_errors(base: Path) -> Iterator[None]:
    """Raise StateError for a disk error of Dagster's storage, because Dagster's own error has no remedy."""
    try:
        yield
    except OndatraError:
        raise
    except Exception as error:
        if fault := disk_error(error, base, IF_DAMAGED):
            raise fault from error
        raise
