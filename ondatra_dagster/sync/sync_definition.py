"""A sync of the project: a model, the sink that it names, and the paths of its queue."""

import dataclasses
from contextlib import AbstractContextManager
from pathlib import Path

import orjson

from ondatra_dagster.delivery.acknowledged_to_desired_diff import UnitKind
from ondatra_dagster.delivery.push.push_config import PushConfig
from ondatra_dagster.delivery.queue.queue_database import Queue, pause_flag_path, queue_file_path, queue_lock_path
from ondatra_dagster.delivery.unit_shape_by_model_kind import UnitFormat, is_named_by_key, open_queue_for
from ondatra_dagster.project.model import Model, ModelSink
from ondatra_dagster.records.record_schema import RecordOperation
from ondatra_dagster.records.source_and_destination_tables import SyncEndpoints
from ondatra_dagster.sync.sync_checks import SyncLimits


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Sync:
    model: Model
    sink: ModelSink
    push_config: PushConfig
    push_library: Path
    state_folder: Path  # .ondatra

    @property
    def id(self) -> str:
        return self.sink.sync_id

    @property
    def queue_file(self) -> Path:
        return queue_file_path(self.state_folder, self.id)

    @property
    def lock_file(self) -> Path:
        """Return the path of the queue's lock file; the process that writes the queue holds the lock."""
        return queue_lock_path(self.queue_file)

    @property
    def journal_file(self) -> Path:
        return self.queue_file.with_suffix(".journal")

    def open_queue(self) -> AbstractContextManager[Queue]:
        """Open the sync's queue for writing; raise BusyError if another process has it open for writing."""
        return open_queue_for(self.unit_format, self.queue_file, lock=self.lock_file)

    @property
    def unit_format(self) -> UnitFormat:
        """Return the format of the queue's units: kind, key columns and batch size.

        The types of the key columns are missing, because only the table has them.
        """
        model = self.model
        return UnitFormat(model.kind.name, model.key_columns, self.push_config.push.batch_size)

    @property
    def unit_shape(self) -> UnitKind:
        """Return the kind of the queue's units, such as groups or a mirror."""
        return self.unit_format.unit_kind

    @property
    def delivers_by_key(self) -> bool:
        """Return whether the name of a unit is its key's value.

        Otherwise the name is the rowid, or the unit is the whole table.
        """
        return is_named_by_key(self.model.kind, self.unit_shape)

    @property
    def identifier_hint(self) -> str | None:
        """Return a description of the sync's identifiers for a search; None if they are the values of one column."""
        if not self.delivers_by_key:
            return "the numbers of __ondatra_rowid"
        names = self.model.key_columns
        return f"spelled {orjson.dumps(names).decode()}" if len(names) > 1 else None

    @property
    def is_whole_table(self) -> bool:
        return self.unit_format.is_whole_table

    @property
    def operation(self) -> RecordOperation:
        """Return the operation that the records have for inserts and updates: mirror, append or upsert."""
        if self.unit_shape is UnitKind.MIRROR:
            return RecordOperation.MIRROR
        return RecordOperation.APPEND if self.model.kind.is_insert_only else RecordOperation.UPSERT

    @property
    def endpoints(self) -> SyncEndpoints:
        return SyncEndpoints(
            model=self.model.name, destination=self.push_config.destination, object=self.push_config.object
        )

    @property
    def limits(self) -> SyncLimits:
        sink = self.sink
        return SyncLimits(
            max_rejects=sink.max_rejects, max_deletes=sink.max_deletes, max_lag_seconds=sink.max_lag_seconds
        )

    @property
    def pause_file(self) -> Path:
        """Return the path of the pause file. The sync is paused while this file exists."""
        return pause_flag_path(self.queue_file)
