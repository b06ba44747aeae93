"""The context of a sync run: its id, its ports to the outside, its options, and the state in which it started."""

import dataclasses
import random as chance
import string
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from datetime import UTC, datetime, timedelta
from typing import Protocol, Self

from ondatra_dagster import interruption
from ondatra_dagster.delivery.push.push_interface import BatchSink
from ondatra_dagster.delivery.queue.queue_database import NOTHING_ENQUEUED, Queue
from ondatra_dagster.records.record_store import RecordStore
from ondatra_dagster.row_changes import Column, FeedSegment, InvalidRow
from ondatra_dagster.sync.record_publisher import PUBLISH_SECONDS
from ondatra_dagster.sync.run_history_store import RunHistory
from ondatra_dagster.sync.sync_definition import Sync


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class SourceState:
    """The current state of the model's table, read from its log without Spark."""

    table_id: str
    version: int
    invalid_version: int  # of the table of rows that were set aside; -1 when there is none
    invalid_count: int  # how many rows are in that table
    columns: tuple[Column, ...]  # without the hidden ones
    row_count: int | None = None  # None: nobody has counted them
    oldest_readable_version: int = -1  # the oldest version from which all changes can still be read


class Feed(Protocol):
    """The changes of the model's table. Spark starts when they are read, not before."""

    def segments(self, after: int | None, upto: int) -> Iterator[FeedSegment]:
        """The versions in (after, upto]; with None the table as it was at `upto`, as inserts."""

    def invalid_rows(self, after: int, upto: int) -> Iterator[InvalidRow]:
        """The rows that were newly set aside in (after, upto] of the table beside it."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Ports:
    read_source: Callable[[], SourceState | None]  # None: the model hasn't made its table yet
    feed: Feed
    open_push: Callable[[], AbstractContextManager[BatchSink]]  # opened when there is something to send
    record_store: RecordStore
    history: RunHistory
    find_hold_reason: Callable[[], str | None] = lambda: None  # why nothing is sent now; a run asks again
    may_poll: bool = True  # about open jobs, also while nothing is sent
    # whether another definition of the model changed rows after that version
    has_old_changes: Callable[[int], bool] = lambda _: False
    is_in_sync_log: Callable[[], bool] = lambda: False  # whether the sync log has deliveries of the sync
    notify: Callable[[str], None] = lambda _: None  # tells the user a sentence at once
    publish_seconds: float = PUBLISH_SECONDS
    clock: Callable[[], float] = time.time
    sleep: Callable[[float], None] = interruption.sleep
    random: chance.Random = dataclasses.field(default_factory=chance.SystemRandom)

    def may_send(self) -> bool:
        """Whether nobody holds the sync now; asked before each batch."""
        return self.find_hold_reason() is None

    def now(self) -> datetime:
        return datetime.fromtimestamp(self.clock(), UTC)


RESYNC_REQUEST = "resync"  # in the queue's notes: the next run sends what was sent before


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    """The options of a sync run, and what triggered it."""

    trigger: str  # the command, the UI, a sensor, a schedule
    dagster_run_id: str | None = None
    allows_deletes: bool = False  # past @max_deletes
    allows_new_state: bool = False  # begins as a first run does, though others have delivered before


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class RunContext:
    """The values that all steps of one run share, read when the run began."""

    sync: Sync
    ports: Ports
    options: RunOptions
    queue: Queue  # open, and nobody else's until the run ends
    source: SourceState
    started_at: datetime
    watermark: int
    invalid_watermark: int  # the same of the rows that were set aside
    is_resync: bool = False  # whether somebody asked for all rows to go again

    @classmethod
    def create(cls, sync: Sync, ports: Ports, options: RunOptions, queue: Queue, source: SourceState) -> Self:
        """Build the context as it is now; with_current_watermarks() updates it after the queue was recovered."""
        return cls(
            sync=sync,
            ports=ports,
            options=options,
            queue=queue,
            source=source,
            started_at=ports.now(),
            watermark=queue.watermark,
            invalid_watermark=queue.invalid_watermark,
            is_resync=queue.read_meta(RESYNC_REQUEST) is not None,
        )

    def with_current_watermarks(self) -> Self:
        """The same with the watermarks that the queue has by now."""
        return dataclasses.replace(self, watermark=self.queue.watermark, invalid_watermark=self.queue.invalid_watermark)

    @property
    def version_from(self) -> int | None:
        """None when nothing was enqueued before."""
        return version_of_watermark(self.watermark)


def version_of_watermark(watermark: int) -> int | None:
    """The version that a watermark stands for, if any."""
    return None if watermark == NOTHING_ENQUEUED else watermark


_TIME_FORMAT = "%Y%m%dT%H%M%SZ"
_RANDOM_LETTERS = 6


def create_run_id(now: datetime, *, after: str | None, random: chance.Random) -> str:
    """An id that sorts behind `after`, the newest one: within one second too, and if the clock goes back."""
    moment = now.astimezone(UTC)
    if after is not None and moment.strftime(_TIME_FORMAT) <= after.partition("-")[0]:
        moment = datetime.strptime(after.partition("-")[0], _TIME_FORMAT).replace(tzinfo=UTC) + timedelta(seconds=1)
    letters = "".join(random.choice(string.ascii_lowercase) for _ in range(_RANDOM_LETTERS))
    return f"{moment.strftime(_TIME_FORMAT)}-{letters}"


def parse_start_time(run_id: str) -> datetime | None:
    """When a run began, as its id says; None of what isn't one."""
    try:
        return datetime.strptime(run_id.partition("-")[0], _TIME_FORMAT).replace(tzinfo=UTC)
    except ValueError:
        return None
