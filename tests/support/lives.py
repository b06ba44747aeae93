"""Lives of one sync: runs that meet faults and end early, beside a table that goes on changing."""

import dataclasses
import os
import random
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Protocol

from support.books import Books
from support.destinations import Destination, KilledError, Store

from ondatra_dagster.changes import Layout, Segment
from ondatra_dagster.delivery.deliver import Course, deliver
from ondatra_dagster.delivery.queue.claim import Batch, make_due
from ondatra_dagster.delivery.queue.enqueue import enqueue
from ondatra_dagster.delivery.queue.letters import hasten, replay
from ondatra_dagster.delivery.queue.settle import Settled
from ondatra_dagster.delivery.queue.tables import Queue, open_queue
from ondatra_dagster.delivery.target import Shape
from ondatra_dagster.project.kinds import KINDS, Kind
from ondatra_dagster.sync.whole_table import whole_segment

WHOLE = 0
RUN = "run"
SHAPES = {"merge": Shape.ROW, "tracked": Shape.GROUP, "scd2": Shape.VERSION}
HISTORIES = 2 * int(os.environ.get("ONDATRA_TEST_HISTORIES", "1"))
FEW = max(2, HISTORIES // 5)  # of what others drive through more


class Source(Protocol):
    """A table with its feed."""

    @property
    def version(self) -> int: ...

    @property
    def layout(self) -> Layout: ...

    def segments(self, after: int | None, upto: int) -> Iterator[Segment]: ...


@dataclasses.dataclass(frozen=True)
class Sink:
    """How a kind's rows go out."""

    name: str
    batch_size: int
    max_concurrent: int = 1

    @property
    def kind(self) -> Kind:
        return KINDS[self.name]

    @property
    def shape(self) -> Shape:
        return Shape.MIRROR if self.batch_size == WHOLE else SHAPES.get(self.name, Shape.ROW)

    @property
    def by_key(self) -> bool:
        return self.kind.delivers_by_key or (self.shape is Shape.MIRROR and self.kind.needs_key)


@dataclasses.dataclass
class Life:
    """A sync of the sink from the table to the store."""

    sink: Sink
    table: Source
    store: Store
    path: Path
    chance: random.Random
    books: Books | None = None  # where somebody wants to know what is kept of it

    def __post_init__(self) -> None:
        self.destination = Destination(self.store, self.chance)

    def open(self) -> AbstractContextManager[Queue]:
        replaces_rows = self.sink.kind.replaces_rows and self.sink.shape is not Shape.MIRROR
        return open_queue(self.path, shape=self.sink.shape, replaces_rows=replaces_rows)

    def run(self) -> None:
        """One run, which may be killed; before it somebody may have asked for what is left."""
        with self.open() as queue:
            try:
                run_id = self.books.begin(queue) if self.books else RUN
                self._take_in(queue)
                if self.chance.random() < 0.5:
                    hasten(queue)
                if self.chance.random() < 0.3:
                    replay(queue, now=1.0)
                self._send(queue, run_id)
                if self.books:
                    self.books.end(queue, run_id)
            except KilledError:
                return

    def end_well(self) -> list[object]:
        """The API recovers, and an operator sends what is left; what is then still in the queue."""
        self.destination.faults = False
        if self.books:
            self.books.store.faults = False
        with self.open() as queue:
            self._take_in(queue)
            # a frozen batch ends as its journal says, or is given up: what is left then goes by itself
            for _ in range(3):
                run_id = self.books.begin(queue) if self.books else RUN
                hasten(queue)
                replay(queue, now=1.0)
                self._send(queue, run_id)
                if self.books:
                    self.books.end(queue, run_id)
            return [*queue.store.rows("select * from unit"), *queue.store.rows("select * from batch")]

    def _take_in(self, queue: Queue) -> None:
        if self.table.version > queue.watermark:
            for segment in self._segments(queue.watermark):
                enqueue(queue, self.books.noted(segment) if self.books else segment, now=1.0)

    def _segments(self, watermark: int) -> list[Segment]:
        table = self.table
        if self.sink.shape is Shape.MIRROR and not self.sink.kind.needs_key:
            columns = table.layout.columns
            return [whole_segment(table, after=watermark, upto=table.version, columns=columns)]
        return list(table.segments(None if watermark < 0 else watermark, table.version))

    def _send(self, queue: Queue, run_id: str) -> None:
        course = Course(
            run_id=run_id,
            batch_size=self.sink.batch_size,
            max_attempts=3,
            max_concurrent=self.sink.max_concurrent,
            journal=self.path.with_suffix(".journal"),
        )

        def settled(batch: Batch, settled: Settled) -> None:
            if self.books:
                self.books.may_publish(queue, run_id)

        make_due(queue, 1.0)
        deliver(queue, self.destination, course, clock=lambda: 1.0, on_settled=settled)
