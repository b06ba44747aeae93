"""A project of two models and a sync. Its tables are in plain Python, with real Delta logs.

Planning, Dagster, queue, push function and records are the real ones; no JVM starts.
"""

import contextlib
import copy
import csv
import dataclasses
import itertools
import shutil
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import orjson
from support.spark.plain_sync_log_table import PlainSyncLogTable

from ondatra_dagster.app.dry_run_service import DryRunService, open_dry_workspace
from ondatra_dagster.app.model_and_sync_steps import RunService
from ondatra_dagster.app.open_run_or_dry_run import open_service_on_tables
from ondatra_dagster.app.run_events import DescribeActivity, ModelResult, RunProgress, SyncResult
from ondatra_dagster.app.workspace import Workspace, load_workspace
from ondatra_dagster.deltalog.commit_user_metadata import CommitMetadata
from ondatra_dagster.deltalog.log_reader import CLONE_ORIGIN_PROPERTY, TableState, read_last_transaction
from ondatra_dagster.errors import WarehouseError
from ondatra_dagster.event_batches import EventBatchSource
from ondatra_dagster.operations.table_maintenance import MaintainableTable, ManagedTable
from ondatra_dagster.planning.find_table_and_columns import invalid_table_path, table_path
from ondatra_dagster.project.model import FileInput, Model, ModelInput, RowCheck
from ondatra_dagster.project.settings.read_settings_and_defaults import Settings
from ondatra_dagster.project.settings.storage_access import StorageAddress
from ondatra_dagster.row_changes import (
    ChangeType,
    Column,
    FeedPage,
    FeedSegment,
    InvalidRow,
    Layout,
    RowChange,
    format_key,
)
from ondatra_dagster.sync.sync_definition import Sync
from ondatra_dagster.warehouse.model_write_request import ModelWrite
from ondatra_dagster.warehouse.result_of_write_and_checks import (
    InvalidRowSample,
    ModelWriteResult,
    RowCheckResult,
    checks_failed_error,
    count_warnings,
)

Row = tuple[str | None, ...]
COLUMNS = (Column("id", "string"), Column("email", "string"))
SHOP_PUSH = """
API = {{
    "base_url": "{url}", "auth": {{"env": "DEMO_API_KEY"}},
    "retry": 0, "destination": "Demo", "object": "Contact",
}}

def push(rows):
    return {{str(row["__ondatra_rowid"]) + ":" + row["__ondatra_change_type"]: send(row) for row in rows}}

def send(row):
    change = row["__ondatra_change_type"]
    if change == "update_preimage":
        return "ok"
    contact = {{"customer_id": row["id"], "email": row["email"]}}
    if change == "insert":
        answer = http.post("/crm/contacts", json=contact)
    elif change == "delete":
        answer = http.delete("/crm/contacts/" + row["id"])
    else:
        answer = http.patch("/crm/contacts/" + row["id"], json=contact)
    if answer.ok:
        return "ok"
    return ("reject: " if answer.status_code == 422 else "error: ") + answer.text
"""
SHOP_FILES = {
    "pyproject.toml": "[tool.ondatra]\n",
    "models/raw/contacts.sql": "SELECT * FROM csv.`data/contacts.csv` WITH ('header' = 'true')\n",
    "models/sync/crm.sql": (
        "-- @kind: merge\n-- @unique_key: id\n-- @sink: crm_push\n-- @description: Contacts\n"
        "SELECT id, email FROM raw.contacts\n"
    ),
}


# a table that is sent whole, and whose push always fails
WHOLE_TABLE_FILES = {
    "models/sync/crm.sql": "-- @kind: table\n-- @sink: crm_push\nSELECT id, email FROM raw.contacts\n",
    "lib/crm_push.star": (
        'API = {"push": {"batch_size": 0, "max_attempts": 1}}\ndef push(rows):\n    fail("not today")\n'
    ),
}


def write_shop_files(root: Path, *, url: str, files: Mapping[str, str] | None = None) -> Path:
    """Write the project's files below `root`."""
    texts = {**SHOP_FILES, "lib/crm_push.star": SHOP_PUSH.format(url=url), **(files or {})}
    for name, text in texts.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    (root / ".env").touch(mode=0o600)
    (root / ".env").write_text("DEMO_API_KEY=shop-demo-key-0001\n")
    return root


