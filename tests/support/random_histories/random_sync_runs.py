"""A random history of one sync: runs with faults and crashes, while its table changes."""

import dataclasses
import os
import random
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Protocol

from support.random_histories.fake_destinations import DestinationObjects, FaultyDestination, SimulatedCrashError
from support.random_histories.record_audit import RecordAudit

from ondatra_dagster.delivery.acknowledged_to_desired_diff import UnitKind
from ondatra_dagster.delivery.delivery_loop import DeliveryHooks, DeliverySettings, deliver
from ondatra_dagster.delivery.push.push_config import PushSettings
from ondatra_dagster.delivery.queue.claimed_batches import Batch, mark_due_pending
from ondatra_dagster.delivery.queue.dead_letter_reading_and_replay import replay_dead_letters, retry_waiting_now
from ondatra_dagster.delivery.queue.enqueue_changes import enqueue_segment
from ondatra_dagster.delivery.queue.queue_database import Queue, open_queue
from ondatra_dagster.delivery.queue.settle_batch import SettledBatch
from ondatra_dagster.project.model_kinds import KINDS, Kind
from ondatra_dagster.row_changes import FeedSegment, Layout
from ondatra_dagster.sync.whole_table_unit_and_clone_feeds import read_whole_table

WHOLE_TABLE = 0
RUN_ID = "run"
SHAPES = {"merge": UnitKind.ROW, "tracked": UnitKind.GROUP, "scd2": UnitKind.VERSION}
HISTORY_COUNT = 2 * int(os.environ.get("ONDATRA_TEST_HISTORIES", "1"))
SMALL_HISTORY_COUNT = max(2, HISTORY_COUNT // 5)  # for cases that other tests cover with more histories


class FeedTable(Protocol):
    """A table with its feed."""

    @property
    def version(self) -> int: ...

    @property
    def layout(self) -> Layout: ...

    def segments(self, after: int | None, upto: int) -> Iterator[FeedSegment]: ...


@dataclasses.dataclass(frozen=True)
class SinkCase:
    """A kind, and how its rows are sent."""

    kind_name: str
    batch_size: int
    max_concurrent: int = 1

    @property
    def kind(self) -> Kind:
        return KINDS[self.kind_name]

    @property
    def shape(self) -> UnitKind:
        return UnitKind.MIRROR if self.batch_size == WHOLE_TABLE else SHAPES.get(self.kind_name, UnitKind.ROW)

    @property
    def delivers_by_key(self) -> bool:
        return self.kind.delivers_by_key or (self.shape is UnitKind.MIRROR and self.kind.needs_key)


@dataclasses.dataclass
class RandomSyncRuns:
    """A sync from the table to the store."""

    sink: SinkCase
    table: FeedTable
    store: DestinationObjects
    path: Path
    rng: random.Random
    audit: RecordAudit | None = None  # None where a test doesn't check the records

    def __post_init__(self) -> None:
        self.destination = FaultyDestination(self.store, self.rng)

    def open_queue(self) -> AbstractContextManager[Queue]:
        replaces_rows = self.sink.kind.replaces_rows and self.sink.shape is not UnitKind.MIRROR
        return open_queue(self.path, shape=self.sink.shape, replaces_rows=replaces_rows)

    def run(self) -> None:
        """Run once, perhaps until a crash; sometimes with a retry of waiting rows or a replay of dead letters."""
        with self.open_queue() as queue:
            try:
                run_id = self.audit.begin_run(queue) if self.audit else RUN_ID
                self._enqueue_changes(queue)
                if self.rng.random() < 0.5:
                    retry_waiting_now(queue)
                if self.rng.random() < 0.3:
                    replay_dead_letters(queue, now=1.0)
                self._deliver_batches(queue, run_id)
                if self.audit:
                    self.audit.end_run(queue, run_id)
            except SimulatedCrashError:
                return

    def finish_without_faults(self) -> list[object]:
        """Deliver all without faults, with retries and replays; return what is still in the queue."""
        self.destination.has_faults = False
        if self.audit:
            self.audit.store.has_faults = False
        with self.open_queue() as queue:
            self._enqueue_changes(queue)
            # a frozen batch ends as its journal says, or is given up; a later round sends what is left
            for _ in range(3):
                run_id = self.audit.begin_run(queue) if self.audit else RUN_ID
                retry_waiting_now(queue)
                replay_dead_letters(queue, now=1.0)
                self._deliver_batches(queue, run_id)
                if self.audit:
                    self.audit.end_run(queue, run_id)
            return [*queue.store.fetch_rows("select * from unit"), *queue.store.fetch_rows("select * from batch")]

    def _enqueue_changes(self, queue: Queue) -> None:
        if self.table.version > queue.watermark:
            for segment in self._read_segments(queue.watermark):
                enqueue_segment(queue, self.audit.remember_segment(segment) if self.audit else segment, now=1.0)

    def _read_segments(self, watermark: int) -> list[FeedSegment]:
        table = self.table
        if self.sink.shape is UnitKind.MIRROR and not self.sink.kind.needs_key:
            columns = table.layout.columns
            return [read_whole_table(table, after=watermark, upto=table.version, columns=columns)]
        return list(table.segments(None if watermark < 0 else watermark, table.version))

    def _deliver_batches(self, queue: Queue, run_id: str) -> None:
        course = DeliverySettings(
            run_id=run_id,
            journal_path=self.path.with_suffix(".journal"),
            push=PushSettings(batch_size=self.sink.batch_size, max_attempts=3, max_concurrent=self.sink.max_concurrent),
        )

        def publish_records(batch: Batch, settled_batch: SettledBatch) -> None:
            if self.audit:
                self.audit.maybe_publish(queue, run_id)

        mark_due_pending(queue, 1.0)
        deliver(queue, self.destination, course, DeliveryHooks(clock=lambda: 1.0, on_settled=publish_records))
