"""The search in many runs' records: by the command, by the page, and by handwritten queries.

The records are written once, by ondatra's own writer, into the user's cache. Keys are 36 characters long, and each run
writes them in another order. This order is the worst case, because no file's minimum and maximum exclude any key.
"""

import dataclasses
import http.client
import os
import random
import time
import uuid
from datetime import UTC, datetime, timedelta
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import orjson

from bench.command_times import CannotRunError, RunProject, python_seconds
from bench.sample_rows import build_row
from ondatra_dagster.app.workspace import ProjectCache
from ondatra_dagster.delivery.queue.unpublished_records import FILE_ROWS
from ondatra_dagster.records.file_paths import RecordFileType
from ondatra_dagster.records.record_schema import SyncRecord
from ondatra_dagster.records.record_store import RecordStore
from ondatra_dagster.ui.web_app_and_server import PageServer, open_listener

RUN_COUNT = 50
RECORDS_PER_RUN = 100_000  # the number of records of each run
BENCH_SYNC = "sync.crm"  # the sync of the project that `ondatra init` creates
REJECTED_SHARE = 0.01
FIRST_RUN_AT = datetime(2026, 11, 1, tzinfo=UTC)

QUERY = """
import duckdb
duckdb.sql('''
    select * from read_parquet('{files}') where identifier = '{key}'
    order by batch_ended_at desc
''').fetchall()
"""


FIRST_VIEW = """
select identifier, status, operation, status_message, batch_ended_at, record_payload
from read_parquet('{files}') order by batch_ended_at desc limit 50
"""
RECORDS_PATH = "/syncs/{sync}/records"


@dataclasses.dataclass(frozen=True, slots=True)
class RecordSearchProject:
    """A project with the records of many runs."""

    project: RunProject
    tracking: Path

    @classmethod
    def create(cls, root: Path) -> "RecordSearchProject":
        tracking = _prepare_records()
        project = RunProject.create_without_run(root)
        settings = root / "pyproject.toml"
        text = settings.read_text(encoding="utf-8")
        tracking_setting = f'[tool.ondatra]\ntracking = "{tracking}"\n'
        settings.write_text(text.replace("[tool.ondatra]\n", tracking_setting), encoding="utf-8")
        return cls(project, tracking)

    def command_seconds(self) -> float:
        """Return the seconds that the whole command takes."""
        return self.project.command_seconds("records", BENCH_SYNC, "--search", _key(RECORDS_PER_RUN // 2))

    def query_seconds(self) -> float:
        """Return the seconds of a Python process that runs only the query."""
        return python_seconds(QUERY.format(files=self.files, key=_key(RECORDS_PER_RUN // 2)))

    @property
    def files(self) -> Path:
        return self.tracking / "sync_tracking_datasets" / "1" / BENCH_SYNC / "*" / "*.parquet"

    def page_seconds(self) -> float:
        """Return the seconds of the first view of the records page after the page was searched."""
        server = PageServer(ProjectCache(self.project.root), open_listener(0))
        server.start()
        try:
            parts = urlsplit(server.url)
            connection = http.client.HTTPConnection(parts.netloc)
            cookie = {"Cookie": f"ondatra_ui_{server.port}={parse_qs(parts.query)['token'][0]}"}
            path = RECORDS_PATH.format(sync=BENCH_SYNC)
            _get(connection, f"{path}?search={_key(RECORDS_PER_RUN // 2)}", cookie)
            start_time = time.perf_counter()
            _get(connection, path, cookie)
            return time.perf_counter() - start_time
        finally:
            server.stop()

    def view_query_seconds(self) -> float:
        """Return the seconds of a query for the same records in a DuckDB session that has already run this query."""
        import duckdb

        query = FIRST_VIEW.format(files=self.files)
        with duckdb.connect() as connection:
            connection.execute(query).fetchall()
            start_time = time.perf_counter()
            connection.execute(query).fetchall()
            return time.perf_counter() - start_time


def _get(connection: http.client.HTTPConnection, path: str, headers: dict[str, str]) -> None:
    connection.request("GET", path, headers=headers)
    response = connection.getresponse()
    response.read()
    if response.status != 200:
        raise CannotRunError(f"not measured: {path} answered {response.status}")


def _prepare_records() -> Path:
    """Return the folder with the records. Write the records first if needed."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    folder = cache / "ondatra" / "bench" / f"records-{RUN_COUNT}x{RECORDS_PER_RUN}"
    marker = folder / "made"  # written last, so that an incomplete folder is filled again
    if not marker.exists():
        store = RecordStore(str(folder))
        for run in range(RUN_COUNT):
            _publish(store, run)
        marker.touch()
    return folder


def _publish(store: RecordStore, run: int) -> None:
    started_at = FIRST_RUN_AT + timedelta(hours=6 * run)
    generator = random.Random(run)
    numbers = generator.sample(range(RECORDS_PER_RUN), RECORDS_PER_RUN)
    for number, start in enumerate(range(0, RECORDS_PER_RUN, FILE_ROWS)):
        records = (_record(key, started_at, generator) for key in numbers[start : start + FILE_ROWS])
        store.publish_records(
            BENCH_SYNC, f"{started_at:%Y%m%dT%H%M%SZ}-abcdef", RecordFileType.UPDATED, number, records
        )


def _record(number: int, began: datetime, chance: random.Random) -> SyncRecord:
    is_rejected = chance.random() < REJECTED_SHARE
    return SyncRecord(
        identifier=_key(number),
        payload=orjson.dumps(build_row(number) | {"seen": chance.random()}).decode(),
        operation="upsert",
        status="rejected" if is_rejected else "succeeded",
        status_message="no such plan" if is_rejected else None,
        batch_started_at=began,
        batch_ended_at=began + timedelta(seconds=1),
        rowid=number,
        change_type="update_postimage",
        table_version=1,
        table_id="table",
    )


def _key(number: int) -> str:
    return str(uuid.uuid5(uuid.NAMESPACE_OID, str(number)))
