"""A way to make Delta tables look older: their logs and files get earlier times."""

import os
from pathlib import Path
from typing import Any

import orjson
from pyspark.sql import SparkSession

DAY = 86_400
TIMESTAMP_FIELDS = {
    "commitInfo": ("timestamp", "inCommitTimestamp"),
    "remove": ("deletionTimestamp",),
    "add": ("modificationTime",),
    "metaData": ("createdTime",),
}


def age_table(session: SparkSession, table: str, *, days: float, with_checkpoints: bool = False) -> None:
    """Make all that was ever done to the table look so many days older.

    A checkpoint keeps its own times, so it is deleted. `with_checkpoints` keeps it, for tables that are aged between
    all their commits.
    """
    folder = Path(table)
    for checkpoint in [] if with_checkpoints else [*folder.glob("_delta_log/*checkpoint*")]:
        checkpoint.unlink()
    for commit in (folder / "_delta_log").glob("*.json"):
        _age_commit(commit, days)
    for checksum in [*folder.rglob("*.crc"), *folder.rglob(".*.crc")]:
        checksum.unlink(missing_ok=True)  # checksums of the old contents
    for path in folder.rglob("*"):
        if path.is_file():
            before = path.stat().st_mtime - days * DAY
            os.utime(path, (before, before))
    session._jvm.org.apache.spark.sql.delta.DeltaLog.clearCache()


def _age_commit(commit: Path, days: float) -> None:
    modified_at = commit.stat().st_mtime
    lines = [_shift_timestamps(orjson.loads(line), days) for line in commit.read_bytes().splitlines() if line]
    commit.write_bytes(b"\n".join(map(orjson.dumps, lines)) + b"\n")
    os.utime(commit, (modified_at, modified_at))


def _shift_timestamps(action: dict[str, Any], days: float) -> dict[str, Any]:
    for kind, names in TIMESTAMP_FIELDS.items():
        for name in names:
            if action.get(kind, {}).get(name) is not None:
                action[kind][name] -= int(days * DAY * 1000)
    return action


def parquet_files(table: str) -> set[str]:
    """Return the Parquet files below the table's folder, those of the feed included."""
    folder = Path(table)
    return {str(path.relative_to(folder)) for path in folder.rglob("*.parquet") if "_delta_log" not in path.parts}
