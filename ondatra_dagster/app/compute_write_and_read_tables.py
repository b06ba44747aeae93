"""The tables of a project as the app uses them: protocols, and their implementation with Spark.

A dry run's clones and a test's tables have the same methods. Spark's code is loaded only when a table is
computed or read.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Protocol

from ondatra_dagster.deltalog.log_reader import TableState
from ondatra_dagster.operations.sync_log_appender import LogTable
from ondatra_dagster.operations.table_maintenance import MaintainableTable, ManagedTable
from ondatra_dagster.planning.find_table_and_columns import table_path
from ondatra_dagster.project.model import Model
from ondatra_dagster.project.settings.read_settings_and_defaults import Settings
from ondatra_dagster.project.settings.storage_access import StorageAddress
from ondatra_dagster.row_changes import FeedSegment, InvalidRow
from ondatra_dagster.sync.run_context import Feed
from ondatra_dagster.sync.sync_definition import Sync
from ondatra_dagster.warehouse.model_write_request import ModelWrite
from ondatra_dagster.warehouse.result_of_write_and_checks import ModelWriteResult

if TYPE_CHECKING:
    from ondatra_dagster.warehouse.change_feed import ChangeFeed
    from ondatra_dagster.warehouse.spark.session import Warehouse


class RunTables(Protocol):
    """The tables of a project with the methods that a run calls."""

    def compute(self, model: Model, versions: Mapping[str, str], *, is_full: bool = False) -> Any:
        """Return the result of the model's query on these versions of its inputs, as a DataFrame."""

    def write(self, write: ModelWrite) -> ModelWriteResult:
        """Write the computed rows, or the stored events, to the model's table.

        Raise ChecksFailedError if the model's checks fail and prevent the write.
        """

    def feed(self, sync: Sync) -> Feed: ...
    def sync_log(self, *, waits: bool = True) -> LogTable:
        """Return the sync log's table. With `waits`, wait for its lock if another process holds the lock."""

    def open_for_maintenance(self, table: ManagedTable) -> MaintainableTable:
        """Open a table for maintenance."""

    @property
    def is_open(self) -> bool:
        """Return whether Spark is running, so that using the tables doesn't have to start it."""

    def start_early(self, models: Iterable[Model]) -> None: ...
    def activity(self) -> str:
        """Return a text about what Spark does now; "" if that is unknown."""


class CloningTables(RunTables, Protocol):
    """The tables of a project that a dry run can clone."""

    def clone(self, original: StorageAddress, state: TableState, path: StorageAddress) -> None:
        """Create a table at `path` as a clone of the table `original`."""

    def feed_at(self, sync: Sync, table: StorageAddress) -> Feed:
        """Return the change feed of the sync's model from the table at this address: the original or a clone."""


class SparkTables:
    """The tables of a project, in the warehouse that the project's settings name."""

    def __init__(self, settings: Settings, on_notice: Callable[[str], None] | None = None) -> None:
        self._settings = settings
        self._on_notice = on_notice
        self._warehouse: Warehouse | None = None

    @property
    def warehouse(self) -> "Warehouse":
        if self._warehouse is None:
            from ondatra_dagster.warehouse.spark.session import Warehouse

            self._warehouse = Warehouse(self._settings, on_notice=self._on_notice)
        return self._warehouse

    @property
    def is_open(self) -> bool:
        """Return whether Spark is running."""
        return self._warehouse is not None and self._warehouse.is_started

    def start_early(self, models: Iterable[Model]) -> None:
        """Start Spark in the background, with settings for the size of these models."""
        for model in models:
            self._announce_work_size(model)
        self.warehouse.start_early()

    def activity(self) -> str:
        """Return a text about what Spark does now; "" if Spark hasn't started."""
        return self._warehouse.activity() if self._warehouse else ""

    def compute(self, model: Model, versions: Mapping[str, str], *, is_full: bool = False) -> Any:
        from ondatra_dagster.warehouse.model_run import evaluate_query

        if not self.warehouse.is_started:
            self._announce_work_size(model)
        return evaluate_query(self.warehouse, model, versions, is_full=is_full)

    def write(self, write: ModelWrite) -> ModelWriteResult:
        from ondatra_dagster.warehouse.model_run import write_model

        return write_model(self.warehouse, write)

    def _announce_work_size(self, model: Model) -> None:
        from ondatra_dagster.warehouse.spark.memory_and_tuning_by_work_size import estimate_model_bytes

        self.warehouse.expect_bytes(estimate_model_bytes(self._settings, model))

    def sync_log(self, *, waits: bool = True) -> LogTable:
        """Return the sync log's table. Spark starts when records are appended to the table."""
        from ondatra_dagster.warehouse.append_to_sync_log_table import SyncLogTable

        return SyncLogTable(self.warehouse) if waits else SyncLogTable(self.warehouse, wait_seconds=0)

    def open_for_maintenance(self, table: ManagedTable) -> MaintainableTable:
        """Return a table for maintenance. Spark starts when a maintenance task works on the table."""
        from ondatra_dagster.warehouse.optimize_and_vacuum import SparkTableMaintenance

        return SparkTableMaintenance(self.warehouse, table.address, lock=table.lock_name)

    def clone(self, original: StorageAddress, state: TableState, path: StorageAddress) -> None:
        """Create a table at `path` as a clone of the table `original`, for a dry run."""
        from ondatra_dagster.warehouse.create_and_write_target_table import clone_table

        clone_table(self.warehouse.session, original, state, path)

    def feed(self, sync: Sync) -> "LazyChangeFeed":
        return self.feed_at(sync, table_path(self._settings, sync.model.id))

    def feed_at(self, sync: Sync, table: StorageAddress) -> "LazyChangeFeed":
        """Return the change feed of the sync's model from the table at this address: the original or a clone."""
        return LazyChangeFeed(lambda: self._open_feed(sync, table))

    def _open_feed(self, sync: Sync, table: StorageAddress) -> "ChangeFeed":
        from ondatra_dagster.warehouse.change_feed import ChangeFeed
        from ondatra_dagster.warehouse.optimize_and_vacuum import finish_interrupted_vacuum

        finish_interrupted_vacuum(self.warehouse, sync.model.id)
        return ChangeFeed(
            warehouse=self.warehouse,
            table=table,
            key_columns=sync.model.key_columns,
            groups_by_key=sync.delivers_by_key,
        )

    def __enter__(self) -> "SparkTables":
        return self

    def __exit__(self, *_: object) -> None:
        if self._warehouse:
            self._warehouse.close()


class LazyChangeFeed:
    """A change feed whose code is loaded at the first read, because most sync runs read no changes."""

    def __init__(self, open_feed: Callable[[], Feed]) -> None:
        self._open_feed = open_feed

    def segments(self, after: int | None, upto: int) -> Iterator[FeedSegment]:
        yield from self._open_feed().segments(after, upto)

    def invalid_rows(self, after: int, upto: int) -> Iterator[InvalidRow]:
        yield from self._open_feed().invalid_rows(after, upto)
