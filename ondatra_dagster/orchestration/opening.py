"""An engine with the real warehouse behind it: Spark's code is loaded when something is computed or read."""

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Protocol

from ondatra_dagster import interruption
from ondatra_dagster.arrivals import WaitingEvents
from ondatra_dagster.changes import InvalidRow, Segment
from ondatra_dagster.operations.sync_log import LogTable
from ondatra_dagster.operations.tables import Maintained, UpkeepTable
from ondatra_dagster.orchestration.dry_engine import DryEngine, open_dry_workspace
from ondatra_dagster.orchestration.engine import Engine, Tables, Written
from ondatra_dagster.orchestration.progress import Progress
from ondatra_dagster.orchestration.workspace import Workspace
from ondatra_dagster.planning.commit_note import CommitNote
from ondatra_dagster.planning.delta_log import TableState, table_path
from ondatra_dagster.project.model import Model
from ondatra_dagster.project.settings.addresses import Address
from ondatra_dagster.project.settings.settings import Settings
from ondatra_dagster.sync.ports import Feed
from ondatra_dagster.sync.sync import Sync

if TYPE_CHECKING:
    from ondatra_dagster.warehouse.change_feed import ChangeFeed
    from ondatra_dagster.warehouse.spark_session import Warehouse


class OpenEngine(Protocol):
    """What makes an engine for as long as a run lasts."""

    def __call__(
        self, workspace: Workspace, progress: Progress | None = None, *, is_dry: bool = False
    ) -> AbstractContextManager[Engine]: ...


@contextlib.contextmanager
def open_engine(
    workspace: Workspace, progress: Progress | None = None, *, is_dry: bool = False
) -> Iterator[Engine]:
    """The engine of a project; what it started ends with it. A dry one leaves nothing."""
    interruption.forget_earlier()
    notice = progress.waits if progress else None
    with contextlib.ExitStack() as stack:
        if not is_dry:
            tables = stack.enter_context(SparkTables(workspace.settings, notice))
            yield stack.enter_context(engine_over(tables, workspace, progress))
            return
        rehearsed = stack.enter_context(open_dry_workspace(workspace))
        tables = stack.enter_context(SparkTables(rehearsed.settings, notice))
        yield DryEngine(workspace, rehearsed, tables, progress=progress)


@contextlib.contextmanager
def engine_over(tables: Tables, workspace: Workspace, progress: Progress | None = None) -> Iterator[Engine]:
    """The engine over tables that are open; what a run does last is done in the end, unless it is cut off."""
    engine = Engine(workspace, tables, progress=progress)
    yield engine
    engine.end()


class SparkTables:
    """The tables of a project, in the warehouse that its settings name."""

    def __init__(self, settings: Settings, on_notice: Callable[[str], None] | None = None) -> None:
        self._settings = settings
        self._on_notice = on_notice
        self._warehouse: Warehouse | None = None

    @property
    def warehouse(self) -> "Warehouse":
        if self._warehouse is None:
            from ondatra_dagster.warehouse.spark_session import Warehouse

            self._warehouse = Warehouse(self._settings, on_notice=self._on_notice)
        return self._warehouse

    @property
    def is_open(self) -> bool:
        """Whether Spark is up."""
        return self._warehouse is not None and self._warehouse.started

    def start_early(self, models: Iterable[Model]) -> None:
        """Let Spark come up while something else is being done, fit for these models."""
        for model in models:
            self._expect(model)
        self.warehouse.start_early()

    def activity(self) -> str:
        """What Spark does just now."""
        return self._warehouse.activity() if self._warehouse else ""

    def compute(self, model: Model, versions: Mapping[str, str], *, is_full: bool = False) -> Any:
        from ondatra_dagster.warehouse.model_run import evaluate

        if not self.warehouse.started:
            self._expect(model)
        return evaluate(self.warehouse, model, versions, is_full=is_full)

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
        from ondatra_dagster.warehouse.model_run import write_model

        return write_model(
            self.warehouse, model, frame, note, is_full=is_full, planned=planned, events=events
        )

    def _expect(self, model: Model) -> None:
        from ondatra_dagster.warehouse.work_size import model_bytes

        self.warehouse.expect(model_bytes(self._settings, model))

    def sync_log(self, *, waits: bool = True) -> LogTable:
        """The table of what was sent; Spark starts when something is appended to it."""
        from ondatra_dagster.warehouse.sync_log import SyncLogTable

        return SyncLogTable(self.warehouse) if waits else SyncLogTable(self.warehouse, wait_seconds=0)

    def upkeep(self, table: Maintained) -> UpkeepTable:
        """A table, to be put in order; Spark starts when something is done to it."""
        from ondatra_dagster.warehouse.upkeep import UpkeepTable

        return UpkeepTable(self.warehouse, table.address, lock=table.lock)

    def clone(self, original: Address, state: TableState, path: Address) -> None:
        """Make a table at `path` of what another one is, for a dry run."""
        from ondatra_dagster.warehouse.clones import clone_table

        clone_table(self.warehouse.session, original, state, path)

    def feed(self, sync: Sync) -> "LazyFeed":
        return self.feed_at(sync, table_path(self._settings, sync.model.id))

    def feed_at(self, sync: Sync, table: Address) -> "LazyFeed":
        """The feed of a table of the sync's model, wherever it is."""
        return LazyFeed(lambda: self._feed(sync, table))

    def _feed(self, sync: Sync, table: Address) -> "ChangeFeed":
        from ondatra_dagster.warehouse.change_feed import ChangeFeed
        from ondatra_dagster.warehouse.upkeep import mend

        mend(self.warehouse, sync.model.id)
        return ChangeFeed(
            warehouse=self.warehouse,
            table=table,
            key_columns=sync.model.key_columns,
            by_key=sync.delivers_by_key,
        )

    def __enter__(self) -> "SparkTables":
        return self

    def __exit__(self, *_: object) -> None:
        if self._warehouse:
            self._warehouse.close()


class LazyFeed:
    """A change feed whose code is loaded when somebody reads: most runs of a sync don't."""

    def __init__(self, opened: Callable[[], Feed]) -> None:
        self._opened = opened

    def segments(self, after: int | None, upto: int) -> Iterator[Segment]:
        yield from self._opened().segments(after, upto)

    def invalid(self, after: int, upto: int) -> Iterator[InvalidRow]:
        yield from self._opened().invalid(after, upto)
