"""Whole syncs in random lives: beside all faults of the way to the API, queues are lost and put back."""

import contextlib
import dataclasses
import random
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.destinations import (
    Destination,
    KeyStore,
    KilledError,
    Row,
    RowStore,
    Store,
    WholeStore,
    change_of,
)
from support.hard_times import AsideFeed, DeadlyStore, End, FullDiskError, Works
from support.kind_desk import KindDesk
from support.kind_tables import KindTable, steps
from support.lives import HISTORIES, WHOLE, Sink
from support.seeds import new_seeds
from support.tables import Table, histories

from ondatra_dagster.changes import ChangeType
from ondatra_dagster.delivery.push.push_config import PushSettings
from ondatra_dagster.delivery.queue.letters import hasten, replay
from ondatra_dagster.delivery.queue.settled import DELETED, SUCCEEDED, read_settled
from ondatra_dagster.errors import OtherStateError, ResyncNeededError
from ondatra_dagster.sync.cross_check import key_of
from ondatra_dagster.sync.ports import Ports, SourceState
from ondatra_dagster.sync.resync import Way, resync
from ondatra_dagster.sync.run import run_sync
from ondatra_dagster.sync.start import Occasion
from ondatra_dagster.sync.sync import Sync

KEYS = "abcdef"
STEPS = 18
SINKS = [
    Sink("merge", 2, 1),
    Sink("tracked", 3, 3),
    Sink("table", 2, 1),
    Sink("table", 100, 3),
    Sink("table", WHOLE, 1),
    Sink("partition", 2, 3),
    Sink("partition", WHOLE, 3),
    Sink("scd2", 2, 1),
    Sink("append", 2, 3),
]

IN_JOBS = {("merge", 2), ("tracked", 3), ("partition", 2), ("partition", WHOLE)}
ENDED_AS_DELETED = "select rows from settled where type = ?"
JUDGED = ("merge", "scd2")  # kinds that insert a row once, also in a resync


class Life:
    """One sync's."""

    runs_at_last = 4
    count = HISTORIES // 2

    def __init__(self, sink: Sink, folder: Path, seed: str) -> None:
        self.chance = random.Random(f"{seed} {sink}")
        self.sink = sink
        self.desk = KindDesk(folder, sink.name, batch_size=sink.batch_size)
        self.table, self.store = a_table(sink)
        self.feed = AsideFeed(self.table)
        chance = random.Random(f"API {seed} {sink}")
        self.destination = Destination(self.store, chance, stores_answers=chance.random() < 0.5)
        self.records = DeadlyStore(str(folder / "tracking"))
        self.records.state_folder = folder
        self.records.chance = random.Random(f"records {seed} {sink}")

    def history(self) -> Iterator[tuple[str, list[int]]]:
        if self.sink.kind.delivers_by_key:
            return histories(self.sink.shape, self.chance, keys=KEYS, steps=STEPS)
        return steps(self.sink.kind, self.chance, keys=KEYS, count=STEPS)

    def live(self) -> None:
        for key, values in self.history():
            self.table.write(key, values)
            if self.chance.random() < 0.2:
                self.feed.set_one_aside()
            if self.table.version and self.chance.random() < 0.6:
                if self.chance.random() < 0.3:
                    self.ask_again()
                self.desk.held = "paused" if self.chance.random() < 0.3 else None
                self.run()
                if self.chance.random() < 0.25:
                    shutil.rmtree(self.desk.sync.queue.parent)
        self.desk.held = None

    def run(self) -> None:
        """A run, which may be killed."""
        self.desk.now += self.chance.choice([10, 10_000, 100_000])
        with contextlib.suppress(KilledError, FullDiskError, OtherStateError):
            run_sync(self.sync, self.ports, Occasion(trigger="test"))

    def ask_again(self) -> None:
        """An operator lets go what is left; nothing of it where there is no queue."""
        if self.desk.sync.queue.exists():
            with self.sync.open_queue() as queue:
                hasten(queue)
                replay(queue, now=self.desk.now)

    def end_well(self) -> list[object]:
        """The API recovers, and what is left goes out; what is then still in the queue."""
        self.destination.faults = self.records.faults = False
        for _ in range(self.runs_at_last):
            self.run()
            self.ask_again()
        self.run()
        with self.sync.open_queue() as queue:
            return [*queue.store.rows("select * from unit"), *queue.store.rows("select * from batch")]

    def told_aside(self) -> list[int]:
        """The rows that the records tell were set aside, in order."""
        return sorted(rowid for rowid, _ in self.records.set_aside_in(self.sync.id, since="", upto="~"))

    @property
    def sync(self) -> Sync:
        sync = self.desk.sync
        push = PushSettings(
            batch_size=self.sink.batch_size, max_attempts=3, max_concurrent=self.sink.max_concurrent
        )
        return dataclasses.replace(sync, config=dataclasses.replace(sync.config, push=push))

    @property
    def ports(self) -> Ports:
        return dataclasses.replace(
            self.desk.ports(),
            source=self.feed.source,
            feed=self.feed,
            push=lambda: contextlib.nullcontext(self.destination),
            tracking=self.records,
        )


