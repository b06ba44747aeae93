"""The delivery against a model of an API: after random histories it has the table's rows, for every kind.

The table, its change feed and the API are plain Python here. The queue and its file are real.
"""

import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.random_histories.fake_destinations import (
    DestinationObjects,
    KeyedObjects,
    RowidObjects,
    WholeContentObjects,
)
from support.random_histories.random_seeds import new_seeds
from support.random_histories.random_sync_runs import (
    HISTORY_COUNT,
    SMALL_HISTORY_COUNT,
    WHOLE_TABLE,
    RandomSyncRuns,
    SinkCase,
)
from support.random_histories.record_audit import RecordAudit
from support.syncs.keyed_feed_table import KeyedFeedTable, random_steps
from support.syncs.kind_feed_table import KindFeedTable, random_kind_steps

from ondatra_dagster.delivery.acknowledged_to_desired_diff import UnitKind

KEYS = "abcdef"
STEPS = 24
MIRRORED = ("merge", "tracked", "table", "partition")
KINDS = (*MIRRORED, "scd2", "append")
SINKS = [
    *(SinkCase(kind, size, at_once) for kind in KINDS for size in (1, 2, 3, 100) for at_once in (1, 8)),
    *(SinkCase(kind, WHOLE_TABLE, at_once) for kind in ("table", "partition") for at_once in (1, 8)),
]


def a_table(sink: SinkCase) -> tuple[KeyedFeedTable | KindFeedTable, DestinationObjects]:
    if sink.kind.delivers_by_key:  # with keys that disappear, as in a full refresh
        by_key = KeyedFeedTable(sink.shape)
        return by_key, KeyedObjects(by_key)
    table = KindFeedTable(sink.kind_name, by_key=sink.delivers_by_key)
    return table, WholeContentObjects(table) if sink.shape is UnitKind.MIRROR else RowidObjects(table)


def history(sink: SinkCase, chance: random.Random) -> Iterator[tuple[str, list[int]]]:
    if sink.kind.delivers_by_key:
        return random_steps(sink.shape, chance, keys=KEYS, steps=STEPS)
    return random_kind_steps(sink.kind, chance, keys=KEYS, count=STEPS)


@pytest.mark.parametrize("sink", SINKS, ids=lambda sink: f"{sink.kind_name}-{sink.batch_size}-{sink.max_concurrent}")
def test_the_api_equals_the_table_after_any_history(sink: SinkCase, tmp_path: Path) -> None:
    """Users rely on it: errors, rejections, missing answers and kills leave no difference."""
    for seed in new_seeds(HISTORY_COUNT if sink.kind_name in MIRRORED else SMALL_HISTORY_COUNT):
        chance = random.Random(f"{seed} {sink}")
        table, store = a_table(sink)
        life = RandomSyncRuns(sink, table, store, tmp_path / f"{seed}.sqlite", chance)
        for key, values in history(sink, chance):
            table.write(key, values)
            if chance.random() < 0.6:
                life.run()
        assert [] == life.finish_without_faults(), f"seed {seed}"
        assert store.expected_objects() == store.objects, f"seed {seed}"
        assert [] == store.violations, f"seed {seed}"


@pytest.mark.parametrize(
    "sink",
    [sink for sink in SINKS if sink.batch_size in (WHOLE_TABLE, 2, 100)],
    ids=lambda sink: f"{sink.kind_name}-{sink.batch_size}-{sink.max_concurrent}",
)
def test_every_change_is_counted_once(sink: SinkCase, tmp_path: Path) -> None:
    """A change is settled, pending or merged into a newer one. Each outcome and each invalid row has one record."""
    for seed in new_seeds(SMALL_HISTORY_COUNT // 2):
        chance = random.Random(f"books {seed} {sink}")
        table, store = a_table(sink)
        folder = tmp_path / seed
        books = RecordAudit(folder / "tracking", chance, by_key=sink.delivers_by_key)
        life = RandomSyncRuns(sink, table, store, folder / "queue.sqlite", chance, books)
        for key, values in history(sink, chance):
            table.write(key, values)
            if chance.random() < 0.2:
                books.add_invalid_row()
            if chance.random() < 0.6:
                life.run()
                with life.open_queue() as queue:
                    assert [] == books.find_problems(queue), f"seed {seed}"
                    assert sink.shape is UnitKind.MIRROR or [] == books.find_unrecorded_changes(queue), f"seed {seed}"
        assert [] == life.finish_without_faults(), f"seed {seed}"
        with life.open_queue() as queue:
            assert [] == queue.store.fetch_rows("select * from settled"), f"seed {seed}"
            assert [] == books.find_problems(queue), f"seed {seed}"
            assert sink.shape is UnitKind.MIRROR or [] == books.find_unrecorded_changes(queue), f"seed {seed}"
