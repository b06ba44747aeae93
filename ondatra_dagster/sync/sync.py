"""One sync of the project: a model, the sink that it names, and where its queue is."""

import dataclasses
from pathlib import Path

from ondatra_dagster.delivery.push_config import PushConfig
from ondatra_dagster.delivery.queue.states import pause_flag
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
        return self.state / "queue" / f"{self.id}.sqlite"

    @property
    def journal(self) -> Path:
        return self.queue.with_suffix(".journal")

    @property
    def shape(self) -> Shape:
        return Shape.GROUP if self.model.kind.delivers_groups else Shape.ROW

    @property
    def operation(self) -> Operation:
        """What an insert or an update means at the destination."""
        return Operation.UPSERT

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
