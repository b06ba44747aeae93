"""A sync whose table and API are plain Python, while queue, journal, records and history are real files."""

import contextlib
import dataclasses
import random
from collections.abc import Callable, Iterator
from pathlib import Path

import orjson
import pytest
from support.files.tracking_locations import TrackingLocation

from ondatra_dagster.delivery.push.push_config import PushConfig, PushSettings
from ondatra_dagster.delivery.push.push_interface import PushBatch, PushResult
from ondatra_dagster.delivery.response_journal import ResponseJournal
from ondatra_dagster.delivery.row_outcome import RowOutcome
from ondatra_dagster.errors import PushContractError
from ondatra_dagster.project.model import Model, ModelSink
from ondatra_dagster.project.model_kinds import KINDS
from ondatra_dagster.records.record_store import RecordStore
from ondatra_dagster.row_changes import ChangeType, Column, FeedPage, FeedSegment, InvalidRow, Layout, RowChange
from ondatra_dagster.storage.state_folder_id import ensure_state_id
from ondatra_dagster.sync.run_context import Ports, RunOptions, SourceState
from ondatra_dagster.sync.run_history_store import RunHistory
from ondatra_dagster.sync.run_summary import RunSummary
from ondatra_dagster.sync.sync_definition import Sync
from ondatra_dagster.sync.sync_run import run_sync

COLUMNS = (Column("id", "bigint"), Column("name", "string"))


@dataclasses.dataclass
class ContactsTable:
    """A merge table with its feed; it replaces the warehouse."""

    rows: dict[int, tuple[int, str]] = dataclasses.field(default_factory=dict)  # id → (rowid, name)
    feed: list[RowChange] = dataclasses.field(default_factory=list)
    added_invalid_rows: list[InvalidRow] = dataclasses.field(default_factory=list)
    version: int = 0
    table_id: str = "table"
    next_rowid: int = 1
    read_error: BaseException | None = None  # raised when its changes are read

    def write(self, **names: str) -> None:
        """Write one version: a1="Ada" gives contact 1 that name."""
        self.version += 1
        for word, name in names.items():
            number = int(word[1:])
            if number in self.rows:
                rowid, before = self.rows[number]
                self._add_change(number, rowid, ChangeType.UPDATE_PREIMAGE, before)
                self._add_change(number, rowid, ChangeType.UPDATE_POSTIMAGE, name)
            else:
                rowid = self.next_rowid
                self.next_rowid += 1
                self._add_change(number, rowid, ChangeType.INSERT, name)
            self.rows[number] = (rowid, name)

    def _add_change(self, number: int, rowid: int, change_type: ChangeType, name: str) -> None:
        payload = orjson.dumps([number, name]).decode()
        self.feed.append(RowChange(str(number), rowid, change_type, self.version, payload))

    def add_invalid_row(self, reason: str) -> None:
        version = len(self.added_invalid_rows)
        self.added_invalid_rows.append(InvalidRow("", reason, version, version + 1, '{"id":null,"name":"?"}'))

    def source(self) -> SourceState | None:
        return SourceState(
            table_id=self.table_id,
            version=self.version,
            invalid_version=len(self.added_invalid_rows) - 1,
            invalid_count=len(self.added_invalid_rows),
            columns=COLUMNS,
        )

    def segments(self, after: int | None, upto: int) -> Iterator[FeedSegment]:
        if self.read_error:
            raise self.read_error
        changes = [change for change in self.feed if (after or 0) < change.version <= upto]
        if after is None:
            last = {change.key: change for change in changes}
            changes = [change._replace(change_type=ChangeType.INSERT, version=upto) for change in last.values()]
        changes.sort(key=lambda change: (change.key, change.version))
        yield FeedSegment(-1 if after is None else after, upto, [FeedPage(Layout(COLUMNS), changes)])

    def invalid_rows(self, after: int, upto: int) -> Iterator[InvalidRow]:
        yield from (row for row in self.added_invalid_rows if after < row.version <= upto)


ChooseOutcome = Callable[[dict[str, object]], RowOutcome]


