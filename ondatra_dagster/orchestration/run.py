"""What `ondatra run` starts: Dagster in this process, on just the models and syncs that have work."""

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

from ondatra_dagster.interruption import InterruptedRunError
from ondatra_dagster.log_lines import RecordFormatter
from ondatra_dagster.orchestration.definitions import definitions_of
from ondatra_dagster.orchestration.dry_events import WITHOUT_MATERIALIZATIONS
from ondatra_dagster.orchestration.engine import Engine
from ondatra_dagster.orchestration.instance import IF_DAMAGED, open_instance, storage_folder
from ondatra_dagster.orchestration.naming import model_key, sink_key
from ondatra_dagster.orchestration.run_locks import close_abandoned_runs
from ondatra_dagster.orchestration.run_tags import (
    ALLOW_DELETES,
    ALLOW_NEW_STATE,
    DRY_RUN,
    FULL_REFRESH,
    TRIGGER,
)
from ondatra_dagster.planning.plan import Plan
from ondatra_dagster.project.settings.settings import Settings
from ondatra_dagster.store.file_errors import explained, storage_error
from ondatra_dagster.store.private_folder import make_private, open_private

LOGGER = "file"
OF_STORAGE = re.compile(r"\(sqlite3\.\w+\) ([^\n]*)")  # as SQLAlchemy tells of it
EXPLAINED = dg.Failure.__name__  # the engine has told of it
INTERRUPTED = (dg.DagsterExecutionInterruptedError.__name__, InterruptedRunError.__name__)
WAITS = "ondatra_dagster.warehouse.process_locks"  # warns of nothing else than that it waits
OURS = ("ondatra_dagster", "ondatra.dagster")  # loggers that tell more than warnings


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class RunEnd:
    """How a Dagster run ended."""

    run_id: str
    is_good: bool  # nothing failed, and no check is at ERROR
    was_interrupted: bool = False
    unexplained: tuple[str, ...] = ()  # what failed outside of a model or a sync


def run_plan(
    engine: Engine,
    plan: Plan,
    *,
    trigger: str,
    allow_deletes: Collection[str] = (),
    is_new_state: bool = False,
) -> RunEnd:
    """Run what the plan says has work; each model and sync tells of itself through the engine.

    The syncs of `allow_deletes`, by their ids, may remove more than their @max_deletes. With `is_new_state`
    syncs that have lost all that was known of them begin as in their first run.
    """
    keys = [
        *(model_key(step.model) for step in plan.models if step.will_run),
        *(sink_key(step.model) for step in plan.syncs if step.will_run),
    ]
    tags = {TRIGGER: trigger, **_tags(plan, is_dry=engine.is_dry)}
    if allow_deletes:
        tags[ALLOW_DELETES] = ",".join(allow_deletes)
    if is_new_state:
        tags[ALLOW_NEW_STATE] = "true"
    settings = engine.workspace.settings
    definitions = definitions_of(
        engine.workspace,
        opened=lambda *_, **__: contextlib.nullcontext(engine),
        loggers={LOGGER: file_logger},
    )
    folder = settings.state / "logs"
    with logging_to(folder), telling_waits(engine.waits), open_instance(settings) as instance:
        close_abandoned_runs(instance, settings.state)
        result = definitions.resolve_implicit_global_asset_job_def().execute_in_process(
            instance=instance,
            asset_selection=keys,
            raise_on_error=False,
            run_config={"loggers": {LOGGER: {}}},
            tags=tags,
        )
    errors = list(_step_errors(result))
    return RunEnd(
        run_id=result.run_id,
        is_good=result.success and not any(map(_is_failed_check, result.all_events)),
        was_interrupted=any(name in INTERRUPTED for name, _ in errors),
        unexplained=tuple(
            _readable(text, settings) for name, text in errors if name not in (EXPLAINED, *INTERRUPTED)
        ),
    )


def _tags(plan: Plan, *, is_dry: bool) -> dict[str, str]:
    """Return the tags that say how the plan is run."""
    full = {FULL_REFRESH: "true"} if any(step.is_full for step in plan.models) else {}
    return full | ({DRY_RUN: "true", WITHOUT_MATERIALIZATIONS: "true"} if is_dry else {})


@dg.logger({})
def file_logger(_: dg.InitLoggerContext) -> logging.Logger:
    """Dagster's own words: they are many."""
    return logging.getLogger(OURS[1])


@contextlib.contextmanager
def logging_to(folder: Path) -> Iterator[None]:
    """What is logged or warned of goes to a file: the screen is for what came of it."""
    with explained(folder):
        make_private(folder)
    handler = _LogFile(folder / "ondatra.log", encoding="utf-8", delay=True)
    handler.setFormatter(RecordFormatter("%(asctime)s %(levelname)s %(name)s %(message)s"))
    root = logging.getLogger()
    root.addHandler(handler)
    for name in OURS:
        logging.getLogger(name).setLevel(logging.INFO)
    logging.captureWarnings(capture=True)
    try:
        yield
    finally:
        logging.captureWarnings(capture=False)
        root.removeHandler(handler)
        with contextlib.suppress(OSError):
            handler.close()


class _LogFile(logging.FileHandler):
    """A log for its owner only. On a full or read-only disk it loses lines, in place of ending the run."""

    def _open(self) -> io.TextIOWrapper:
        return cast("io.TextIOWrapper", open_private(self.baseFilename, self.mode, self.encoding))

    def emit(self, record: logging.LogRecord) -> None:
        with contextlib.suppress(OSError):
            super().emit(record)

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 - logging calls it so
        if not isinstance(sys.exception(), OSError):
            super().handleError(record)


@contextlib.contextmanager
def telling_waits(tell: Callable[[str], None]) -> Iterator[None]:
    """Who waits for another process to let go of a table says so where its user sees it."""
    handler = _Teller(tell)
    logger = logging.getLogger(WAITS)
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)


class _Teller(logging.Handler):
    def __init__(self, tell: Callable[[str], None]) -> None:
        super().__init__(logging.WARNING)
        self._tell = tell

    def emit(self, record: logging.LogRecord) -> None:
        self._tell(record.getMessage())


def _is_failed_check(event: dg.DagsterEvent) -> bool:
    if event.event_type is not dg.DagsterEventType.ASSET_CHECK_EVALUATION:
        return False
    evaluation = event.asset_check_evaluation_data
    return not evaluation.passed and evaluation.severity is dg.AssetCheckSeverity.ERROR


def _step_errors(result: dg.ExecuteInProcessResult) -> Iterator[tuple[str, str]]:
    """The class and the text of what ended a step, or the run outside of its steps."""
    for event in result.all_events:
        if event.is_step_failure and (error := event.step_failure_data.error):
            yield error.cls_name or "", f"{event.step_key}: {error.message.strip()}"
        elif event.is_job_failure and (error := event.job_failure_data.error):
            yield error.cls_name or "", error.message.strip()


def _readable(text: str, settings: Settings) -> str:
    """Return the text of an error; of Dagster's storage a sentence, without its SQL."""
    found = OF_STORAGE.search(text)
    return str(storage_error(found[1], storage_folder(settings), IF_DAMAGED)) if found else text
