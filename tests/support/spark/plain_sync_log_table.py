"""The sync log's Delta table without Spark: real files and a real log, as the Delta protocol requires."""

import contextlib
import dataclasses
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.parquet as pq

from ondatra_dagster.deltalog.active_files import read_table_snapshot
from ondatra_dagster.planning.find_table_and_columns import SYNC_LOG_TABLE, table_path
from ondatra_dagster.project.settings.read_settings_and_defaults import Settings
from ondatra_dagster.warehouse.read_rows_of_named_table import read_row_pages

TYPES = {pa.string(): "string", pa.timestamp("us", "UTC"): "timestamp"}


def ignore_moment(moment: str) -> None:
    """Do nothing."""


@dataclasses.dataclass
class PlainSyncLogTable:
    """A sync log table that can crash before or after a commit."""

    settings: Settings
    on_commit: Callable[[str], None] = ignore_moment  # gets "before" and "after" at each commit
    commit_count: int = 0  # commits by this object

    @property
    def path(self) -> Path:
        return Path(table_path(self.settings, SYNC_LOG_TABLE))

    @contextlib.contextmanager
    def lock(self) -> Iterator[None]:
        yield

    def append(self, rows: pa.Table, *, note: str, number: int) -> None:
        self.on_commit("before")
        if number not in self._numbers():
            self._write_append(rows, note, number)
            self.commit_count += 1
        self.on_commit("after")

    def read_rows(self) -> list[dict[str, Any]]:
        table = read_table_snapshot(str(self.path))
        return [row for page in read_row_pages(table, str(self.path)) for row in page.to_pylist()] if table else []

    def commit_actions(self, *actions: dict[str, Any]) -> None:
        """Commit any actions, as another program may."""
        log = self.path / "_delta_log"
        log.mkdir(parents=True, exist_ok=True)
        version = len(list(log.iterdir()))
        lines = b"\n".join(map(orjson.dumps, actions))
        (log / f"{version:020}.json").write_bytes(lines)

    def _write_append(self, rows: pa.Table, note: str, number: int) -> None:
        is_new = not (self.path / "_delta_log").exists()
        file = self.path / f"part-{number}.parquet"
        self.path.mkdir(parents=True, exist_ok=True)
        pq.write_table(rows, file)
        stats = orjson.dumps({"numRecords": rows.num_rows}).decode()
        add = {"path": file.name, "partitionValues": {}, "dataChange": True, "stats": stats}
        about = [{"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}}, _metadata(rows)]
        self.commit_actions(
            {"commitInfo": {"userMetadata": note}},
            *(about if is_new else ()),
            {"txn": {"appId": SYNC_LOG_TABLE, "version": number}},
            {"add": add},
        )

    def _numbers(self) -> set[int]:
        log = self.path / "_delta_log"
        lines = [line for file in log.glob("*.json") for line in file.read_bytes().splitlines()]
        return {action["txn"]["version"] for line in lines if "txn" in (action := orjson.loads(line))}


def _metadata(rows: pa.Table) -> dict[str, Any]:
    fields = [
        {"name": field.name, "type": TYPES[field.type], "nullable": True, "metadata": {}} for field in rows.schema
    ]
    schema = orjson.dumps({"type": "struct", "fields": fields}).decode()
    return {"metaData": {"id": "the-log", "schemaString": schema, "partitionColumns": [], "configuration": {}}}
