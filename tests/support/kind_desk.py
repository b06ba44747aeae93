"""A sync of any kind whose table and API are plain Python; queue, records and history are real files."""

import contextlib
import dataclasses
import random
import shutil
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

import orjson
from support.kind_tables import KindTable

from ondatra_dagster.delivery.journal import Journal
from ondatra_dagster.delivery.outcome import Outcome
from ondatra_dagster.delivery.push.push_config import PushConfig, PushSettings
from ondatra_dagster.delivery.push.push_port import Parcel, Pushed
from ondatra_dagster.project.kinds import KINDS
from ondatra_dagster.project.model import Limit, Model, SinkUse
from ondatra_dagster.store import database
from ondatra_dagster.store.state_id import take_state_id
from ondatra_dagster.sync.dry_run import dry_run
from ondatra_dagster.sync.forecast import Forecast
from ondatra_dagster.sync.ports import Ports
from ondatra_dagster.sync.resync import Way, resync
from ondatra_dagster.sync.run import run_sync
from ondatra_dagster.sync.start import Occasion
from ondatra_dagster.sync.summary import RunSummary
from ondatra_dagster.sync.sync import Sync
from ondatra_dagster.tracking.history import History
from ondatra_dagster.tracking.store import TrackingStore

Got = tuple[str, str, int, int]  # change type, id, value, rowid
SYNC_ID = "sync.things"


@dataclasses.dataclass
class Api:
    """Answers as it is told, and keeps what it got."""

    answer: Callable[[Got], str] = lambda row: "ok"
    calls: list[list[Got]] = dataclasses.field(default_factory=list)

    def __call__(self, parcel: Parcel, journal: Journal) -> Pushed:
        got = [(row[-1], row[0], row[2], row[-2]) for row in orjson.loads(parcel.text)["rows"]]
        self.calls.append(got)
        outcomes = [Outcome.parse(self.answer(row)) for row in got]
        return Pushed(dict(zip(parcel.keys, outcomes, strict=True)), calls=1)

    def take(self) -> list[Got]:
        """What came since the last time."""
        calls, self.calls = self.calls, []
        return [row for call in calls for row in call]


class Killed(BaseException):
    """The process ends here."""


def die_at(value: int) -> Callable[[Got], str]:
    """An API during whose call with that value the process ends."""

    def answer(row: Got) -> str:
        if row[2] == value:
            raise Killed
        return "ok"

    return answer


def pairs(sent: Sequence[Got]) -> list[tuple[str, int]]:
    """What was sent as (change type, value)."""
    return [(change, value) for change, _, value, _ in sent]


@dataclasses.dataclass
class KindDesk:
    """All that one test needs of one sync."""

    state: Path
    kind: str
    batch_size: int = 100
    base_url: str = "https://api.example.com"
    max_deletes: Limit | None = None
    definition: str = "one"
    key: tuple[str, ...] = ("id",)
    api: Api = dataclasses.field(default_factory=Api)
    now: float = 1_800_000_000.0
    held: str | None = None  # why nothing is sent
    old_upto: int = -1  # the version up to which another definition of the model wrote
    tracked_at: str | None = None  # where records are kept, if not in the state folder
    table: KindTable = dataclasses.field(init=False)

    def __post_init__(self) -> None:
        self.make_table()

    def make_table(self, table_id: str = "table") -> None:
        """A table without rows, in place of the one before."""
        by_key = self.batch_size == 0 and KINDS[self.kind].needs_key
        self.table = KindTable(self.kind, by_key=by_key, table_id=table_id)

    def write(self, **values: Sequence[int]) -> None:
        """Let the query give these, in one version a key."""
        for key, of_key in values.items():
            self.table.write(key, list(of_key))

    @property
    def sync(self) -> Sync:
        sink = SinkUse(name="api", arguments=(), sync_id=SYNC_ID, line=1, max_deletes=self.max_deletes)
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
            name="api",
            file="lib/api.star",
            destination="Api",
            object="Thing",
            base_url=self.base_url,
            push=push,
        )
        return Sync(model=model, sink=sink, config=config, library=self.state / "api.star", state=self.state)

    @property
    def tracking(self) -> TrackingStore:
        records = self.tracked_at or str(self.state / "tracking")
        return TrackingStore(records, state=lambda: take_state_id(self.state))

    def ports(self) -> Ports:
        return Ports(
            source=self.table.source,
            feed=self.table,
            push=lambda: contextlib.nullcontext(self.api),
            tracking=self.tracking,
            history=History(self.state / "history.sqlite"),
            hold=lambda: self.held,
            has_old_changes=lambda after: after < self.old_upto,
            clock=lambda: self.now,
            random=random.Random(7),
        )

    def run(self, *, allows_deletes: bool = False) -> RunSummary:
        self.now += 10_000
        occasion = Occasion(trigger="test", allows_deletes=allows_deletes)
        return run_sync(self.sync, self.ports(), occasion)

    def run_dry(self, *, allows_deletes: bool = False, is_counted: bool = True) -> Forecast:
        """On a copy of the queue, as any dry run, over a table whose rows somebody has counted or not."""
        self.now += 10_000
        with tempfile.TemporaryDirectory() as folder:
            sync = dataclasses.replace(self.sync, state=Path(folder))
            if self.sync.queue.exists():
                database.copy(self.sync.queue, sync.queue)
            rows = self.table.model.rows.total() if is_counted else None
            ports = dataclasses.replace(
                self.ports(),
                source=lambda: dataclasses.replace(self.table.source(), rows=rows),
                tracking=self.tracking.left_alone(),
            )
            return dry_run(sync, ports, Occasion(trigger="test", allows_deletes=allows_deletes))

    def deliver(self, **values: Sequence[int]) -> None:
        """Let the query give these, and the API have them; what it got is told no more."""
        self.write(**values)
        self.run()
        self.api.take()

    def sends(self) -> list[Got]:
        """What the next run sends."""
        self.run()
        return self.api.take()

    def lose_queue(self) -> None:
        shutil.rmtree(self.state / "queue")

    def resync(self, *, assume_delivered: bool = False, removes: bool = False) -> int:
        return resync(self.sync, self.ports(), Way(assume_delivered=assume_delivered, removes=removes))

    def records(self) -> list[tuple[str, str, str, str]]:
        """Every published record: identifier, operation, change type, status."""
        ends = self.tracking.delivered_since(SYNC_ID, None)
        return sorted((end.identifier, end.operation, end.change_type, end.status) for end in ends)
