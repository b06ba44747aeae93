"""The oldest version of a table that somebody still reads from: syncs, and models that count from then.

A sync needs all changes after its watermark, as its queue has it and as its frontier does, from which it goes
on when the queue is lost. A model that asks what its query gave before needs its inputs as they were.
"""

from collections.abc import Callable, Iterator, Mapping

import orjson

from ondatra_dagster.delivery.frontier import Frontier
from ondatra_dagster.delivery.queue.states import QueueState
from ondatra_dagster.planning.delta_log import COUNTS_FROM, TableState
from ondatra_dagster.planning.versions import Tables
from ondatra_dagster.project.model import Model, ModelInput
from ondatra_dagster.project.project import Project
from ondatra_dagster.sync.sync import Sync
from ondatra_dagster.tracking.store import TrackingStore

Queues = Callable[[str], QueueState | None]  # sync id → its queue


class NeededVersions:
    """Of the tables of one project."""

    def __init__(
        self,
        project: Project,
        syncs: Mapping[str, Sync],
        tracking: TrackingStore,
        queues: Queues,
        tables: Tables,
    ) -> None:
        self._project = project
        self._syncs = {sync.model.id: sync for sync in syncs.values()}
        self._tracking = tracking
        self._queues = queues
        self._tables = tables

    def of_model(self, model: Model, table: TableState) -> int:
        """From which version on the model's table is needed; what reads it now is never older."""
        watermarks = [each.watermark for each in self._marks(model) if each.table_id == table.table_id]
        return min([table.version, *watermarks, *self._counted_from(model, table)])

    def of_invalid(self, model: Model, table: TableState) -> int:
        """The same of the rows that were set aside: a sync that has never looked begins with what is left."""
        return min([table.version, *(each.invalid_watermark for each in self._marks(model))])

    def _marks(self, model: Model) -> Iterator[QueueState | Frontier]:
        """How far the model's sync has come, as all say who know."""
        sync = self._syncs.get(model.id)
        if sync is None:
            return
        for known in (self._queues(sync.id), self._tracking.newest_frontier(sync.id)):
            if known and known.table_id:
                yield known

    def _counted_from(self, model: Model, table: TableState) -> Iterator[int]:
        """The versions that models which read this one will ask for again."""
        for reader in self._project.models.values():
            if model.id in {read.model for read in reader.inputs if isinstance(read, ModelInput)}:
                yield from self._pinned_by(reader, model, table)

    def _pinned_by(self, reader: Model, model: Model, table: TableState) -> Iterator[int]:
        own = self._tables(reader.id) if reader.kind.counts_from_then or reader.incremental else None
        if own is None:
            return
        brought = orjson.loads(own.properties.get(COUNTS_FROM, "{}")).get("inputs", {})
        for inputs in (own.note.inputs if own.note else {}, brought):
            table_id, _, version = inputs.get(model.id, "").rpartition("@")
            if table_id == table.table_id:
                yield int(version)