def write_contacts(root: Path, **emails: str) -> None:
    """Write the raw rows: a1="a@example.com" is contact a1; `nobody` gives a row with an empty id."""
    path = root / "data" / "contacts.csv"
    path.parent.mkdir(exist_ok=True)
    rows = [("" if name == "nobody" else name, email) for name, email in emails.items()]
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([("id", "email"), *rows])


@dataclasses.dataclass
class PlainTable:
    """A table with its feed and its log."""

    path: Path
    rows: dict[str, tuple[int, Row]] = dataclasses.field(default_factory=dict)  # key → (rowid, row)
    feed: list[RowChange] = dataclasses.field(default_factory=list)
    version: int = -1
    properties: Mapping[str, str] = dataclasses.field(default_factory=dict)
    predecessor_count: int = 0  # how many tables were at this path before

    @property
    def table_id(self) -> str:
        return f"{'clone' if self.properties else 'id'}{self.predecessor_count or ''}-of-{self.path.name}"

    def commit(self, note: CommitMetadata, *, transaction: tuple[str, int] | None = None) -> None:
        self.version += 1
        log = self.path / "_delta_log"
        log.mkdir(parents=True, exist_ok=True)
        fields = [{"name": name, "type": type_, "nullable": True, "metadata": {}} for name, type_ in COLUMNS]
        schema = orjson.dumps({"type": "struct", "fields": fields}).decode()
        actions: list[dict[str, Any]] = [
            {"commitInfo": {"userMetadata": note.dump()}},
            {"metaData": {"id": self.table_id, "schemaString": schema, "configuration": dict(self.properties)}},
            {"add": {"path": "x", "size": 1, "dataChange": True}},
        ]
        if transaction:
            actions.append({"txn": {"appId": transaction[0], "version": transaction[1]}})
        lines = b"\n".join(map(orjson.dumps, actions))
        (log / f"{self.version:020}.json").write_bytes(lines)


