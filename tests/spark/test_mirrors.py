"""Histories of Delta tables and their real change feeds, with syncs that fail and are killed beside them.

Each table is written once; several syncs of it, with batches of different sizes, live beside it.
"""

import collections
import dataclasses
import random
from collections.abc import Iterator, Sequence
from pathlib import Path

import orjson
import pyarrow as pa
import pytest
from support.destinations import Content, KeyStore, RowStore, Store, WholeStore
from support.lives import WHOLE, Life, Sink
from support.model_tables import ModelTables, a_model
from support.seeds import new_chance

from ondatra_dagster.changes import Change, ChangeType, Column, Layout, Segment
from ondatra_dagster.delivery.target import Shape
from ondatra_dagster.project.kinds import KINDS, Kind
from ondatra_dagster.project.model import Model

pytestmark = pytest.mark.spark

VERSIONS = 5
KEYS = "abcdef"
SIZES = ((1, 8), (2, 1), (3, 8), (100, 1))
SINKS = {
    "merge": SIZES,
    "tracked": SIZES,
    "table": (*SIZES, (WHOLE, 1), (WHOLE, 8)),
    "partition": (*SIZES, (WHOLE, 1), (WHOLE, 8)),
    "scd2": SIZES,
}
SCHEMA = pa.schema([("id", pa.string()), ("part", pa.string()), ("value", pa.int64())])
LAYOUT = Layout((Column("id", "string"), Column("part", "string"), Column("value", "bigint")))


@dataclasses.dataclass
class Written:
    """A table in the lake, and what the tests know of its past."""

    lake: ModelTables
    name: str
    given: dict[str, list[int]] = dataclasses.field(default_factory=dict)
    changes: list[Change] = dataclasses.field(default_factory=list)
    past: list[dict[str, list[int]]] = dataclasses.field(default_factory=list)  # contents by version

    @property
    def kind(self) -> Kind:
        return KINDS[self.name]

    @property
    def model(self) -> Model:
        return a_model(self.name, "", name=f"mart.{self.name}")

    @property
    def version(self) -> int:
        return self.lake.state(self.model).version

    def write(self, **values: Sequence[int]) -> None:
        """Let the query give these values of the keys, and what it gave before of the others."""
        before = self.version if self.past else 0
        self.given |= {key: list(of_key) for key, of_key in values.items()}
        rows = [(key, "p", value) for key, of_key in self.given.items() for value in of_key]
        columns = zip(*rows, strict=True) if rows else ((), (), ())
        arrays = [pa.array(column, field.type) for column, field in zip(columns, SCHEMA, strict=True)]
        table = pa.Table.from_arrays(arrays, schema=SCHEMA)
        written = self.lake.write_frame(self.model, self.lake.warehouse.session.createDataFrame(table))
        if written.changed:
            self.changes += self.lake.changes(self.model, before)
            self.past += [self.content()] * (self.version + 1 - len(self.past))

    def version_of(self, rowid: int, change_type: ChangeType) -> int | None:
        return next((change.version for change in self.changes if change[1:3] == (rowid, change_type)), None)

    def rows(self) -> list[Change]:
        """As they are now."""
        return self.lake.changes(self.model, None)

    def content(self) -> dict[str, list[int]]:
        found = collections.defaultdict(list)
        for change in self.rows():
            key, _, value, *_ = orjson.loads(change.payload)
            found[key].append(value)
        return {key: sorted(values) for key, values in found.items()}

    def by_part(self) -> dict[str, list[int]]:
        return self.content()

    def by_rowid(self) -> Content:
        return {str(change.rowid): orjson.loads(change.payload) for change in self.rows()}


@dataclasses.dataclass
class Fed:
    """The table as one sync reads it."""

    table: Written
    by_key: bool
    layout: Layout = LAYOUT

    @property
    def version(self) -> int:
        return self.table.version

    def segments(self, after: int | None, upto: int) -> Iterator[Segment]:
        feed = dataclasses.replace(self.table.lake.feed(self.table.model), by_key=self.by_key)
        return feed.segments(after, upto)


def a_life(table: Written, sink: Sink, folder: Path) -> Life:
    store: Store = KeyStore(table) if sink.kind.delivers_by_key else RowStore(table)
    if sink.shape is Shape.MIRROR:
        store = WholeStore(table)
    name = f"{sink.name}-{sink.batch_size}-{sink.max_concurrent}"
    return Life(sink, Fed(table, sink.by_key), store, folder / f"{name}.sqlite", new_chance(name))


def some_values(kind: Kind, chance: random.Random, version: int) -> list[int]:
    rows = 0 if chance.random() < 0.2 else 1 if kind.checks_duplicates else chance.randint(1, 3)
    return [100 * version + n for n in range(rows)]


@pytest.mark.parametrize("kind", SINKS)
def test_histories_of_delta_tables_end_as_mirrors(lake: ModelTables, tmp_path: Path, kind: str) -> None:
    """The promise, with the warehouse's own feed in place of a model of it."""
    table, chance = Written(lake, kind), new_chance(kind)
    lives = [a_life(table, Sink(kind, *more), tmp_path) for more in SINKS[kind]]
    for version in range(1, VERSIONS + 1):
        table.write(**{key: some_values(KINDS[kind], chance, version) for key in chance.sample(KEYS, 2)})
        for life in lives:
            if table.past and life.chance.random() < 0.6:
                life.run()
    for life in lives:
        assert [] == life.end_well(), life.path
        assert life.store.expected() == life.store.holds, life.path
        assert [] == life.store.wrongs, life.path
