"""A sync whose table and API are plain Python, while queue, journal, records and history are real files."""

import contextlib
import dataclasses
import random
from collections.abc import Callable, Iterator
from pathlib import Path

import orjson
import pytest
from support.places import Place

from ondatra_dagster.changes import Change, ChangeType, Column, FeedPage, InvalidRow, Layout, Segment
from ondatra_dagster.delivery.journal import Journal
from ondatra_dagster.delivery.outcome import Outcome
from ondatra_dagster.delivery.push.push_config import PushConfig, PushSettings
from ondatra_dagster.delivery.push.push_port import Parcel, Pushed
from ondatra_dagster.errors import PushContractError
from ondatra_dagster.project.kinds import KINDS
from ondatra_dagster.project.model import Model, SinkUse
from ondatra_dagster.store.state_id import take_state_id
from ondatra_dagster.sync.ports import Ports, SourceState
from ondatra_dagster.sync.run import run_sync
from ondatra_dagster.sync.start import Occasion
from ondatra_dagster.sync.summary import RunSummary
from ondatra_dagster.sync.sync import Sync
from ondatra_dagster.tracking.history import History
from ondatra_dagster.tracking.store import TrackingStore

COLUMNS = (Column("id", "bigint"), Column("name", "string"))


@dataclasses.dataclass
class Contacts:
    """A merge table with its feed; it stands for the warehouse."""

    rows: dict[int, tuple[int, str]] = dataclasses.field(default_factory=dict)  # id → (rowid, name)
    feed: list[Change] = dataclasses.field(default_factory=list)
    set_aside: list[InvalidRow] = dataclasses.field(default_factory=list)
    version: int = 0
    table_id: str = "table"
    next_rowid: int = 1
    dies: BaseException | None = None  # who reads its changes

    def write(self, **names: str) -> None:
        """One version: a1="Ada" gives contact 1 that name."""
        self.version += 1
        for word, name in names.items():
            number = int(word[1:])
            if number in self.rows:
                rowid, before = self.rows[number]
                self._add(number, rowid, ChangeType.UPDATE_PREIMAGE, before)
                self._add(number, rowid, ChangeType.UPDATE_POSTIMAGE, name)
            else:
                rowid = self.next_rowid
                self.next_rowid += 1
                self._add(number, rowid, ChangeType.INSERT, name)
            self.rows[number] = (rowid, name)

    def _add(self, number: int, rowid: int, change_type: ChangeType, name: str) -> None:
        payload = orjson.dumps([number, name]).decode()
        self.feed.append(Change(str(number), rowid, change_type, self.version, payload))

    def set_one_aside(self, reason: str) -> None:
        version = len(self.set_aside)
        self.set_aside.append(InvalidRow("", reason, version, version + 1, '{"id":null,"name":"?"}'))

    def source(self) -> SourceState | None:
        return SourceState(
            table_id=self.table_id,
            version=self.version,
            invalid_version=len(self.set_aside) - 1,
            set_aside=len(self.set_aside),
            columns=COLUMNS,
        )

    def segments(self, after: int | None, upto: int) -> Iterator[Segment]:
        if self.dies:
            raise self.dies
        changes = [change for change in self.feed if (after or 0) < change.version <= upto]
        if after is None:
            last = {change.key: change for change in changes}
            changes = [
                change._replace(change_type=ChangeType.INSERT, version=upto) for change in last.values()
            ]
        changes.sort(key=lambda change: (change.key, change.version))
        yield Segment(-1 if after is None else after, upto, [FeedPage(Layout(COLUMNS), changes)])

    def invalid(self, after: int, upto: int) -> Iterator[InvalidRow]:
        yield from (row for row in self.set_aside if after < row.version <= upto)


Answer = Callable[[dict[str, object]], Outcome]


@dataclasses.dataclass
class Api:
    """Answers as it is told, and keeps what it got."""

    answer: Answer = lambda row: Outcome.parse("ok")
    got: list[tuple[str, object, object]] = dataclasses.field(default_factory=list)  # change type, id, name
    is_down: bool = False
    dies: BaseException | None = None
    ends: list[tuple[int, int]] = dataclasses.field(default_factory=list)  # what finalize() was told
    end_fails: bool = False

    def __call__(self, parcel: Parcel, journal: Journal) -> Pushed:
        batch = orjson.loads(parcel.text)
        rows = [dict(zip(batch["columns"], row, strict=True)) for row in batch["rows"]]
        self.got += [(row["__ondatra_change_type"], row["id"], row["name"]) for row in rows]
        if self.dies:
            raise self.dies
        if self.is_down:
            outcomes = [Outcome.parse("error: 503") for _ in rows]
        else:
            outcomes = [self.answer(row) for row in rows]
        return Pushed(dict(zip(parcel.keys, outcomes, strict=True)), calls=1, is_outage=self.is_down)

    def finalize(self, succeeded: int, failed: int, *, columns: object, journal: object) -> None:
        self.ends.append((succeeded, failed))
        if self.end_fails:
            raise PushContractError("lib/crm.star:9: no")

    def take(self) -> list[tuple[str, object, object]]:
        """What came since the last time."""
        got, self.got = self.got, []
        return got


@dataclasses.dataclass
class Desk:
    """All that one test needs of one sync."""

    state: Path
    contacts: Contacts = dataclasses.field(default_factory=Contacts)
    api: Api = dataclasses.field(default_factory=Api)
    now: float = 1_800_000_000.0
    base_url: str = "https://api.example.com"
    batch_size: int = 100
    functions: frozenset[str] = frozenset({"push", "finalize"})
    records: str | None = None  # where they are kept; in a folder of the project unless somebody says

    @property
    def sync(self) -> Sync:
        sink = SinkUse(name="crm", arguments=(), sync_id="sync.contacts", line=3)
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
        return Sync(model=model, sink=sink, config=config, library=self.state / "crm.star", state=self.state)

    @property
    def tracking(self) -> TrackingStore:
        records = self.records or str(self.state / "tracking")
        return TrackingStore(records, state=lambda: take_state_id(self.state))

    @property
    def history(self) -> History:
        return History(self.state / "history.sqlite")

    def ports(self) -> Ports:
        return Ports(
            source=self.contacts.source,
            feed=self.contacts,
            push=lambda: contextlib.nullcontext(self.api),
            tracking=self.tracking,
            history=self.history,
            clock=lambda: self.now,
            random=random.Random(7),
        )

    def run(self) -> RunSummary:
        self.now += 1
        return run_sync(self.sync, self.ports(), Occasion(trigger="test"))

    def statuses(self) -> list[tuple[str, str, str]]:
        """Every published record: identifier, change type, status."""
        records = self.tracking.delivered_since("sync.contacts", None)
        return sorted((record.identifier, record.change_type, record.status) for record in records)


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(state=tmp_path)


@pytest.fixture
def desk_anywhere(tmp_path: Path, at: Place) -> Desk:
    """Each place where records can be kept has a turn."""
    return Desk(state=tmp_path, records=at.address)
