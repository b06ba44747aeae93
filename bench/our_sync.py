"""A sync made of our real parts, but for the table: its feed is rows that are made as they are asked for."""

import contextlib
import dataclasses
import logging
import time
from collections.abc import Iterator
from pathlib import Path

import orjson

from bench.rows import COLUMNS, row
from ondatra_dagster.changes import Change, ChangeType, Column, FeedPage, InvalidRow, Layout, Segment
from ondatra_dagster.delivery.deliver import Course, deliver
from ondatra_dagster.delivery.push.push_source import read_source
from ondatra_dagster.delivery.push.pusher import PushContext, Pusher, open_pusher
from ondatra_dagster.delivery.queue.enqueue import enqueue
from ondatra_dagster.delivery.queue.tables import Queue, open_queue
from ondatra_dagster.delivery.target import Shape
from ondatra_dagster.project.kinds import KINDS
from ondatra_dagster.project.model import Model, SinkUse
from ondatra_dagster.sync.ports import Ports, SourceState
from ondatra_dagster.sync.run import run_sync
from ondatra_dagster.sync.start import Occasion
from ondatra_dagster.sync.sync import Sync
from ondatra_dagster.tracking.history import History
from ondatra_dagster.tracking.record import Operation
from ondatra_dagster.tracking.store import TrackingStore

LAYOUT = Layout(tuple(Column(name, "string") for name in COLUMNS))
PAGE_ROWS = 10_000
RUN_ID = "20261118T120000Z-abcdef"
OPERATION = Operation.UPSERT

# a call a batch, and a call a row: the rows without what is ours, as the loops send them
PUSH = """
API = {"base_url": "%s", "push": {"batch_size": %d}}

def push(rows):
    keys = [str(row.pop("__ondatra_rowid")) + ":" + row.pop("__ondatra_change_type") for row in rows]
    return %s

def status(answer):
    return "ok" if answer.ok else "error: " + answer.text
"""
A_CALL_A_BATCH = (
    'dict([(key, status) for status in [status(http.post("/rows", json = rows))] for key in keys])'
)
A_CALL_A_ROW = '{key: status(http.post("/rows", json = row)) for key, row in zip(keys, rows)}'


@dataclasses.dataclass(frozen=True, slots=True)
class Rows:
    """A table of so many rows, all of one version."""

    count: int
    version: int = 1

    def source(self) -> SourceState:
        return SourceState(
            table_id="table", version=self.version, invalid_version=-1, set_aside=0, columns=LAYOUT.columns
        )

    def segments(self, after: int | None, upto: int) -> Iterator[Segment]:
        yield Segment(-1, upto, self.pages())

    def invalid(self, after: int, upto: int) -> Iterator[InvalidRow]:
        yield from ()

    def pages(self) -> Iterator[FeedPage]:
        for start in range(0, self.count, PAGE_ROWS):
            numbers = range(start, min(start + PAGE_ROWS, self.count))
            yield FeedPage(LAYOUT, [self._change(number) for number in numbers])

    def _change(self, number: int) -> Change:
        payload = orjson.dumps(list(row(number).values())).decode()
        return Change(f"{number:09}", number, ChangeType.INSERT, self.version, payload)


@dataclasses.dataclass(frozen=True, slots=True)
class Place:
    """A folder with the push function in it."""

    state: Path

    @classmethod
    def make(cls, state: Path, url: str, size: int) -> "Place":
        logging.disable(logging.WARNING)
        body, batch = (A_CALL_A_ROW, 100) if size == 1 else (A_CALL_A_BATCH, size)
        (state / "lib").mkdir()
        (state / "lib" / "api.star").write_text(PUSH % (url, batch, body), encoding="utf-8")
        return cls(state)

    @property
    def sync(self) -> Sync:
        library = self.state / "lib" / "api.star"
        source, problems = read_source(library, "lib/api.star")
        if source is None:
            raise SystemExit(f"the bench's own push function is wrong: {problems}")
        sink = SinkUse(name="api", arguments=(), sync_id="sync.api", line=1)
        model = Model(
            name="sync.api",
            path=self.state / "api.sql",
            file="models/sync/api.sql",
            kind=KINDS["merge"],
            sql="select 1",
            sql_line=1,
            definition="",
            key_columns=("id",),
            sink=sink,
        )
        return Sync(model=model, sink=sink, config=source.config, library=library, state=self.state)

    def pusher(self) -> contextlib.AbstractContextManager[Pusher]:
        context = PushContext(sync_id="sync.api", kind="merge", key_columns=("id",), arguments=())
        return open_pusher(self.sync.library, context, secrets=lambda _: None, rates=self.state / "rates")

    def queue(self) -> contextlib.AbstractContextManager[Queue]:
        return open_queue(self.state / "queue" / "sync.api.sqlite", shape=Shape.ROW)

    def run(self, rows: int) -> float:
        """Seconds of a first sync, from its feed to its records and its frontier."""
        table = Rows(rows)
        ports = Ports(
            source=table.source,
            feed=table,
            push=self.pusher,
            tracking=TrackingStore(str(self.state / "tracking")),
            history=History(self.state / "history.sqlite"),
        )
        began = time.perf_counter()
        run_sync(self.sync, ports, Occasion(trigger="bench"))
        return time.perf_counter() - began


def fill(queue: Queue, rows: int, *, version: int) -> None:
    enqueue(queue, Segment(version - 1, version, Rows(rows, version).pages()), now=time.time())


def empty(place: Place, queue: Queue, push: Pusher) -> float:
    """Seconds from queued to settled and recorded, of all that the queue holds."""
    sync = place.sync
    course = Course.of(sync.config, run_id=RUN_ID, journal=sync.journal)
    began = time.perf_counter()
    deliver(queue, push, course, clock=time.time, on_settled=lambda batch, settled: None)
    return time.perf_counter() - began