class HardLife(Life):
    """One in which queues are lost often, older copies of them are put back, and resyncs are asked for.

    Time passes within a run, so that records are published in it, and other runs come in between.
    """

    known: frozenset[str] = frozenset()  # rows that the records say the API has
    meanwhile: tuple[str, list[int]] | None = None  # what changes before a run has its queue, and is seen

    def __init__(self, sink: Sink, folder: Path, seed: str) -> None:
        super().__init__(sink, folder, seed)
        self.is_judged = sink.name in JUDGED
        self.hours = random.Random(f"hours {seed} {sink}")
        calls_of = self.store.calls_of

        def judged(rows: list[Row]) -> list[list[Row]]:
            calls = calls_of(rows)
            for call in calls if self.is_judged else ():
                self._judge(call)
            return calls

        self.store.calls_of = judged  # type: ignore[method-assign]

    def live(self) -> None:
        for key, values in self.history():
            self._change(key, values)
            for _ in range(self.chance.choice([0, 1, 1, 2, 3]) if self.table.version else 0):
                if self.chance.random() < 0.3:
                    self.ask_again()
                self.desk.held = "paused" if self.chance.random() < 0.2 else None
                self.known = self._recorded()
                if self.chance.random() < 0.12:
                    self._resync()
                    self._suffer()
                self.run()
                self._suffer()
        self.desk.held, self.is_judged = None, False

    def _change(self, key: str, values: list[int]) -> None:
        if self.chance.random() < 0.2:
            self.feed.set_one_aside()
        if self.table.version and self.chance.random() < 0.1:
            self.known, self.meanwhile = self._recorded(), (key, values)
            self.run()
        else:
            self.table.write(key, values)

    def _source(self) -> SourceState:
        seen = self.feed.source()
        change, self.meanwhile = self.meanwhile, None
        if change:
            self.table.write(*change)
            self.run()
        return seen

    def _clock(self) -> float:
        self.desk.now += self.hours.choice([0, 0, 0, 0, 100])
        return self.desk.now

    @property
    def ports(self) -> Ports:
        return dataclasses.replace(super().ports, source=self._source, clock=self._clock)

    def _resync(self) -> None:
        with contextlib.suppress(KilledError, FullDiskError, ResyncNeededError, OtherStateError):
            resync(self.sync, self.ports, Way(removes=self.chance.random() < 0.5))

    def _suffer(self) -> None:
        """What may happen to a queue between two runs."""
        queue = self.desk.sync.queue.parent
        copy = queue.with_name("copy")
        what = self.chance.random()
        if what < 0.1 and queue.exists():
            shutil.rmtree(copy, ignore_errors=True)
            shutil.copytree(queue, copy)
        elif what < 0.35:
            shutil.rmtree(queue, ignore_errors=True)
        elif what < 0.42 and copy.exists():
            shutil.rmtree(queue, ignore_errors=True)
            shutil.copytree(copy, queue)

    def _recorded(self) -> frozenset[str]:
        """The rows whose newest record says that they arrived and weren't deleted."""
        newest: dict[str, tuple[str, int, bool]] = {}
        for end in self.records.delivered_since(self.sync.id, None):
            if end.status == SUCCEEDED:
                name = end.identifier if self.sync.delivers_by_key else str(end.rowid)
                mark = (end.run_id, end.table_version, end.change_type != ChangeType.DELETE)
                newest[name] = max(newest.get(name, mark), mark)
        return frozenset(name for name, (_, _, is_there) in newest.items() if is_there) - self._deleted()

    def _deleted(self) -> frozenset[str]:
        """The rows whose delete arrived in a run that was killed, and is in no file yet: its queue knows."""
        if not self.desk.sync.queue.exists():
            return frozenset()
        with self.sync.open_queue() as queue:
            ended = [
                row
                for (text,) in queue.store.rows(ENDED_AS_DELETED, (DELETED,))
                for row in read_settled(text)
            ]
        return frozenset(
            row.key if self.sync.delivers_by_key else str(row.rowid)
            for row in ended
            if row.status == SUCCEEDED
        )

    def _judge(self, call: list[Row]) -> None:
        """What is recorded as there goes out as an update; its insert would be a second object."""
        column = "id" if self.sync.delivers_by_key else "__ondatra_rowid"
        name, kinds = str(call[0][column]), [change_of(row) for row in call]
        if kinds == [ChangeType.DELETE]:
            self.known -= {name}
        elif kinds == [ChangeType.INSERT] and name in self.known:
            self.store.wrongs.append(f"insert of {name}, which is recorded as there")


