"""The single measurements: `python -m bench.measurements NAME ARGUMENT…` runs one and prints its numbers.

Each measurement runs in a separate process, so that it doesn't inherit the heap, caches or threads of another. The work
before the first row isn't timed: imports, opening files, building rows.
"""

import gc
import json
import resource
import sqlite3
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import sqlglot

from bench.command_times import RunProject
from bench.event_servers import measure_event_rate
from bench.generated_projects import build_queries, write_project, write_tables
from bench.handwritten_loops import LOOPS
from bench.ondatra_sync import OPERATION, RUN_ID, GeneratedTable, SyncFolder, deliver_queue, fill_queue
from bench.record_queries import RecordSearchProject
from ondatra_dagster.delivery.queue.enqueue_changes import CHUNK_KEYS, enqueue_segment
from ondatra_dagster.delivery.queue.queue_database import Queue
from ondatra_dagster.delivery.queue.unpublished_records import (
    FILE_ROWS,
    RECORDS_UPDATED,
    STATUS_SUCCEEDED,
    PushAttempt,
    SettledRow,
    begin_run,
    store_settled_rows,
)
from ondatra_dagster.project.project_loader import load_project
from ondatra_dagster.project.settings.read_settings_and_defaults import read_settings
from ondatra_dagster.records.record_schema import RECORD_SCHEMA
from ondatra_dagster.records.record_store import RecordStore
from ondatra_dagster.row_changes import ChangeType, FeedPage, FeedSegment
from ondatra_dagster.sync.record_publisher import RecordPublisher

Numbers = dict[str, float]
WARM_UP = 10  # the divisor of the rows for the warm-up: a tenth


