"""The oldest version of a table that a sync or an incremental model still reads.

A sync needs all changes after two watermarks: the one in its queue, and the one in its snapshot. A lost queue
is rebuilt from this snapshot. A model that compares with its earlier results needs the input versions of these
results.
"""

from collections.abc import Callable, Iterator, Mapping

import orjson

from ondatra_dagster.delivery.queue.queue_status import QueueStatus
from ondatra_dagster.delivery.queue.snapshot_and_restore import QueueSnapshot
from ondatra_dagster.deltalog.log_reader import INPUT_BASELINE_PROPERTY, TableState
from ondatra_dagster.planning.find_table_and_columns import TableStateLookup
from ondatra_dagster.project.model import Model, ModelInput
from ondatra_dagster.project.project import Project
from ondatra_dagster.records.record_store import RecordStore
from ondatra_dagster.sync.sync_definition import Sync

ReadQueueState = Callable[[str], QueueStatus | None]  # sync id → status of the sync's queue


class OldestNeededVersions:
    """The oldest versions of one project's tables that are still needed."""

    def __init__(
        self,
        project: Project,
        syncs: Mapping[str, Sync],
        tracking: RecordStore,
        queues: ReadQueueState,
        tables: TableStateLookup,
    ) -> None:
        self._project = project
        self._syncs = {sync.model.id: sync for sync in syncs.values()}
        self._tracking = tracking
        self._queues = queues
        self._tables = tables

    def oldest_for_model(self, model: Model, table: TableState) -> int:
        """Return the oldest version of the model's table that is still needed; it is at most the current version."""
        watermarks = [
            position.watermark for position in self._sync_positions(model) if position.table_id == table.table_id
        ]
        return min([table.version, *watermarks, *self._versions_of_readers(model, table)])

    def oldest_for_invalid_rows(self, model: Model, table: TableState) -> int:
        """Return the oldest version of the model's table of invalid rows that is still needed.

        A sync that has never read invalid rows begins with the rows that are left.
        """
        return min([table.version, *(position.invalid_watermark for position in self._sync_positions(model))])

    def _sync_positions(self, model: Model) -> Iterator[QueueStatus | QueueSnapshot]:
        """Yield the position of the model's sync in its queue, and its position in the newest snapshot."""
        sync = self._syncs.get(model.id)
        if sync is None:
            return
        for position in (self._queues(sync.id), self._tracking.read_newest_snapshot(sync.id)):
            if position and position.table_id:
                yield position

    def _versions_of_readers(self, model: Model, table: TableState) -> Iterator[int]:
        """Yield the versions of this model's table that models which read it will read again."""
        for reader in self._project.models.values():
            if model.id in {model_input.model for model_input in reader.inputs if isinstance(model_input, ModelInput)}:
                yield from self._versions_of_reader(reader, model, table)

    def _versions_of_reader(self, reader: Model, model: Model, table: TableState) -> Iterator[int]:
        reader_table = self._tables(reader.id) if reader.kind.uses_input_baseline or reader.incremental else None
        if reader_table is None:
            return
        baseline_inputs = orjson.loads(reader_table.properties.get(INPUT_BASELINE_PROPERTY, "{}")).get("inputs", {})
        for inputs in (reader_table.commit_metadata.inputs if reader_table.commit_metadata else {}, baseline_inputs):
            table_id, _, version = inputs.get(model.id, "").rpartition("@")
            if table_id == table.table_id:
                yield int(version)
