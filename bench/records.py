"""Looking at many runs' records: the command, the page, and queries that people write by hand.

The records are written once, by our own writer, into the user's cache. Keys are 36 letters in another order
in each run, as a worst case: no file's bounds rule any of them out.
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

from bench.commands import CannotRunError, RunProject, bare_seconds
from bench.rows import row
from ondatra_dagster.browser.server import PageServer, listen
from ondatra_dagster.delivery.queue.publication import FILE_ROWS
from ondatra_dagster.orchestration.project_reader import ProjectReader
from ondatra_dagster.tracking.addresses import BatchType
from ondatra_dagster.tracking.record import SyncRecord
from ondatra_dagster.tracking.store import TrackingStore

RUNS = 50
RECORDS = 100_000  # of each run
SYNC = "sync.crm"  # of the project that `ondatra init` lays down
REJECTED = 0.01
BEGAN = datetime(2026, 11, 1, tzinfo=UTC)

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
LOOKED = "/syncs/{sync}/records"


@dataclasses.dataclass(frozen=True, slots=True)
class Searched:
    """A project with the records of many runs."""

    project: RunProject
    tracking: Path

    @classmethod
    def make(cls, root: Path) -> "Searched":
        tracking = _records()
        project = RunProject.laid_down(root)
        settings = root / "pyproject.toml"
        text = settings.read_text(encoding="utf-8")
        named = f'[tool.ondatra]\ntracking = "{tracking}"\n'
        settings.write_text(text.replace("[tool.ondatra]\n", named), encoding="utf-8")
        return cls(project, tracking)

    def seconds(self) -> float:
        """Of the whole command."""
        return self.project.seconds("records", SYNC, "--search", _key(RECORDS // 2))

    def query_seconds(self) -> float:
        """Of a Python that does nothing but the query."""
        return bare_seconds(QUERY.format(files=self.files, key=_key(RECORDS // 2)))

    @property
    def files(self) -> Path:
        return self.tracking / "sync_tracking_datasets" / "1" / SYNC / "*" / "*.parquet"

    def page_seconds(self) -> float:
        """Of the first view of the records page, when somebody has searched there before."""
        server = PageServer(ProjectReader(self.project.root), listen(0))
        server.start()
        try:
            parts = urlsplit(server.address)
            connection = http.client.HTTPConnection(parts.netloc)
            cookie = {"Cookie": f"ondatra_ui_{server.port}={parse_qs(parts.query)['token'][0]}"}
            path = LOOKED.format(sync=SYNC)
            _get(connection, f"{path}?search={_key(RECORDS // 2)}", cookie)
            began = time.perf_counter()
            _get(connection, path, cookie)
            return time.perf_counter() - began
        finally:
            server.stop()

    def view_query_seconds(self) -> float:
        """Of a query for the same records, in a DuckDB that has been asked before."""
        import duckdb

        query = FIRST_VIEW.format(files=self.files)
        with duckdb.connect() as connection:
            connection.execute(query).fetchall()
            began = time.perf_counter()
            connection.execute(query).fetchall()
            return time.perf_counter() - began


def _get(connection: http.client.HTTPConnection, path: str, headers: dict[str, str]) -> None:
    connection.request("GET", path, headers=headers)
    answer = connection.getresponse()
    answer.read()
    if answer.status != 200:
        raise CannotRunError(f"not measured: {path} answered {answer.status}")


def _records() -> Path:
    """The folder with the records."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    folder = cache / "ondatra" / "bench" / f"records-{RUNS}x{RECORDS}"
    made = folder / "made"  # written last: a folder that was begun only is filled anew
    if not made.exists():
        store = TrackingStore(str(folder))
        for run in range(RUNS):
            _publish(store, run)
        made.touch()
    return folder


def _publish(store: TrackingStore, run: int) -> None:
    began = BEGAN + timedelta(hours=6 * run)
    chance = random.Random(run)
    numbers = chance.sample(range(RECORDS), RECORDS)
    for number, start in enumerate(range(0, RECORDS, FILE_ROWS)):
        records = (_record(key, began, chance) for key in numbers[start : start + FILE_ROWS])
        store.publish(SYNC, f"{began:%Y%m%dT%H%M%SZ}-abcdef", BatchType.UPDATED, number, records)


def _record(number: int, began: datetime, chance: random.Random) -> SyncRecord:
    is_rejected = chance.random() < REJECTED
    return SyncRecord(
        identifier=_key(number),
        payload=orjson.dumps(row(number) | {"seen": chance.random()}).decode(),
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
