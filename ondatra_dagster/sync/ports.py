"""What a sync run needs from outside, as ports: who fills them is decided where the run is started."""

import dataclasses
import random as chance
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from datetime import UTC, datetime
from typing import Protocol

from ondatra_dagster import interruption
from ondatra_dagster.changes import Column, InvalidRow, Segment
from ondatra_dagster.delivery.push.push_port import Push
from ondatra_dagster.sync.records import PUBLISH_SECONDS
from ondatra_dagster.tracking.history import History
from ondatra_dagster.tracking.store import TrackingStore


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class SourceState:
    """The model's table as it stands: read from its log, without Spark."""

    table_id: str
    version: int
    invalid_version: int  # of the table of rows that were set aside; -1 when there is none
    set_aside: int  # how many rows are in that table
    columns: tuple[Column, ...]  # without the hidden ones
    rows: int | None = None  # None: nobody has counted them
    readable_from: int = -1  # the oldest version from which all changes can still be read


class Feed(Protocol):
    """The changes of the model's table. Spark starts when one of them is asked for, not before."""

    def segments(self, after: int | None, upto: int) -> Iterator[Segment]:
        """The versions in (after, upto]; with None the table as it was at `upto`, as inserts."""

    def invalid(self, after: int, upto: int) -> Iterator[InvalidRow]:
        """The rows that were newly set aside in (after, upto] of the table beside it."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Ports:
    source: Callable[[], SourceState | None]  # None: the model hasn't made its table yet
    feed: Feed
    push: Callable[[], AbstractContextManager[Push]]  # opened when there is something to send
    tracking: TrackingStore
    history: History
    hold: Callable[[], str | None] = lambda: None  # why nothing is sent now; a run asks again
    may_ask: bool = True  # about open jobs, also while nothing is sent
    # whether another definition of the model changed rows after that version
    has_old_changes: Callable[[int], bool] = lambda _: False
    is_logged: Callable[[], bool] = lambda: False  # whether the sync log has deliveries of the sync
    notify: Callable[[str], None] = lambda _: None  # tells the user a sentence at once
    publish_seconds: float = PUBLISH_SECONDS
    clock: Callable[[], float] = time.time
    sleep: Callable[[float], None] = interruption.sleep
    random: chance.Random = dataclasses.field(default_factory=chance.SystemRandom)

    def may_send(self) -> bool:
        """Whether nobody holds the sync now; asked before each batch."""
        return self.hold() is None

    def now(self) -> datetime:
        return datetime.fromtimestamp(self.clock(), UTC)
