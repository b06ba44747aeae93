"""The protocols through which the app calls the warehouse, a dry run's clones, or a test's tables."""

from collections.abc import Iterable, Mapping
from typing import Any, Protocol

from ondatra_dagster.deltalog.commit_metadata import CommitMetadata
from ondatra_dagster.deltalog.log_reader import TableState
from ondatra_dagster.event_batches import EventBatchSource
from ondatra_dagster.operations.sync_log_appender import LogTable
from ondatra_dagster.operations.table_maintenance import MaintainableTable, ManagedTable
from ondatra_dagster.project.model import Model
from ondatra_dagster.project.settings.storage_access import StorageAddress
from ondatra_dagster.sync.run_context import Feed
from ondatra_dagster.sync.sync_definition import Sync
from ondatra_dagster.warehouse.write_and_check_results import ModelWriteResult


class RunTables(Protocol):
    """The tables of a project, as a run uses them."""

    def compute(self, model: Model, versions: Mapping[str, str], *, is_full: bool = False) -> Any:
        """Return what the model's query gives from its inputs at these versions: a DataFrame."""

    def write(
        self,
        model: Model,
        frame: Any,
        note: CommitMetadata,
        *,
        is_full: bool = False,
        planned: str | None = None,
        events: EventBatchSource | None = None,
    ) -> ModelWriteResult:
        """Bring the model's table to the frame, or the events to the table.

        Raises ChecksFailedError when rows fail the model's checks.
        """

    def feed(self, sync: Sync) -> Feed: ...
    def sync_log(self, *, waits: bool = True) -> LogTable:
        """Return the table of sent records; with `waits`, wait for its lock."""

    def open_for_maintenance(self, table: ManagedTable) -> MaintainableTable:
        """Open a table for maintenance."""

    @property
    def is_open(self) -> bool:
        """Whether Spark is up, so that nothing has to be started."""

    def start_early(self, models: Iterable[Model]) -> None: ...
    def activity(self) -> str:
        """Return what is being done just now; "" where it is unknown."""


class CloningTables(RunTables, Protocol):
    """Tables that a dry run can clone."""

    def clone(self, original: StorageAddress, state: TableState, path: StorageAddress) -> None:
        """Create a table at `path` as a clone of another one."""

    def feed_at(self, sync: Sync, table: StorageAddress) -> Feed:
        """Return the change feed of a table of the sync's model, wherever the table is."""
