"""Histories of Delta tables with their real change feeds, and of syncs that fail and are killed.

Each table is written once. Several syncs with batches of different sizes read it.
"""

import collections
import dataclasses
import random
from collections.abc import Iterator, Sequence
from pathlib import Path

import orjson
import pyarrow as pa
import pytest
from support.random_histories.fake_destinations import (
    DestinationContent,
    DestinationObjects,
    KeyedObjects,
    RowidObjects,
    WholeContentObjects,
)
from support.random_histories.random_seeds import new_random
from support.random_histories.random_sync_runs import WHOLE_TABLE, RandomSyncRuns, SinkCase
from support.spark.model_tables import ModelTables, build_model

from ondatra_dagster.delivery.acknowledged_to_desired_diff import UnitKind
from ondatra_dagster.project.model import Model
from ondatra_dagster.project.model_kinds import KINDS, Kind
from ondatra_dagster.row_changes import ChangeType, Column, FeedSegment, Layout, RowChange

pytestmark = pytest.mark.spark

VERSIONS = 5
KEYS = "abcdef"
SIZES = ((1, 8), (2, 1), (3, 8), (100, 1))
SINKS = {
    "merge": SIZES,
    "tracked": SIZES,
    "table": (*SIZES, (WHOLE_TABLE, 1), (WHOLE_TABLE, 8)),
    "partition": (*SIZES, (WHOLE_TABLE, 1), (WHOLE_TABLE, 8)),
    "scd2": SIZES,
}
SCHEMA = pa.schema([("id", pa.string()), ("part", pa.string()), ("value", pa.int64())])
LAYOUT = Layout((Column("id", "string"), Column("part", "string"), Column("value", "bigint")))


@dataclasses.dataclass
class DeltaKindTable:
    """A Delta table and its past versions, as far as the tests need them."""

    lake: ModelTables
    kind_name: str
    query_values: dict[str, list[int]] = dataclasses.field(default_factory=dict)
    changes: list[RowChange] = dataclasses.field(default_factory=list)
    content_by_version: list[dict[str, list[int]]] = dataclasses.field(default_factory=list)  # contents by version

    @property
    def kind(self) -> Kind:
        return KINDS[self.kind_name]

    @property
    def model(self) -> Model:
        return build_model(self.kind_name, "", name=f"mart.{self.kind_name}")

    @property
    def version(self) -> int:
        return self.lake.state(self.model).version

    def write(self, **values: Sequence[int]) -> None:
        """Write these values of the keys, and for all other keys the values that they had before."""
        before = self.version if self.content_by_version else 0
        self.query_values |= {key: list(of_key) for key, of_key in values.items()}
        rows = [(key, "p", value) for key, of_key in self.query_values.items() for value in of_key]
        columns = zip(*rows, strict=True) if rows else ((), (), ())
        arrays = [pa.array(column, field.type) for column, field in zip(columns, SCHEMA, strict=True)]
        table = pa.Table.from_arrays(arrays, schema=SCHEMA)
        result = self.lake.write_frame(self.model, self.lake.warehouse.session.createDataFrame(table))
        if result.has_changes:
            self.changes += self.lake.changes(self.model, before)
            self.content_by_version += [self.content()] * (self.version + 1 - len(self.content_by_version))

    def find_change_version(self, rowid: int, change_type: ChangeType) -> int | None:
        return next((change.version for change in self.changes if change[1:3] == (rowid, change_type)), None)

    def rows(self) -> list[RowChange]:
        """Return the current rows."""
        return self.lake.changes(self.model, None)

    def content(self) -> dict[str, list[int]]:
        values_by_key = collections.defaultdict(list)
        for change in self.rows():
            key, _, value, *_ = orjson.loads(change.payload)
            values_by_key[key].append(value)
        return {key: sorted(values) for key, values in values_by_key.items()}

    def content_by_key(self) -> dict[str, list[int]]:
        return self.content()

    def content_by_rowid(self) -> DestinationContent:
        return {str(change.rowid): orjson.loads(change.payload) for change in self.rows()}


@dataclasses.dataclass
class DeltaKindFeed:
    """The table as one sync reads it."""

    table: DeltaKindTable
    by_key: bool
    layout: Layout = LAYOUT

    @property
    def version(self) -> int:
        return self.table.version

    def segments(self, after: int | None, upto: int) -> Iterator[FeedSegment]:
        feed = dataclasses.replace(self.table.lake.feed(self.table.model), groups_by_key=self.by_key)
        return feed.segments(after, upto)


def build_random_runs(table: DeltaKindTable, sink: SinkCase, folder: Path) -> RandomSyncRuns:
    store: DestinationObjects = KeyedObjects(table) if sink.kind.delivers_by_key else RowidObjects(table)
    if sink.shape is UnitKind.MIRROR:
        store = WholeContentObjects(table)
    name = f"{sink.kind_name}-{sink.batch_size}-{sink.max_concurrent}"
    return RandomSyncRuns(
        sink, DeltaKindFeed(table, sink.delivers_by_key), store, folder / f"{name}.sqlite", new_random(name)
    )


def some_values(kind: Kind, chance: random.Random, version: int) -> list[int]:
    rows = 0 if chance.random() < 0.2 else 1 if kind.checks_duplicates else chance.randint(1, 3)
    return [100 * version + n for n in range(rows)]


@pytest.mark.parametrize("kind", SINKS)
def test_at_the_end_of_a_history_the_api_equals_the_delta_table(
    model_tables: ModelTables, tmp_path: Path, kind: str
) -> None:
    """This is ondatra's promise, with the feed of the warehouse instead of a model of it."""
    table, chance = DeltaKindTable(model_tables, kind), new_random(kind)
    lives = [build_random_runs(table, SinkCase(kind, *more), tmp_path) for more in SINKS[kind]]
    for version in range(1, VERSIONS + 1):
        table.write(**{key: some_values(KINDS[kind], chance, version) for key in chance.sample(KEYS, 2)})
        for life in lives:
            if table.content_by_version and life.rng.random() < 0.6:
                life.run()
    for life in lives:
        assert [] == life.finish_without_faults(), life.path
        assert life.store.expected_objects() == life.store.objects, life.path
        assert [] == life.store.violations, life.path
