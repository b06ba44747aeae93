"""What a sync run starts from: why it happens, what it has in hand, and how far its queue was."""

import dataclasses
from datetime import datetime
from typing import Self

from ondatra_dagster.delivery.frontier import NOTHING_ENQUEUED
from ondatra_dagster.delivery.queue.tables import Queue
from ondatra_dagster.sync.ports import Ports, SourceState
from ondatra_dagster.sync.sync import Sync

RESYNC = "resync"  # in the queue's notes: the next run sends what was sent before


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Occasion:
    """Why a sync run happens."""

    trigger: str  # the command, the UI, a sensor, a schedule
    dagster_run_id: str | None = None
    allows_deletes: bool = False  # past @max_deletes
    allows_new_state: bool = False  # begins as a first run does, though others have delivered before


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """All that the parts of one run share, as it was when the run began."""

    sync: Sync
    ports: Ports
    occasion: Occasion
    queue: Queue  # open, and nobody else's until the run ends
    source: SourceState
    at: datetime
    watermark: int
    invalid_watermark: int  # the same of the rows that were set aside
    is_resync: bool = False  # whether somebody asked for all rows to go again

    @classmethod
    def of(cls, sync: Sync, ports: Ports, occasion: Occasion, queue: Queue, source: SourceState) -> Self:
        """As it is now; when the queue is brought up to what others know, `looked_again` tells."""
        return cls(
            sync=sync,
            ports=ports,
            occasion=occasion,
            queue=queue,
            source=source,
            at=ports.now(),
            watermark=queue.watermark,
            invalid_watermark=queue.invalid_watermark,
            is_resync=queue.meta(RESYNC) is not None,
        )

    def looked_again(self) -> Self:
        """The same with the watermarks that the queue has by now."""
        return dataclasses.replace(
            self, watermark=self.queue.watermark, invalid_watermark=self.queue.invalid_watermark
        )

    @property
    def version_from(self) -> int | None:
        """None when nothing was enqueued before."""
        return version_of(self.watermark)


def version_of(watermark: int) -> int | None:
    """The version that a watermark stands for, if any."""
    return None if watermark == NOTHING_ENQUEUED else watermark
