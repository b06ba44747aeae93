"""The measurement of drt's REST destination with the same rows. It runs in the Python of drt's own environment.

drt's engine runs in this process, called in the same way as by `drt run`. Its source is a SQLite table that is filled
before the measurement.
"""

import json
import sqlite3
import sys
import tempfile
import time
from pathlib import Path

from drt.config.profiles import SQLiteProfile
from drt.config.sync_options import SyncConfig
from drt.destinations.rest_api import RestApiDestination
from drt.engine.sync import run_sync
from drt.sources.sqlite import SQLiteSource

from bench.sample_rows import COLUMNS, build_row


def main(url: str, rows: int, size: int, batch: int) -> None:
    batch_options = {"body_mode": "batch", "batch_template": "{{ rows | tojson }}", "max_records_per_request": size}
    sync = SyncConfig.model_validate(
        {
            "name": "bench",
            "model": f"select {', '.join(COLUMNS)} from bench",
            "destination": {
                "type": "rest_api",
                "url": f"{url}/rows",
                "headers": {"content-type": "application/json"},
                **(batch_options if size > 1 else {}),
            },
            # drt opens a client for each batch; its default limit of ten requests a second is raised
            "sync": {"batch_size": batch, "rate_limit": {"requests_per_second": 1_000_000}},
        }
    )
    with tempfile.TemporaryDirectory() as folder:
        database = Path(folder) / "rows.sqlite"
        _fill(database, rows)
        profile = SQLiteProfile(type="sqlite", database=str(database))
        start_time = time.perf_counter()
        result = run_sync(sync, SQLiteSource(), RestApiDestination(), profile, Path(folder))
        end_time = time.perf_counter()
    if result.success != rows:
        raise SystemExit(f"drt sent {result.success} of {rows} rows: {result.row_errors[:1]}")
    print(json.dumps({"rate": rows / (end_time - start_time)}))


def _fill(database: Path, rows: int) -> None:
    with sqlite3.connect(database) as store:
        store.execute(f"create table bench ({', '.join(COLUMNS)})")
        values = (tuple(build_row(number).values()) for number in range(rows))
        store.executemany(f"insert into bench values ({', '.join('?' * len(COLUMNS))})", values)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]))
