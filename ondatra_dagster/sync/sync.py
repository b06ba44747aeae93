"""One sync of the project: a model, the sink that it names, and where its queue is."""

import dataclasses
from contextlib import AbstractContextManager
from pathlib import Path

import orjson

from ondatra_dagster.delivery.push.push_config import PushConfig
from ondatra_dagster.delivery.queue.states import file_of, lock_of, pause_flag
from ondatra_dagster.delivery.queue.tables import Queue
from ondatra_dagster.delivery.shapes import Form, is_by_key, is_whole, open_queue_of, shape_of
from ondatra_dagster.delivery.target import Shape
from ondatra_dagster.project.model import Model, SinkUse
from ondatra_dagster.sync.verdicts import Limits
from ondatra_dagster.tracking.facts import SyncEnds
from ondatra_dagster.tracking.record import Operation


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Sync:
    model: Model
    sink: SinkUse
    config: PushConfig
    library: Path
    state: Path  # .ondatra

    @property
    def id(self) -> str:
        return self.sink.sync_id

    @property
    def queue(self) -> Path:
        return file_of(self.state, self.id)

    @property
    def lock(self) -> Path:
        """Held by the process that writes the queue."""
        return lock_of(self.queue)

    @property
    def journal(self) -> Path:
        return self.queue.with_suffix(".journal")

    def open_queue(self) -> AbstractContextManager[Queue]:
        """The sync's queue, to be written; BusyError when another process does."""
        size = self.config.push.batch_size
        return open_queue_of(self.model.kind, self.queue, batch_size=size, lock=self.lock)

    @property
    def form(self) -> Form:
        """What decides how its units are named and shaped, as far as that is known without the table."""
        model = self.model
        return Form(model.kind.name, model.key_columns, self.config.push.batch_size)

    @property
    def shape(self) -> Shape:
        """What a unit of the queue is."""
        return shape_of(self.model.kind, batch_size=self.config.push.batch_size)

    @property
    def delivers_by_key(self) -> bool:
        """Whether a unit is named by the key's value; else by the rowid, or it is the whole table."""
        return is_by_key(self.model.kind, self.shape)

    @property
    def identifiers_are(self) -> str | None:
        """What one has to search for, where it isn't the value of one column."""
        if not self.delivers_by_key:
            return "the numbers of __ondatra_rowid"
        names = self.model.key_columns
        return f"spelled {orjson.dumps(names).decode()}" if len(names) > 1 else None

    @property
    def is_whole_table(self) -> bool:
        return is_whole(self.model.kind, self.shape)

    @property
    def operation(self) -> Operation:
        """What an insert or an update means at the destination."""
        if self.shape is Shape.MIRROR:
            return Operation.MIRROR
        return Operation.APPEND if self.model.kind.only_adds else Operation.UPSERT

    @property
    def ends(self) -> SyncEnds:
        return SyncEnds(model=self.model.name, destination=self.config.destination, object=self.config.object)

    @property
    def limits(self) -> Limits:
        sink = self.sink
        return Limits(
            max_rejects=sink.max_rejects,
            max_deletes=sink.max_deletes,
            max_lag_seconds=sink.max_lag_seconds,
        )

    @property
    def pause(self) -> Path:
        """The file whose being there holds the sync."""
        return pause_flag(self.queue)
