"""A sync made of ondatra's real parts, except the table: its feed has rows that are generated when they are read."""

import contextlib
import dataclasses
import logging
import time
from collections.abc import Iterator
from pathlib import Path

import orjson

from bench.sample_rows import COLUMNS, build_row
from ondatra_dagster.delivery.acknowledged_to_desired_diff import UnitKind
from ondatra_dagster.delivery.delivery_loop import DeliveryHooks, DeliverySettings, deliver
from ondatra_dagster.delivery.push.push_file_parser import parse_push_file
from ondatra_dagster.delivery.push.starlark.load_and_call_push_functions import PushContext
from ondatra_dagster.delivery.push.starlark_sink_and_batch_halving import StarlarkSink, open_starlark_sink
from ondatra_dagster.delivery.queue.enqueue_changes import enqueue_segment
from ondatra_dagster.delivery.queue.queue_database import Queue, open_queue
from ondatra_dagster.project.model import Model, ModelSink
from ondatra_dagster.project.model_kinds import KINDS
from ondatra_dagster.records.record_schema import RecordOperation
from ondatra_dagster.records.record_store import RecordStore
from ondatra_dagster.row_changes import ChangeType, Column, FeedPage, FeedSegment, InvalidRow, Layout, RowChange
from ondatra_dagster.sync.run_context import Ports, RunOptions, SourceState
from ondatra_dagster.sync.run_history_store import RunHistory
from ondatra_dagster.sync.sync_definition import Sync
from ondatra_dagster.sync.sync_run import run_sync

LAYOUT = Layout(tuple(Column(name, "string") for name in COLUMNS))
PAGE_ROWS = 10_000
RUN_ID = "20261118T120000Z-abcdef"
OPERATION = RecordOperation.UPSERT

# one call per batch, or one call per row; the hidden columns are left out, as in the handwritten loops
PUSH = """
API = {"base_url": "%s", "push": {"batch_size": %d}}

def push(rows):
    keys = [str(row.pop("__ondatra_rowid")) + ":" + row.pop("__ondatra_change_type") for row in rows]
    return %s

def status(answer):
    return "ok" if answer.ok else "error: " + answer.text
"""
BATCH_CALL = 'dict([(key, status) for status in [status(http.post("/rows", json = rows))] for key in keys])'
ROW_CALL = '{key: status(http.post("/rows", json = row)) for key, row in zip(keys, rows)}'


@dataclasses.dataclass(frozen=True, slots=True)
class GeneratedTable:
    """A table of `count` rows that all have the same version."""

    count: int
    version: int = 1

    def source(self) -> SourceState:
        return SourceState(
            table_id="table", version=self.version, invalid_version=-1, invalid_count=0, columns=LAYOUT.columns
        )

    def segments(self, after: int | None, upto: int) -> Iterator[FeedSegment]:
        yield FeedSegment(-1, upto, self.pages())

    def invalid_rows(self, after: int, upto: int) -> Iterator[InvalidRow]:
        yield from ()

    def pages(self) -> Iterator[FeedPage]:
        for start in range(0, self.count, PAGE_ROWS):
            numbers = range(start, min(start + PAGE_ROWS, self.count))
            yield FeedPage(LAYOUT, [self._change(number) for number in numbers])

    def _change(self, number: int) -> RowChange:
        payload = orjson.dumps(list(build_row(number).values())).decode()
        return RowChange(f"{number:09}", number, ChangeType.INSERT, self.version, payload)


@dataclasses.dataclass(frozen=True, slots=True)
class SyncFolder:
    """A folder with a push function in it."""

    state: Path

    @classmethod
    def create(cls, state: Path, url: str, size: int) -> "SyncFolder":
        logging.disable(logging.WARNING)
        body, batch = (ROW_CALL, 100) if size == 1 else (BATCH_CALL, size)
        (state / "lib").mkdir()
        (state / "lib" / "api.star").write_text(PUSH % (url, batch, body), encoding="utf-8")
        return cls(state)

    @property
    def sync(self) -> Sync:
        library = self.state / "lib" / "api.star"
        source, problems = parse_push_file(library, "lib/api.star")
        if source is None:
            raise SystemExit(f"the bench's own push function is wrong: {problems}")
        sink = ModelSink(name="api", arguments=(), sync_id="sync.api", line=1)
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
        return Sync(model=model, sink=sink, push_config=source.config, push_library=library, state_folder=self.state)

    def pusher(self) -> contextlib.AbstractContextManager[StarlarkSink]:
        context = PushContext(sync_id="sync.api", kind="merge", key_columns=("id",), arguments=())
        return open_starlark_sink(self.sync.push_library, context, secrets=lambda _: None, rates=self.state / "rates")

    def queue(self) -> contextlib.AbstractContextManager[Queue]:
        return open_queue(self.state / "queue" / "sync.api.sqlite", shape=UnitKind.ROW)

    def run_first_sync(self, rows: int) -> float:
        """Return the seconds of a first sync, from its feed to its records and queue snapshot."""
        table = GeneratedTable(rows)
        ports = Ports(
            read_source=table.source,
            feed=table,
            open_push=self.pusher,
            record_store=RecordStore(str(self.state / "tracking")),
            history=RunHistory(self.state / "history.sqlite"),
        )
        start_time = time.perf_counter()
        run_sync(self.sync, ports, RunOptions(trigger="bench"))
        return time.perf_counter() - start_time


def fill_queue(queue: Queue, rows: int, *, version: int) -> None:
    enqueue_segment(queue, FeedSegment(version - 1, version, GeneratedTable(rows, version).pages()), now=time.time())


def deliver_queue(place: SyncFolder, queue: Queue, push: StarlarkSink) -> float:
    """Return the seconds in which all rows in the queue are delivered, settled and recorded."""
    sync = place.sync
    settings = DeliverySettings.from_config(sync.push_config, run_id=RUN_ID, journal=sync.journal_file)
    start_time = time.perf_counter()
    deliver(queue, push, settings, DeliveryHooks(clock=time.time, on_settled=lambda batch, rows: None))
    return time.perf_counter() - start_time
