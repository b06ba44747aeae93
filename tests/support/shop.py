"""A project of two models and a sync whose tables are plain Python, with real Delta logs beside them.

So planning, Dagster, queue, push function and records are the real ones, and no JVM is started.
"""

import contextlib
import copy
import csv
import dataclasses
import itertools
import shutil
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import orjson
from support.log_table import PlainLogTable

from ondatra_dagster.arrivals import WaitingEvents
from ondatra_dagster.changes import (
    Change,
    ChangeType,
    Column,
    FeedPage,
    InvalidRow,
    Layout,
    Segment,
    identifier,
)
from ondatra_dagster.errors import WarehouseError
from ondatra_dagster.operations.tables import Maintained, UpkeepTable
from ondatra_dagster.orchestration.dry_engine import DryEngine, open_dry_workspace
from ondatra_dagster.orchestration.engine import Engine
from ondatra_dagster.orchestration.opening import engine_over
from ondatra_dagster.orchestration.progress import Activity, ModelResult, Progress, SyncResult
from ondatra_dagster.orchestration.workspace import Workspace, load_workspace
from ondatra_dagster.planning.commit_note import CommitNote
from ondatra_dagster.planning.delta_log import (
    GOES_ON_FROM,
    TableState,
    invalid_path,
    last_transaction,
    table_path,
)
from ondatra_dagster.project.finding import Finding, refusal, warned
from ondatra_dagster.project.model import FileInput, Model, ModelInput, RowCheck
from ondatra_dagster.project.settings.addresses import Address
from ondatra_dagster.project.settings.settings import Settings
from ondatra_dagster.sync.sync import Sync

Row = tuple[str | None, ...]
COLUMNS = (Column("id", "string"), Column("email", "string"))
PUSH = """
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
FILES = {
    "pyproject.toml": "[tool.ondatra]\n",
    "models/raw/contacts.sql": "SELECT * FROM csv.`data/contacts.csv` WITH ('header' = 'true')\n",
    "models/sync/crm.sql": (
        "-- @kind: merge\n-- @unique_key: id\n-- @sink: crm_push\n-- @description: Contacts\n"
        "SELECT id, email FROM raw.contacts\n"
    ),
}


# a table that goes out whole, and that nobody takes
WHOLE = {
    "models/sync/crm.sql": "-- @kind: table\n-- @sink: crm_push\nSELECT id, email FROM raw.contacts\n",
    "lib/crm_push.star": (
        'API = {"push": {"batch_size": 0, "max_attempts": 1}}\ndef push(rows):\n    fail("not today")\n'
    ),
}


def lay_down(root: Path, *, url: str, files: Mapping[str, str] | None = None) -> Path:
    """The project's files below `root`."""
    texts = {**FILES, "lib/crm_push.star": PUSH.format(url=url), **(files or {})}
    for name, text in texts.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    (root / ".env").touch(mode=0o600)
    (root / ".env").write_text("DEMO_API_KEY=shop-demo-key-0001\n")
    return root


def write_contacts(root: Path, **emails: str) -> None:
    """The raw rows: a1="a@example.com" is contact a1; an empty id comes from `nobody`."""
    path = root / "data" / "contacts.csv"
    path.parent.mkdir(exist_ok=True)
    rows = [("" if name == "nobody" else name, email) for name, email in emails.items()]
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([("id", "email"), *rows])


@dataclasses.dataclass(kw_only=True)
class Written:
    """What PlainTables says of a write."""

    changed: bool
    version: int
    table_id: str
    rows: int
    inputs: Mapping[str, str]
    inserted: int = 0
    updated: int = 0
    deleted: int = 0
    columns: tuple[Column, ...] = COLUMNS
    invalid: Mapping[str, int] = dataclasses.field(default_factory=dict)
    invalid_samples: Sequence["InvalidSample"] = ()
    findings: Sequence[Finding] = ()


@dataclasses.dataclass(frozen=True)
class InvalidSample:
    key: tuple[str | None, ...]
    reason: str


@dataclasses.dataclass
class PlainTable:
    """One table, its feed and its log."""

    path: Path
    rows: dict[str, tuple[int, Row]] = dataclasses.field(default_factory=dict)  # key → (rowid, row)
    feed: list[Change] = dataclasses.field(default_factory=list)
    version: int = -1
    properties: Mapping[str, str] = dataclasses.field(default_factory=dict)
    before: int = 0  # how many tables were in its place before it

    @property
    def table_id(self) -> str:
        return f"{'clone' if self.properties else 'id'}{self.before or ''}-of-{self.path.name}"

    def commit(self, note: CommitNote, *, transaction: tuple[str, int] | None = None) -> None:
        self.version += 1
        log = self.path / "_delta_log"
        log.mkdir(parents=True, exist_ok=True)
        fields = [{"name": name, "type": type_, "nullable": True, "metadata": {}} for name, type_ in COLUMNS]
        schema = orjson.dumps({"type": "struct", "fields": fields}).decode()
        actions: list[dict[str, Any]] = [
            {"commitInfo": {"userMetadata": note.dump()}},
            {
                "metaData": {
                    "id": self.table_id,
                    "schemaString": schema,
                    "configuration": dict(self.properties),
                }
            },
            {"add": {"path": "x", "size": 1, "dataChange": True}},
        ]
        if transaction:
            actions.append({"txn": {"appId": transaction[0], "version": transaction[1]}})
        lines = b"\n".join(map(orjson.dumps, actions))
        (log / f"{self.version:020}.json").write_bytes(lines)


