"""Whole syncs in random lives: beside all faults on the way to the API, their queues are lost."""

import contextlib
import dataclasses
import random
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.destinations import Destination, KeyStore, KilledError, RowStore, Store, WholeStore
from support.kind_desk import KindDesk
from support.kind_tables import KindTable, steps
from support.lives import HISTORIES, WHOLE, Sink
from support.tables import Table, histories

from ondatra_dagster.delivery.frontier import Frontier
from ondatra_dagster.delivery.push.push_config import PushSettings
from ondatra_dagster.delivery.queue.letters import hasten, replay
from ondatra_dagster.sync.ports import Ports
from ondatra_dagster.sync.run import run_sync
from ondatra_dagster.sync.start import Occasion
from ondatra_dagster.sync.sync import Sync
from ondatra_dagster.tracking.metadata import RunMetadata
from ondatra_dagster.tracking.store import TrackingStore

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


class DeadlyStore(TrackingStore):
    """Processes end now and then before it has published, or before it has the run's frontier."""

    chance: random.Random
    is_deadly = True

    def finish_run(self, sync_id: str, run_id: str, metadata: RunMetadata) -> None:
        self._may_die()
        super().finish_run(sync_id, run_id, metadata)

    def write_frontier(self, frontier: Frontier) -> None:
        self._may_die()
        super().write_frontier(frontier)

    def _may_die(self) -> None:
        if self.is_deadly and self.chance.random() < 0.1:
            raise KilledError


class Life:
    """One sync's."""

    def __init__(self, sink: Sink, folder: Path, seed: int) -> None:
        self.chance = random.Random(f"{seed} {sink}")
        self.sink = sink
        self.desk = KindDesk(folder, sink.name, batch_size=sink.batch_size)
        self.table, self.store = a_table(sink)
        self.destination = Destination(self.store, random.Random(f"API {seed} {sink}"))
        self.records = DeadlyStore(str(folder / "tracking"))
        self.records.chance = random.Random(f"records {seed} {sink}")

    def history(self) -> Iterator[tuple[str, list[int]]]:
        if self.sink.kind.delivers_by_key:
            return histories(self.sink.shape, self.chance, keys=KEYS, steps=STEPS)
        return steps(self.sink.kind, self.chance, keys=KEYS, count=STEPS)

    def live(self) -> None:
        for key, values in self.history():
            self.table.write(key, values)
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
        with contextlib.suppress(KilledError):
            run_sync(self.sync, self.ports, Occasion(trigger="test"))

    def ask_again(self) -> None:
        """An operator lets go what is left; nothing of it where there is no queue."""
        if self.desk.sync.queue.exists():
            with self.sync.open_queue() as queue:
                hasten(queue)
                replay(queue, now=self.desk.now)

    def end_well(self) -> list[object]:
        """The API recovers, and what is left goes out; what is then still in the queue."""
        self.destination.faults = self.records.is_deadly = False
        for _ in range(4):
            self.run()
            self.ask_again()
        self.run()
        with self.sync.open_queue() as queue:
            return [*queue.store.rows("select * from unit"), *queue.store.rows("select * from batch")]

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
            source=self.table.source,
            feed=self.table,
            push=lambda: contextlib.nullcontext(self.destination),
            tracking=self.records,
        )


def a_table(sink: Sink) -> tuple[Table | KindTable, Store]:
    if sink.kind.delivers_by_key and sink.name != "scd2":  # with keys that go, as by a full refresh
        by_key = Table(sink.shape)
        return by_key, KeyStore(by_key)
    table = KindTable(sink.name, by_key=sink.by_key)
    return table, WholeStore(table) if sink.batch_size == WHOLE else RowStore(table)


@pytest.mark.parametrize(
    "sink", SINKS, ids=lambda sink: f"{sink.name}-{sink.batch_size}-{sink.max_concurrent}"
)
def test_any_life_ends_as_a_mirror(sink: Sink, tmp_path: Path) -> None:
    """Frontier and records are enough to go on from, whenever the queue is lost, whatever was in flight."""
    for seed in range(HISTORIES // 2):
        life = Life(sink, tmp_path / str(seed), seed)
        life.live()
        assert [] == life.end_well(), f"seed {seed}"
        assert life.store.expected() == life.store.holds, f"seed {seed}"
        assert [] == life.store.wrongs, f"seed {seed}"
