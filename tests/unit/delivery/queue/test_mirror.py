"""Base → target against a model of a destination: it ends as a mirror of the table, for every kind.

The table, its change feed and the API are plain Python here; the queue and its file are the real ones.
"""

import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.books import Books
from support.destinations import KeyStore, RowStore, Store, WholeStore
from support.kind_tables import KindTable, steps
from support.lives import FEW, HISTORIES, WHOLE, Life, Sink
from support.seeds import new_seeds
from support.tables import Table, histories

from ondatra_dagster.delivery.target import Shape

KEYS = "abcdef"
STEPS = 24
MIRRORED = ("merge", "tracked", "table", "partition")
KINDS = (*MIRRORED, "scd2", "append")
SINKS = [
    *(Sink(kind, size, at_once) for kind in KINDS for size in (1, 2, 3, 100) for at_once in (1, 8)),
    *(Sink(kind, WHOLE, at_once) for kind in ("table", "partition") for at_once in (1, 8)),
]


def a_table(sink: Sink) -> tuple[Table | KindTable, Store]:
    if sink.kind.delivers_by_key:  # with keys that go, as by a full refresh
        by_key = Table(sink.shape)
        return by_key, KeyStore(by_key)
    table = KindTable(sink.name, by_key=sink.by_key)
    return table, WholeStore(table) if sink.shape is Shape.MIRROR else RowStore(table)


def history(sink: Sink, chance: random.Random) -> Iterator[tuple[str, list[int]]]:
    if sink.kind.delivers_by_key:
        return histories(sink.shape, chance, keys=KEYS, steps=STEPS)
    return steps(sink.kind, chance, keys=KEYS, count=STEPS)


@pytest.mark.parametrize(
    "sink", SINKS, ids=lambda sink: f"{sink.name}-{sink.batch_size}-{sink.max_concurrent}"
)
def test_any_history_ends_as_a_mirror(sink: Sink, tmp_path: Path) -> None:
    """What the users pay for: errors, rejects, silence and kills leave no difference behind."""
    for seed in new_seeds(HISTORIES if sink.name in MIRRORED else FEW):
        chance = random.Random(f"{seed} {sink}")
        table, store = a_table(sink)
        life = Life(sink, table, store, tmp_path / f"{seed}.sqlite", chance)
        for key, values in history(sink, chance):
            table.write(key, values)
            if chance.random() < 0.6:
                life.run()
        assert [] == life.end_well(), f"seed {seed}"
        assert store.expected() == store.holds, f"seed {seed}"
        assert [] == store.wrongs, f"seed {seed}"


@pytest.mark.parametrize(
    "sink",
    [sink for sink in SINKS if sink.batch_size in (WHOLE, 2, 100)],
    ids=lambda sink: f"{sink.name}-{sink.batch_size}-{sink.max_concurrent}",
)
def test_every_change_is_accounted_for(sink: Sink, tmp_path: Path) -> None:
    """Settled, pending or folded away; each end has one record, and invalid rows are counted apart, once."""
    for seed in new_seeds(FEW // 2):
        chance = random.Random(f"books {seed} {sink}")
        table, store = a_table(sink)
        folder = tmp_path / seed
        books = Books(folder / "tracking", chance, by_key=sink.by_key)
        life = Life(sink, table, store, folder / "queue.sqlite", chance, books)
        for key, values in history(sink, chance):
            table.write(key, values)
            if chance.random() < 0.2:
                books.set_one_aside()
            if chance.random() < 0.6:
                life.run()
                with life.open() as queue:
                    assert [] == books.problems(queue), f"seed {seed}"
                    assert sink.shape is Shape.MIRROR or [] == books.unaccounted(queue), f"seed {seed}"
        assert [] == life.end_well(), f"seed {seed}"
        with life.open() as queue:
            assert [] == queue.store.rows("select * from settled"), f"seed {seed}"
            assert [] == books.problems(queue), f"seed {seed}"
            assert sink.shape is Shape.MIRROR or [] == books.unaccounted(queue), f"seed {seed}"