class JobLife(HardLife):
    """One whose API makes jobs of batches."""

    runs_at_last = 12  # none of them waits long

    def __init__(self, sink: Sink, folder: Path, seed: str) -> None:
        super().__init__(sink, folder, seed)
        chance = random.Random(f"jobs {seed} {sink}")
        self.works = Works(self.destination, chance, self._ends, on_gone=self._forget)

    def _forget(self, key: str) -> None:
        """Its delete went in an earlier run, and has its record once the job has ended: now."""
        self.known -= {key}

    def run(self) -> None:
        self.works.ended = self._ends()
        super().run()

    def _ends(self) -> frozenset[End]:
        ends = self.records.delivered_since(self.sync.id, None)
        return frozenset((end.run_id, key_of(self.sync, end), end.table_version) for end in ends)

    @property
    def sync(self) -> Sync:
        sync = super().sync
        push = dataclasses.replace(sync.config.push, batch_mode="async", poll_timeout_seconds=200_000)
        functions = frozenset({"push", "poll"})
        return dataclasses.replace(
            sync, config=dataclasses.replace(sync.config, push=push, functions=functions)
        )

    @property
    def ports(self) -> Ports:
        return dataclasses.replace(
            super().ports, push=lambda: contextlib.nullcontext(self.works), sleep=self._sleep
        )

    def _sleep(self, seconds: float) -> None:
        self.desk.now += seconds


class MovingLife(HardLife):
    """One that goes on in other state folders: on new disks, in copies and backups, on two machines in turn.

    While one of them prepares a run, another one may begin and end its own.
    """

    count = max(1, HISTORIES // 8)

    def __init__(self, sink: Sink, folder: Path, seed: str) -> None:
        super().__init__(sink, folder, seed)
        self.folder = folder
        self.places = [folder / "machine 0", folder / "machine 1"]
        self._go_to(self.places[0])

    def _go_to(self, place: Path) -> None:
        self.desk.state = self.records.state_folder = place

    def _suffer(self) -> None:
        super()._suffer()
        place, backup, what = self.desk.state, self.folder / "backup", self.chance.random()
        if what < 0.1:
            shutil.rmtree(place, ignore_errors=True)
        elif what < 0.2 and place.exists():
            shutil.rmtree(backup, ignore_errors=True)
            shutil.copytree(place, backup)
        elif what < 0.3 and backup.exists():
            shutil.rmtree(place, ignore_errors=True)
            shutil.copytree(backup, place)
        elif what < 0.5:
            self._go_to(self._other())

    def _other(self) -> Path:
        return next(place for place in self.places if place != self.desk.state)

    def _source(self) -> SourceState:
        if self.meanwhile and self.chance.random() < 0.5:
            here = self.desk.state
            self._go_to(self._other())
            seen = super()._source()
            self._go_to(here)
            return seen
        return super()._source()

    @property
    def ports(self) -> Ports:
        return dataclasses.replace(super().ports, sleep=self._sleep)

    def _sleep(self, seconds: float) -> None:
        self.desk.now += seconds


def a_table(sink: Sink) -> tuple[Table | KindTable, Store]:
    if sink.kind.delivers_by_key and sink.name != "scd2":  # with keys that go, as by a full refresh
        by_key = Table(sink.shape)
        return by_key, KeyStore(by_key)
    table = KindTable(sink.name, by_key=sink.by_key)
    return table, WholeStore(table) if sink.batch_size == WHOLE else RowStore(table)


LIVES = [
    *((sink, lived) for sink in SINKS for lived in (Life, HardLife, MovingLife)),
    *((sink, JobLife) for sink in SINKS if (sink.name, sink.batch_size) in IN_JOBS),
]


@pytest.mark.parametrize(
    ("sink", "lived"),
    LIVES,
    ids=[f"{sink.name}-{sink.batch_size}-{sink.max_concurrent}-{lived.__name__}" for sink, lived in LIVES],
)
def test_any_life_ends_as_a_mirror(sink: Sink, lived: type[Life], tmp_path: Path) -> None:
    """Frontier and records are enough to go on from, whenever the queue is lost, whatever was in flight.

    Nor is a row made twice that the records say is there, however often a queue is lost or put back.
    The seed decides the faults, but not which thread is first: a failure may need several replays.
    """
    for seed in new_seeds(lived.count):
        life = lived(sink, tmp_path / seed, seed)
        life.live()
        assert [] == life.end_well(), f"seed {seed}"
        assert life.store.expected() == life.store.holds, f"seed {seed}"
        assert [] == life.store.wrongs, f"seed {seed}"
        assert [row.rowid for row in life.feed.rows] == life.told_aside(), f"seed {seed}"