@dataclasses.dataclass
class InMemoryContactApi:
    """An API that answers as the test chooses, and keeps what it received."""

    choose_outcome: ChooseOutcome = lambda row: RowOutcome.parse_status("ok")
    received_rows: list[tuple[str, object, object]] = dataclasses.field(default_factory=list)  # change type, id, name
    is_api_down: bool = False
    push_error: BaseException | None = None
    finalize_counts: list[tuple[int, int]] = dataclasses.field(default_factory=list)  # the arguments of finalize()
    finalize_fails: bool = False

    def __call__(self, parcel: PushBatch, journal: ResponseJournal) -> PushResult:
        batch = orjson.loads(parcel.rows_json)
        rows = [dict(zip(batch["columns"], row, strict=True)) for row in batch["rows"]]
        self.received_rows += [(row["__ondatra_change_type"], row["id"], row["name"]) for row in rows]
        if self.push_error:
            raise self.push_error
        if self.is_api_down:
            outcomes = [RowOutcome.parse_status("error: 503") for _ in rows]
        else:
            outcomes = [self.choose_outcome(row) for row in rows]
        return PushResult(dict(zip(parcel.result_keys, outcomes, strict=True)), calls=1, is_outage=self.is_api_down)

    def finalize(self, succeeded: int, failed: int, *, columns: object, journal: object) -> None:
        self.finalize_counts.append((succeeded, failed))
        if self.finalize_fails:
            raise PushContractError("lib/crm.star:9: no")

    def pop_received(self) -> list[tuple[str, object, object]]:
        """Return what was received since the last call."""
        got, self.received_rows = self.received_rows, []
        return got


@dataclasses.dataclass
class ContactSyncHarness:
    """A sync with all that one test needs."""

    state: Path
    contacts: ContactsTable = dataclasses.field(default_factory=ContactsTable)
    api: InMemoryContactApi = dataclasses.field(default_factory=InMemoryContactApi)
    now: float = 1_800_000_000.0
    base_url: str = "https://api.example.com"
    batch_size: int = 100
    functions: frozenset[str] = frozenset({"push", "finalize"})
    tracking_location: str | None = None  # where records are kept; None is a folder of the project

    @property
    def sync(self) -> Sync:
        sink = ModelSink(name="crm", arguments=(), sync_id="sync.contacts", line=3)
        model = Model(
            name="sync.contacts",
            path=self.state / "contacts.sql",
            file="models/sync/contacts.sql",
            kind=KINDS["merge"],
            sql="select 1",
            sql_line=4,
            definition="d",
            key_columns=("id",),
            sink=sink,
        )
        config = PushConfig(
            name="crm",
            file="lib/crm.star",
            destination="Crm",
            object="Contact",
            base_url=self.base_url,
            functions=self.functions,
            push=PushSettings(batch_size=self.batch_size, max_attempts=3),
        )
        return Sync(
            model=model, sink=sink, push_config=config, push_library=self.state / "crm.star", state_folder=self.state
        )

    @property
    def tracking(self) -> RecordStore:
        records = self.tracking_location or str(self.state / "tracking")
        return RecordStore(records, state=lambda: ensure_state_id(self.state))

    @property
    def history(self) -> RunHistory:
        return RunHistory(self.state / "history.sqlite")

    def build_ports(self) -> Ports:
        return Ports(
            read_source=self.contacts.source,
            feed=self.contacts,
            open_push=lambda: contextlib.nullcontext(self.api),
            record_store=self.tracking,
            history=self.history,
            clock=lambda: self.now,
            sleep=self._advance_clock,
            random=random.Random(7),
        )

    def _advance_clock(self, seconds: float) -> None:
        self.now += seconds

    def run(self) -> RunSummary:
        self.now += 1
        return run_sync(self.sync, self.build_ports(), RunOptions(trigger="test"))

    def record_statuses(self) -> list[tuple[str, str, str]]:
        """Return every published record: identifier, change type, status."""
        records = self.tracking.read_delivered_since("sync.contacts", None)
        return sorted((record.identifier, record.change_type, record.status) for record in records)


@pytest.fixture
def harness(tmp_path: Path) -> ContactSyncHarness:
    return ContactSyncHarness(state=tmp_path)


@pytest.fixture
def harness_at_each_location(tmp_path: Path, tracking_location: TrackingLocation) -> ContactSyncHarness:
    """Return a sync for each location where records can be kept."""
    return ContactSyncHarness(state=tmp_path, tracking_location=tracking_location.address)