class PlainTables:
    """What stands for the warehouse: a model is the rows of the one thing that it reads."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._tables: dict[str, PlainTable] = {}
        self._real: list[PlainTable] = []  # in a dry run: those that aren't its own
        self._rowids = itertools.count(1)
        self.computed: list[str] = []  # every model that was, in order
        self.refreshed: list[str] = []  # those that were to be brought to just their query's rows
        self.broken: set[str] = set()  # models that fail
        self.feeds_read = 0
        self._lost: Counter[str] = Counter()  # model → how many tables it had before
        self.is_open = False  # nothing of it is Spark, which a run would use for its log
        self.log = PlainLogTable(settings)
        self.started_early_for: list[str] = []

    def start_early(self, models: Iterable[Model]) -> None:
        self.started_early_for = [model.name for model in models]

    def activity(self) -> str:
        return "reading rows"

    def sync_log(self, *, waits: bool = True) -> PlainLogTable:
        return self.log

    def upkeep(self, table: Maintained) -> UpkeepTable:
        raise WarehouseError(f"{table.name} has nothing that pays")

    def compute(self, model: Model, versions: Mapping[str, str], *, is_full: bool = False) -> list[Row]:
        self.computed.append(model.name)
        if model.id in self.broken:
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

    def write(
        self,
        model: Model,
        frame: list[Row],
        note: CommitNote,
        *,
        is_full: bool = False,
        planned: str | None = None,
        events: WaitingEvents | None = None,
    ) -> Written:
        table = self._table(model.id)
        assert planned in (None, f"{table.table_id}@{table.version}" if table.version >= 0 else "")
        if events:
            return self._flush(table, events, note)
        if is_full:
            self.refreshed.append(model.id)
        findings = [self._finding(check, frame) for check in model.checks]
        if refused := refusal(model, findings):
            raise refused
        note = dataclasses.replace(note, warned=warned(findings))
        counted = dict(enumerate(frame))  # a table without a key tells rows apart by their place
        keyed = {str(place) if not model.key_columns else row[0]: row for place, row in counted.items()}
        aside = [InvalidSample((None,), "NULL")] if keyed.pop(None, None) else []
        before = dict(table.rows)
        changes = [change for key, row in keyed.items() for change in self._change(table, str(key), row)]
        if is_full:
            changes += [self._remove(table, key) for key in before if key not in keyed]
        if changes or table.version < 0:
            table.feed += changes
            table.commit(dataclasses.replace(note, rows=len(table.rows)))
        if aside:
            self._table(f"{model.id}__invalid").commit(dataclasses.replace(note, rows=len(aside)))
        inserted, deleted = len(table.rows.keys() - before.keys()), len(before.keys() - table.rows.keys())
        return Written(
            inputs=note.inputs,
            changed=bool(changes),
            version=table.version,
            table_id=table.table_id,
            rows=len(table.rows),
            inserted=inserted,
            updated=(len(changes) - inserted - deleted) // 2,
            deleted=deleted,
            invalid={"NULL": len(aside)} if aside else {},
            invalid_samples=aside,
            findings=findings,
        )

    def _flush(self, table: PlainTable, events: WaitingEvents, note: CommitNote) -> Written:
        before = len(table.rows)
        if table.version < 0:
            table.commit(dataclasses.replace(note, rows=0))
        for portion in events.portions(last_transaction(table.path, events.numbering)):
            for row in portion.rows:
                rowid = next(self._rowids)
                table.rows[str(rowid)] = (rowid, tuple(row))
            told = dataclasses.replace(note, rows=len(table.rows))
            table.commit(told, transaction=(events.numbering, portion.upto))
        inserted = len(table.rows) - before
        return Written(
            inputs={},
            changed=inserted > 0,
            version=table.version,
            table_id=table.table_id,
            rows=len(table.rows),
            inserted=inserted,
        )

    def _finding(self, check: RowCheck, frame: list[Row]) -> Finding:
        """The one condition that is understood here: email LIKE '%@%'."""
        failed = [{"id": row[0], "email": row[1]} for row in frame if row[1] and "@" not in row[1]]
        return Finding(check=check, failed=len(failed), rows=len(frame), samples=failed)

    def feed(self, sync: Sync) -> "PlainFeed":
        return self.feed_at(sync, table_path(self._settings, sync.model.id))

    def feed_at(self, sync: Sync, table: Address) -> "PlainFeed":
        return PlainFeed(self, Path(table))

    def table(self, model_id: str) -> PlainTable:
        return self._tables[model_id]

    def lose(self, model_id: str) -> None:
        """Have the table be gone; the next one in its place is another."""
        shutil.rmtree(self._tables.pop(model_id).path)
        self._lost[model_id] += 1

    def at(self, path: Path) -> PlainTable:
        return next(table for table in (*self._tables.values(), *self._real) if table.path == path)

    def over(self, settings: Settings) -> "PlainTables":
        """The same for a dry run: what it clones and writes is its own."""
        other = copy.copy(self)
        other._settings, other._tables = settings, dict(self._tables)
        other._real = list(self._tables.values())
        return other

    def clone(self, original: Address, state: TableState, path: Address) -> None:
        model_id, table = next(
            (id_, each) for id_, each in self._tables.items() if str(each.path) == original
        )
        assert (state.table_id, state.log_version) == (table.table_id, table.version)
        properties = {GOES_ON_FROM: f"{state.table_id}@{state.log_version}"}
        clone = PlainTable(Path(path), rows=dict(table.rows), properties=properties)
        assert state.note
        clone.commit(state.note)
        self._tables[model_id] = clone

    def _table(self, model_id: str) -> PlainTable:
        if model_id not in self._tables:
            name = model_id.removesuffix("__invalid")
            path = table_path(self._settings, name)
            path = path if name == model_id else invalid_path(path)
            self._tables[model_id] = PlainTable(Path(path), before=self._lost[model_id])
        return self._tables[model_id]

    def _change(self, table: PlainTable, key: str, row: Row) -> Iterator[Change]:
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
            yield Change(identifier([image[0]]), rowid, change_type, version, orjson.dumps(image).decode())

    def _remove(self, table: PlainTable, key: str) -> Change:
        rowid, row = table.rows.pop(key)
        payload = orjson.dumps(row).decode()
        return Change(identifier([row[0]]), rowid, ChangeType.DELETE, table.version + 1, payload)


class PlainFeed:
    """The feed of one of them."""

    def __init__(self, tables: PlainTables, path: Path) -> None:
        self._tables = tables
        self._path = path

    def segments(self, after: int | None, upto: int) -> Iterator[Segment]:
        self._tables.feeds_read += 1
        table = self._tables.at(self._path)
        if after is None:
            changes = [
                Change(key, rowid, ChangeType.INSERT, upto, orjson.dumps(row).decode())
                for key, (rowid, row) in table.rows.items()
            ]
        else:
            changes = [change for change in table.feed if after < change.version <= upto]
        changes.sort(key=lambda change: (change.key, change.version))
        yield Segment(-1 if after is None else after, upto, [FeedPage(Layout(COLUMNS), changes)])

    def invalid(self, after: int, upto: int) -> Iterator[InvalidRow]:
        yield InvalidRow("", "NULL", upto, 1, '{"id":null,"email":"?"}')


@dataclasses.dataclass
class Heard:
    """A progress that keeps what it hears."""

    models: list[ModelResult] = dataclasses.field(default_factory=list)
    syncs: list[SyncResult] = dataclasses.field(default_factory=list)
    failures: list[tuple[str, str]] = dataclasses.field(default_factory=list)
    begun: list[str] = dataclasses.field(default_factory=list)
    notices: list[str] = dataclasses.field(default_factory=list)

    def model_began(self, model: Model, activity: Activity) -> None:
        self.begun.append(f"{model.name}: {activity()}")

    def sync_began(self, sync: Sync, activity: Activity) -> None:
        self.begun.append(f"{sync.id}: {activity()}")

    def model_ended(self, result: ModelResult) -> None:
        self.models.append(result)

    def sync_ended(self, result: SyncResult) -> None:
        self.syncs.append(result)

    def notice(self, message: str) -> None:
        self.notices.append(message)

    def waits(self, message: str) -> None:
        self.begun.append(message)

    def failed(self, name: str, message: str) -> None:
        self.failures.append((name, message))


@dataclasses.dataclass
class Shop:
    """The project on disk, and its tables, which outlive its engines."""

    root: Path
    tables: PlainTables
    heard: Heard = dataclasses.field(default_factory=Heard)
    passed_seconds: float = 0  # by which its clock is ahead

    @classmethod
    def at(cls, root: Path, *, url: str, files: Mapping[str, str] | None = None) -> "Shop":
        lay_down(root, url=url, files=files)
        return cls(root, PlainTables(load_workspace(root).settings))

    @property
    def workspace(self) -> Workspace:
        """Read anew, as each run does."""
        return dataclasses.replace(load_workspace(self.root), clock=lambda: time.time() + self.passed_seconds)

    @contextlib.contextmanager
    def opened(
        self, workspace: Workspace, progress: Progress | None = None, *, is_dry: bool = False
    ) -> Iterator[Engine]:
        progress = progress or self.heard
        if not is_dry:
            with engine_over(self.tables, workspace, progress) as engine:
                yield engine
            return
        with open_dry_workspace(workspace) as rehearsed:
            yield DryEngine(workspace, rehearsed, self.tables.over(rehearsed.settings), progress=progress)
