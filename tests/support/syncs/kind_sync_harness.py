"""A sync of any kind with a table and an API in plain Python. Queue, records and history are real files."""

import contextlib
import dataclasses
import random
import shutil
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

import orjson
from support.syncs.kind_feed_table import KindFeedTable

from ondatra_dagster.delivery.push.push_config import PushConfig, PushSettings
from ondatra_dagster.delivery.push.push_interface import PushBatch, PushResult
from ondatra_dagster.delivery.response_journal import ResponseJournal
from ondatra_dagster.delivery.row_outcome import RowOutcome
from ondatra_dagster.project.model import Model, ModelSink, RowLimit
from ondatra_dagster.project.model_kinds import KINDS
from ondatra_dagster.records.record_store import RecordStore
from ondatra_dagster.storage import sqlite_database
from ondatra_dagster.storage.state_folder_id import ensure_state_id
from ondatra_dagster.sync.recovery.queue_reset_by_resync_or_forget import ResyncOptions, resync_queue
from ondatra_dagster.sync.run_context import Ports, RunOptions
from ondatra_dagster.sync.run_history_store import RunHistory
from ondatra_dagster.sync.run_summary import DryRunResult, RunSummary
from ondatra_dagster.sync.sync_definition import Sync
from ondatra_dagster.sync.sync_run import dry_run_sync, run_sync

ReceivedRow = tuple[str, str, int, int]  # change type, id, value, rowid
SYNC_ID = "sync.things"


@dataclasses.dataclass
class InMemoryKindApi:
    """A fake API that stores what it gets, and answers each row with `choose_status`."""

    choose_status: Callable[[ReceivedRow], str] = lambda row: "ok"
    received_calls: list[list[ReceivedRow]] = dataclasses.field(default_factory=list)

    def __call__(self, parcel: PushBatch, journal: ResponseJournal) -> PushResult:
        got = [(row[-1], row[0], row[2], row[-2]) for row in orjson.loads(parcel.rows_json)["rows"]]
        self.received_calls.append(got)
        outcomes = [RowOutcome.parse_status(self.choose_status(row)) for row in got]
        return PushResult(dict(zip(parcel.result_keys, outcomes, strict=True)), calls=1)

    def pop_received(self) -> list[ReceivedRow]:
        """Return the rows that the API got since the last call."""
        calls, self.received_calls = self.received_calls, []
        return [row for call in calls for row in call]


class KindSyncCrash(BaseException):
    """A crash of the simulated process."""


def crash_at_value(value: int) -> Callable[[ReceivedRow], str]:
    """Return an answer function that crashes at the row with that value."""

    def answer_row(row: ReceivedRow) -> str:
        if row[2] == value:
            raise KindSyncCrash
        return "ok"

    return answer_row


def change_values(sent_rows: Sequence[ReceivedRow]) -> list[tuple[str, int]]:
    """Return the sent rows as (change type, value)."""
    return [(change, value) for change, _, value, _ in sent_rows]


