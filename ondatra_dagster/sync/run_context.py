"""The context of a sync run: its ports to the outside, its options, the state in which it started, and its id."""

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
    """The current state of the model's table, read from its Delta log without Spark."""

    table_id: str
    version: int
    invalid_version: int  # version of the table of invalid rows; -1 if that table doesn't exist
    invalid_count: int  # rows in that table
    columns: tuple[Column, ...]  # without hidden columns
    row_count: int | None = None  # None: not counted
    oldest_readable_version: int = -1  # the oldest version from which all changes can still be read


class Feed(Protocol):
    """The changes of the model's table. Spark starts only when they are read."""

    def segments(self, after: int | None, upto: int) -> Iterator[FeedSegment]:
        """Yield the changes of the versions after `after`, up to `upto`.

        If `after` is None, yield all rows of the table at version `upto` as inserts.
        """

    def invalid_rows(self, after: int, upto: int) -> Iterator[InvalidRow]:
        """Yield the rows that became invalid after version `after`, up to `upto`, of the table of invalid rows."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Ports:
    read_source: Callable[[], SourceState | None]  # None: the model has no table yet
    feed: Feed
    open_push: Callable[[], AbstractContextManager[BatchSink]]  # called when there is something to send
    record_store: RecordStore
    history: RunHistory
    find_hold_reason: Callable[[], str | None] = lambda: None  # why nothing is sent now; a run asks repeatedly
    may_poll: bool = True  # whether open jobs may be polled, even while nothing is sent
    # whether another definition of the model changed rows after this version
    has_old_changes: Callable[[int], bool] = lambda _: False
    is_in_sync_log: Callable[[], bool] = lambda: False  # whether the sync log has deliveries of the sync
    notify: Callable[[str], None] = lambda _: None  # shows the user a sentence at once
    publish_seconds: float = PUBLISH_SECONDS
    clock: Callable[[], float] = time.time
    sleep: Callable[[float], None] = interruption.sleep
    random: chance.Random = dataclasses.field(default_factory=chance.SystemRandom)

    def may_send(self) -> bool:
        """Return whether the sync may send now; a run asks before each batch."""
        return self.find_hold_reason() is None

    def now(self) -> datetime:
        return datetime.fromtimestamp(self.clock(), UTC)


RESYNC_REQUEST = "resync"  # in the queue's metadata: the next run sends again what was sent before


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    """The options of a sync run, and what triggered it."""

    trigger: str  # the command, the UI, a sensor, a schedule
    dagster_run_id: str | None = None
    allows_deletes: bool = False  # send more deletes than @max_deletes allows
    allows_new_state: bool = False  # start like a first run, although another state folder has delivered


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class RunContext:
    """The values that all steps of one run share, read when the run began."""

    sync: Sync
    ports: Ports
    options: RunOptions
    queue: Queue  # open; no other process uses it until the run ends
    source: SourceState
    started_at: datetime
    watermark: int
    invalid_watermark: int  # the watermark of the table of invalid rows
    is_resync: bool = False  # whether the user asked to send all rows again

    @classmethod
    def create(cls, sync: Sync, ports: Ports, options: RunOptions, queue: Queue, source: SourceState) -> Self:
        """Create the context with the queue's present state; with_current_watermarks() updates it after a recovery."""
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
        """Return the context with the queue's present watermarks."""
        return dataclasses.replace(self, watermark=self.queue.watermark, invalid_watermark=self.queue.invalid_watermark)

    @property
    def version_from(self) -> int | None:
        """Return the last table version that was enqueued before the run; None if there was none."""
        return version_of_watermark(self.watermark)


def version_of_watermark(watermark: int) -> int | None:
    """Return the table version of a watermark; None if nothing has been enqueued."""
    return None if watermark == NOTHING_ENQUEUED else watermark


_TIME_FORMAT = "%Y%m%dT%H%M%SZ"
_RANDOM_LETTERS = 6


def create_run_id(now: datetime, *, after: str | None, random: chance.Random) -> str:
    """Return a run id that sorts after `after`, the newest id, even in the same second or after a clock change."""
    run_time = now.astimezone(UTC)
    if after is not None and run_time.strftime(_TIME_FORMAT) <= after.partition("-")[0]:
        run_time = datetime.strptime(after.partition("-")[0], _TIME_FORMAT).replace(tzinfo=UTC) + timedelta(seconds=1)
    random_letters = "".join(random.choice(string.ascii_lowercase) for _ in range(_RANDOM_LETTERS))
    return f"{run_time.strftime(_TIME_FORMAT)}-{random_letters}"


def parse_start_time(run_id: str) -> datetime | None:
    """Return the start of a run, as its id contains it; None if the text isn't a run id."""
    try:
        return datetime.strptime(run_id.partition("-")[0], _TIME_FORMAT).replace(tzinfo=UTC)
    except ValueError:
        return None