def handwritten_loop(folder: Path, name: str, url: str, rows: str, size: str) -> Numbers:
    """Measure a handwritten loop."""
    send = LOOPS[name]
    send(url, int(rows) // WARM_UP, int(size))
    return {"rate": int(rows) / send(url, int(rows), int(size))}


def deliver_queued(folder: Path, url: str, rows: str, size: str) -> Numbers:
    """Measure ondatra: rows from the queue until they are settled and recorded."""
    sync_folder = SyncFolder.create(folder, url, int(size))
    with sync_folder.queue() as queue, sync_folder.pusher() as push:
        fill_queue(queue, int(rows) // WARM_UP, version=1)
        deliver_queue(sync_folder, queue, push)
        fill_queue(queue, int(rows), version=2)
        return {"rate": int(rows) / deliver_queue(sync_folder, queue, push)}


def full_sync(folder: Path, url: str, rows: str, size: str) -> Numbers:
    """Measure ondatra: a full sync from the feed to published records and the queue snapshot, and its memory."""
    seconds = SyncFolder.create(folder, url, int(size)).run_first_sync(int(rows))
    kilobytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return {"rate": int(rows) / seconds, "megabytes": kilobytes / 1024}


def sqlite_inserts(folder: Path, rows: str) -> Numbers:
    """Measure plain SQLite inserts of the same texts into a table with a unique key.

    They are as durable as ondatra's inserts, and in as many transactions.
    """
    changes = [change for page in GeneratedTable(int(rows)).pages() for change in page.changes]
    store = sqlite3.connect(folder / "bare.sqlite", isolation_level=None)
    store.execute("pragma journal_mode = wal").fetchall()
    store.execute("pragma synchronous = full")
    store.execute("create table unit (id integer primary key, key text unique, target text)")
    start_time = time.perf_counter()
    for start in range(0, len(changes), CHUNK_KEYS):
        chunk = [(change.key, change.payload) for change in changes[start : start + CHUNK_KEYS]]
        store.execute("begin immediate")
        store.executemany("insert into unit (key, target) values (?, ?)", chunk)
        store.execute("commit")
    return {"rate": int(rows) / (time.perf_counter() - start_time)}


def enqueue_feed(folder: Path, rows: str) -> Numbers:
    """Measure ondatra: rows from a feed into the queue, without the time in which the feed builds its pages."""
    making = 0.0

    def time_pages() -> Iterator[FeedPage]:
        nonlocal making
        start_time = time.perf_counter()
        for page in GeneratedTable(int(rows)).pages():
            making += time.perf_counter() - start_time
            yield page
            start_time = time.perf_counter()

    with SyncFolder(folder).queue() as queue:
        start_time = time.perf_counter()
        enqueue_segment(queue, FeedSegment(-1, 1, time_pages()), now=1.0)
        return {"rate": int(rows) / (time.perf_counter() - start_time - making)}


def pyarrow_files(folder: Path, rows: str) -> Numbers:
    """Measure pyarrow, which writes the same columns from lists to the same number of files."""
    payloads = [page_change.payload for page in GeneratedTable(int(rows)).pages() for page_change in page.changes]
    start_time = time.perf_counter()
    for start in range(0, len(payloads), FILE_ROWS):
        payload_chunk = payloads[start : start + FILE_ROWS]
        constant_columns = {name: [name] * len(payload_chunk) for name in RECORD_SCHEMA.names}
        columns = {
            **constant_columns,
            "identifier": [str(start + index) for index in range(len(payload_chunk))],
            "record_payload": payload_chunk,
        }
        pq.write_table(pa.table(columns), folder / f"{start}.parquet", compression="zstd")
    return {"rate": int(rows) / (time.perf_counter() - start_time)}


def publish_records(folder: Path, rows: str) -> Numbers:
    """Measure ondatra: rows that were settled in batches of 100 are written to record files."""
    tracking = RecordStore(str(folder / "tracking"))
    with SyncFolder(folder).queue() as queue:
        _settle(queue, int(rows))
        publisher = RecordPublisher(queue, tracking, sync_id="sync.api", run_id=RUN_ID, operation=OPERATION)
        start_time = time.perf_counter()
        publisher.publish_all()
        return {"rate": int(rows) / (time.perf_counter() - start_time)}


def _settle(queue: Queue, rows: int, size: int = 100) -> None:
    table = GeneratedTable(rows)
    attempt = PushAttempt(run_id=RUN_ID, started_at=1.0, ended_at=2.0, max_attempts=8)
    begin_run(queue, RUN_ID, "{}")
    for page in table.pages():
        layout = queue.store_layout(page.layout)
        settled_rows = [
            SettledRow(key, rowid, ChangeType.INSERT, version, STATUS_SUCCEEDED, None, layout, payload)
            for key, rowid, _, version, payload, _ in page.changes
        ]
        with queue.store.write_transaction():
            for start in range(0, len(settled_rows), size):
                store_settled_rows(queue, RECORDS_UPDATED, settled_rows[start : start + size], attempt)


def receive_events(folder: Path, name: str, events: str, size: str) -> Numbers:
    """Measure events by HTTP, sent to a plain application or to ondatra's collector."""
    return {"rate": measure_event_rate(folder, name, int(events), int(size))}


def parse_queries(folder: Path, models: str) -> Numbers:
    """Measure sqlglot, which only parses the same queries."""
    texts = list(build_queries(int(models)).values())
    sqlglot.parse(texts[0], dialect="databricks")
    start_time = time.perf_counter()
    for text in texts:
        sqlglot.parse(text, dialect="databricks")
    return {"seconds": time.perf_counter() - start_time}


def read_project(folder: Path, models: str) -> Numbers:
    """Measure ondatra: reading a project's settings, headers, queries, references and graph."""
    write_project(folder / "warm", 1)
    load_project(folder / "warm", read_settings(folder / "warm", {}))
    write_project(folder / "project", int(models))
    gc.collect()  # a garbage collection of this process's other objects takes longer than reading ten models
    gc.freeze()
    start_time = time.perf_counter()
    load_project(folder / "project", read_settings(folder / "project", {}))
    return {"seconds": time.perf_counter() - start_time}


def read_definitions(folder: Path, models: str) -> Numbers:
    """Measure ondatra: loading a project's Dagster definitions, together with the import of Dagster."""
    write_project(folder / "project", int(models))
    start_time = time.perf_counter()
    from ondatra_dagster.orchestration.definitions import build_definitions

    build_definitions(folder / "project").resolve_asset_graph()
    return {"seconds": time.perf_counter() - start_time}


def idle_run(folder: Path, models: str) -> Numbers:
    """Measure ondatra: the whole command `ondatra run` on a project whose tables are all up to date."""
    project = write_project(folder / "project", int(models))
    write_tables(project)
    return {"seconds": RunProject(project).command_seconds("run")}


def page_view(folder: Path) -> Numbers:
    """Measure ondatra: the first view of the records page."""
    return {"seconds": RecordSearchProject.create(folder / "project").page_seconds()}


def view_query(folder: Path) -> Numbers:
    """Measure the handwritten query for the records that the records page shows."""
    return {"seconds": RecordSearchProject.create(folder / "project").view_query_seconds()}


MEASUREMENTS: Mapping[str, Callable[..., Numbers]] = {
    contestant.__name__: contestant
    for contestant in (
        handwritten_loop,
        deliver_queued,
        full_sync,
        sqlite_inserts,
        enqueue_feed,
        pyarrow_files,
        publish_records,
        receive_events,
        parse_queries,
        read_project,
        read_definitions,
        idle_run,
        page_view,
        view_query,
    )
}

if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as made:
        print(json.dumps(MEASUREMENTS[sys.argv[1]](Path(made), *sys.argv[2:])))
