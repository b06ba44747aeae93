"""Searching for one identifier in many runs' records: the command, and a query that people write by hand.

The records are written once, by our own writer, into the user's cache. Keys are 36 letters in another order
in each run, as a worst case: no file's bounds rule any of them out.
"""

import dataclasses
import os
import random
import uuid
from datetime import UTC, datetime, timedelta
from pathlib import Path

import orjson

from bench.commands import RunProject, bare_seconds
from bench.rows import row
from ondatra_dagster.delivery.queue.publication import FILE_ROWS
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
        files = self.tracking / "sync_tracking_datasets" / "1" / SYNC / "*" / "*.parquet"
        return bare_seconds(QUERY.format(files=files, key=_key(RECORDS // 2)))


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