class PlainTables:
    """A warehouse in plain Python: a model's rows are the rows of its only input."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._tables: dict[str, PlainTable] = {}
        self._real_tables: list[PlainTable] = []  # in a dry run: the tables that it doesn't write
        self._rowids = itertools.count(1)
        self.computed_models: list[str] = []  # every computed model, in order
        self.refreshed_models: list[str] = []  # models that a full refresh wrote
        self.failing_models: set[str] = set()  # models that fail
        self.feed_read_count = 0
        self._lost_table_counts: Counter[str] = Counter()  # model → how many of its tables were dropped
        self.is_open = False  # there is no Spark session that a run could use for its log
        self.log = PlainSyncLogTable(settings)
        self.started_early_for: list[str] = []

    def start_early(self, models: Iterable[Model]) -> None:
        self.started_early_for = [model.name for model in models]

    def activity(self) -> str:
        return "reading rows"

    def sync_log(self, *, waits: bool = True) -> PlainSyncLogTable:
        return self.log

    def open_for_maintenance(self, table: ManagedTable) -> MaintainableTable:
        raise WarehouseError(f"{table.name} has nothing that pays")

    def compute(self, model: Model, versions: Mapping[str, str], *, is_full: bool = False) -> list[Row]:
        self.computed_models.append(model.name)
        if model.id in self.failing_models:
            raise WarehouseError(f"{model.name} can't be computed; look at it")
        if not model.kind.has_query:
            return []
        (read,) = model.inputs
        assert read.name in versions
        if isinstance(read, ModelInput):
            return [row for _, row in self._tables[read.model].rows.values()]
        path = read.path if isinstance(read, FileInput) else f"{read.location}/{read.table}/rows.csv"
        with (self._settings.root / path).open() as file:
            return [(row["id"] or None, row["email"]) for row in csv.DictReader(file)]

    def write(self, write: ModelWrite) -> ModelWriteResult:
        model, frame, note = write.model, write.frame, write.note
        table = self._get_or_create_table(model.id)
        assert write.planned_version in (None, f"{table.table_id}@{table.version}" if table.version >= 0 else "")
        if write.events:
            return self._flush(table, write.events, note)
        if write.is_full:
            self.refreshed_models.append(model.id)
        findings = [self._check_rows(check, frame) for check in model.checks]
        if refused := checks_failed_error(model, findings):
            raise refused
        note = dataclasses.replace(note, warned=count_warnings(findings))
        counted = dict(enumerate(frame))  # a table without a key identifies rows by their position
        keyed = {str(place) if not model.key_columns else row[0]: row for place, row in counted.items()}
        aside = [InvalidRowSample(key=(None,), reason="NULL")] if keyed.pop(None, None) else []
        before = dict(table.rows)
        changes = [change for key, row in keyed.items() for change in self._update_row(table, str(key), row)]
        if write.is_full:
            changes += [self._delete_row(table, key) for key in before if key not in keyed]
        if changes or table.version < 0:
            table.feed += changes
            table.commit(dataclasses.replace(note, rows=len(table.rows)))
        if aside:
            self._get_or_create_table(f"{model.id}__invalid").commit(dataclasses.replace(note, rows=len(aside)))
        inserted, deleted = len(table.rows.keys() - before.keys()), len(before.keys() - table.rows.keys())
        return ModelWriteResult(
            inputs=note.inputs,
            has_changes=bool(changes),
            version=table.version,
            table_id=table.table_id,
            rows=len(table.rows),
            inserted=inserted,
            updated=(len(changes) - inserted - deleted) // 2,
            deleted=deleted,
            invalid_counts={"NULL": len(aside)} if aside else {},
            invalid_samples=aside,
            columns=COLUMNS,
            findings=tuple(findings),
        )

    def _flush(self, table: PlainTable, events: EventBatchSource, note: CommitMetadata) -> ModelWriteResult:
        before = len(table.rows)
        if table.version < 0:
            table.commit(dataclasses.replace(note, rows=0))
        for portion in events.read_batches(read_last_transaction(table.path, events.sequence_id)):
            for row in portion.rows:
                rowid = next(self._rowids)
                table.rows[str(rowid)] = (rowid, tuple(row))
            metadata = dataclasses.replace(note, rows=len(table.rows))
            table.commit(metadata, transaction=(events.sequence_id, portion.last_number))
        inserted = len(table.rows) - before
        return ModelWriteResult(
            inputs={},
            has_changes=inserted > 0,
            version=table.version,
            table_id=table.table_id,
            rows=len(table.rows),
            inserted=inserted,
            columns=COLUMNS,
        )

    def _check_rows(self, check: RowCheck, frame: list[Row]) -> RowCheckResult:
        """Check the rows against the only condition that is supported here: email LIKE '%@%'."""
        failed = [{"id": row[0], "email": row[1]} for row in frame if row[1] and "@" not in row[1]]
        return RowCheckResult(check=check, failed_rows=len(failed), rows=len(frame), samples=failed)

    def feed(self, sync: Sync) -> "PlainFeed":
        return self.feed_at(sync, table_path(self._settings, sync.model.id))

    def feed_at(self, sync: Sync, table: StorageAddress) -> "PlainFeed":
        return PlainFeed(self, Path(table))

    def table(self, model_id: str) -> PlainTable:
        return self._tables[model_id]

    def drop_table(self, model_id: str) -> None:
        """Delete the table; the next one at its path is another table."""
        shutil.rmtree(self._tables.pop(model_id).path)
        self._lost_table_counts[model_id] += 1

    def find_table(self, path: Path) -> PlainTable:
        return next(table for table in (*self._tables.values(), *self._real_tables) if table.path == path)

    def for_dry_run(self, settings: Settings) -> "PlainTables":
        """Return a copy for a dry run, which clones and writes only its own tables."""
        other = copy.copy(self)
        other._settings, other._tables = settings, dict(self._tables)
        other._real_tables = list(self._tables.values())
        return other

    def clone(self, original: StorageAddress, state: TableState, path: StorageAddress) -> None:
        model_id, table = next(
            (id_, candidate) for id_, candidate in self._tables.items() if str(candidate.path) == original
        )
        assert (state.table_id, state.log_version) == (table.table_id, table.version)
        properties = {CLONE_ORIGIN_PROPERTY: f"{state.table_id}@{state.log_version}"}
        clone = PlainTable(Path(path), rows=dict(table.rows), properties=properties)
        assert state.commit_metadata
        clone.commit(state.commit_metadata)
        self._tables[model_id] = clone

    def _get_or_create_table(self, model_id: str) -> PlainTable:
        if model_id not in self._tables:
            name = model_id.removesuffix("__invalid")
            path = table_path(self._settings, name)
            path = path if name == model_id else invalid_table_path(path)
            self._tables[model_id] = PlainTable(Path(path), predecessor_count=self._lost_table_counts[model_id])
        return self._tables[model_id]

    def _update_row(self, table: PlainTable, key: str, row: Row) -> Iterator[RowChange]:
        version = table.version + 1
        rowid, before = table.rows.get(key, (0, None))
        if before == row:
            return
        if before is None:
            rowid = next(self._rowids)
            images = {ChangeType.INSERT: row}
        else:
            images = {ChangeType.UPDATE_PREIMAGE: before, ChangeType.UPDATE_POSTIMAGE: row}
        table.rows[key] = (rowid, row)
        for change_type, image in images.items():
            yield RowChange(format_key([image[0]]), rowid, change_type, version, orjson.dumps(image).decode())

    def _delete_row(self, table: PlainTable, key: str) -> RowChange:
        rowid, row = table.rows.pop(key)
        payload = orjson.dumps(row).decode()
        return RowChange(format_key([row[0]]), rowid, ChangeType.DELETE, table.version + 1, payload)


class PlainFeed:
    """The feed of a plain table."""

    def __init__(self, tables: PlainTables, path: Path) -> None:
        self._tables = tables
        self._path = path

    def segments(self, after: int | None, upto: int) -> Iterator[FeedSegment]:
        self._tables.feed_read_count += 1
        table = self._tables.find_table(self._path)
        if after is None:
            changes = [
                RowChange(key, rowid, ChangeType.INSERT, upto, orjson.dumps(row).decode())
                for key, (rowid, row) in table.rows.items()
            ]
        else:
            changes = [change for change in table.feed if after < change.version <= upto]
        changes.sort(key=lambda change: (change.key, change.version))
        yield FeedSegment(-1 if after is None else after, upto, [FeedPage(Layout(COLUMNS), changes)])

    def invalid_rows(self, after: int, upto: int) -> Iterator[InvalidRow]:
        yield InvalidRow("", "NULL", upto, 1, '{"id":null,"email":"?"}')


@dataclasses.dataclass
class RecordedProgress:
    """A progress that stores all events."""

    model_results: list[ModelResult] = dataclasses.field(default_factory=list)
    sync_results: list[SyncResult] = dataclasses.field(default_factory=list)
    failures: list[tuple[str, str]] = dataclasses.field(default_factory=list)
    start_messages: list[str] = dataclasses.field(default_factory=list)
    notices: list[str] = dataclasses.field(default_factory=list)

    def on_model_start(self, model: Model, activity: DescribeActivity) -> None:
        self.start_messages.append(f"{model.name}: {activity()}")

    def on_sync_start(self, sync: Sync, activity: DescribeActivity) -> None:
        self.start_messages.append(f"{sync.id}: {activity()}")

    def on_model_end(self, result: ModelResult) -> None:
        self.model_results.append(result)

    def on_sync_end(self, result: SyncResult) -> None:
        self.sync_results.append(result)

    def on_notice(self, message: str) -> None:
        self.notices.append(message)

    def on_wait(self, message: str) -> None:
        self.start_messages.append(message)

    def on_failure(self, name: str, message: str) -> None:
        self.failures.append((name, message))


@dataclasses.dataclass
class ShopProject:
    """The project on disk, and its tables, which all its engines share."""

    root: Path
    tables: PlainTables
    progress: RecordedProgress = dataclasses.field(default_factory=RecordedProgress)
    clock_offset: float = 0  # seconds by which its clock is ahead

    @classmethod
    def create(cls, root: Path, *, url: str, files: Mapping[str, str] | None = None) -> "ShopProject":
        write_shop_files(root, url=url, files=files)
        return cls(root, PlainTables(load_workspace(root).settings))

    @property
    def workspace(self) -> Workspace:
        """Load the workspace again, as each run does."""
        return dataclasses.replace(load_workspace(self.root), clock=lambda: time.time() + self.clock_offset)

    @contextlib.contextmanager
    def open_engine(
        self, workspace: Workspace, progress: RunProgress | None = None, *, is_dry: bool = False
    ) -> Iterator[RunService]:
        progress = progress or self.progress
        if not is_dry:
            with open_service_on_tables(self.tables, workspace, progress) as engine:
                yield engine
            return
        with open_dry_workspace(workspace) as rehearsed:
            yield DryRunService(workspace, rehearsed, self.tables.for_dry_run(rehearsed.settings), progress=progress)