@dataclasses.dataclass
class KindSyncHarness:
    """A sync with all that one test needs."""

    state: Path
    kind: str
    batch_size: int = 100
    base_url: str = "https://api.example.com"
    max_deletes: RowLimit | None = None
    definition: str = "one"
    key: tuple[str, ...] = ("id",)
    api: InMemoryKindApi = dataclasses.field(default_factory=InMemoryKindApi)
    now: float = 1_800_000_000.0
    hold_reason: str | None = None  # why nothing is sent
    old_definition_upto: int = -1  # the last version that another definition of the model wrote
    tracking_location: str | None = None  # the location of the records, if not the state folder
    table: KindFeedTable = dataclasses.field(init=False)

    def __post_init__(self) -> None:
        self.make_table()

    def make_table(self, table_id: str = "table") -> None:
        """Replace the table by an empty one."""
        by_key = self.batch_size == 0 and KINDS[self.kind].needs_key
        self.table = KindFeedTable(self.kind, by_key=by_key, table_id=table_id)

    def write(self, **values: Sequence[int]) -> None:
        """Let the query give these values, with one version for each key."""
        for key, of_key in values.items():
            self.table.write(key, list(of_key))

    @property
    def sync(self) -> Sync:
        sink = ModelSink(name="api", arguments=(), sync_id=SYNC_ID, line=1, max_deletes=self.max_deletes)
        model = Model(
            name=SYNC_ID,
            path=self.state / "things.sql",
            file="models/sync/things.sql",
            kind=KINDS[self.kind],
            sql="select 1",
            sql_line=4,
            definition=self.definition,
            key_columns=self.key if KINDS[self.kind].needs_key else (),
            sink=sink,
        )
        push = PushSettings(batch_size=self.batch_size, max_attempts=3)
        config = PushConfig(
            name="api", file="lib/api.star", destination="Api", object="Thing", base_url=self.base_url, push=push
        )
        return Sync(
            model=model, sink=sink, push_config=config, push_library=self.state / "api.star", state_folder=self.state
        )

    @property
    def tracking(self) -> RecordStore:
        records = self.tracking_location or str(self.state / "tracking")
        return RecordStore(records, state=lambda: ensure_state_id(self.state))

    def build_ports(self) -> Ports:
        return Ports(
            read_source=self.table.source,
            feed=self.table,
            open_push=lambda: contextlib.nullcontext(self.api),
            record_store=self.tracking,
            history=RunHistory(self.state / "history.sqlite"),
            find_hold_reason=lambda: self.hold_reason,
            has_old_changes=lambda after: after < self.old_definition_upto,
            clock=lambda: self.now,
            sleep=self._advance_clock,
            random=random.Random(7),
        )

    def _advance_clock(self, seconds: float) -> None:
        """Advance the clock without a real wait: a run that looks for another machine waits 21 seconds."""
        self.now += seconds

    def run(self, *, allows_deletes: bool = False) -> RunSummary:
        self.now += 10_000
        occasion = RunOptions(trigger="test", allows_deletes=allows_deletes)
        return run_sync(self.sync, self.build_ports(), occasion)

    def run_dry(self, *, allows_deletes: bool = False, is_counted: bool = True) -> DryRunResult:
        """Run on a copy of the queue, as any dry run; without `is_counted` the table's row count is unknown."""
        self.now += 10_000
        with tempfile.TemporaryDirectory() as folder:
            sync = dataclasses.replace(self.sync, state_folder=Path(folder))
            if self.sync.queue_file.exists():
                sqlite_database.copy_database(self.sync.queue_file, sync.queue_file)
            rows = self.table.expected_table.rows.total() if is_counted else None
            ports = dataclasses.replace(
                self.build_ports(),
                read_source=lambda: dataclasses.replace(self.table.source(), row_count=rows),
                record_store=self.tracking.for_dry_run(),
            )
            return dry_run_sync(sync, ports, RunOptions(trigger="test", allows_deletes=allows_deletes))

    def deliver_values(self, **values: Sequence[int]) -> None:
        """Let the query give these values, deliver them, and forget what the API got."""
        self.write(**values)
        self.run()
        self.api.pop_received()

    def run_and_pop_received(self) -> list[ReceivedRow]:
        """Run, and return what the API got."""
        self.run()
        return self.api.pop_received()

    def lose_queue(self) -> None:
        shutil.rmtree(self.state / "queue")

    def resync(self, *, assume_delivered: bool = False, removes: bool = False) -> int:
        return resync_queue(
            self.sync,
            self.build_ports(),
            ResyncOptions(assumes_delivered=assume_delivered, deletes_missing_rows=removes),
        )

    def delivered_records(self) -> list[tuple[str, str, str, str]]:
        """Return every published record as (identifier, operation, change type, status)."""
        ends = self.tracking.read_delivered_since(SYNC_ID, None)
        return sorted((end.identifier, end.operation, end.change_type, end.status) for end in ends)
