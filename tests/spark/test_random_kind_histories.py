"""Histories of random rows for each kind, compared with the kind in plain Python: rows, changes and invalid rows.

Many histories share a table, each with separate keys, because each Spark statement is expensive.
"""

import math
import os
import random
from collections import Counter
from typing import Any

import orjson
import pyarrow as pa
import pytest
from pyspark.sql import DataFrame
from support.random_histories.expected_kind_changes import (
    APPLY_BY_KIND,
    ExpectedChange,
    ExpectedTable,
    Row,
    count_invalid_rows,
)
from support.random_histories.random_seeds import new_random
from support.spark.model_tables import QUERY_KINDS, ModelTables, build_model

from ondatra_dagster.planning.input_versions import format_table_version
from ondatra_dagster.project.model import Model, ModelInput, Reference
from ondatra_dagster.project.model_kinds import KINDS

pytestmark = pytest.mark.spark

HISTORIES = 2 * int(os.environ.get("ONDATRA_TEST_HISTORIES", "100"))
STEPS = 4
SCHEMA = pa.schema(
    [
        ("space", pa.int64()),
        ("key of it", pa.string()),
        ("amount", pa.float64()),
        ("tags", pa.map_(pa.string(), pa.int64())),
    ]
)
AMOUNTS = (0.0, -0.0, 1.5, math.nan, None)
TAGS = (None, {}, {"a": 1, "b": 2}, {"b": 2, "a": 1}, {"a": None})
SOURCE = "raw.things"


def plain(value: Any) -> Any:
    """Return a value as it compares: NaN equals NaN, and a map has no order."""
    if isinstance(value, float) and math.isnan(value):
        return "NaN"
    return tuple(sorted(value.items())) if isinstance(value, dict) else value


def rows_of(chance: random.Random, space: int) -> list[tuple[Any, ...]]:
    """Return the query's rows of one key space at one step, from few possible rows so that many come again."""
    count = chance.choice((0, 1, 2, 3, 4))
    keys = [chance.choice(("a", "b", "c", "", None)) for _ in range(count)]
    return [(space, key, chance.choice(AMOUNTS), chance.choice(TAGS)) for key in keys]


def steps(kind: str) -> list[list[tuple[Any, ...]]]:
    chances = [new_random(kind, space) for space in range(HISTORIES)]
    rows_by_step: list[list[tuple[Any, ...]]] = []
    for _ in range(STEPS):
        before = rows_by_step[-1] if rows_by_step else []
        rows: list[tuple[Any, ...]] = []
        for space, chance in enumerate(chances):
            stays = rows_by_step and chance.random() < 0.3
            rows += [row for row in before if row[0] == space] if stays else rows_of(chance, space)
        rows_by_step.append(rows)
    return rows_by_step


def frame_of(model_tables: ModelTables, rows: list[tuple[Any, ...]]) -> DataFrame:
    """Return the rows as the result of a query, by Arrow, because Spark then needs no Python process."""
    spaces, keys, amounts, tags = zip(*rows, strict=True)
    maps = [None if each is None else list(each.items()) for each in tags]
    columns = [pa.array(each, field.type) for each, field in zip((spaces, keys, amounts, maps), SCHEMA, strict=True)]
    return model_tables.warehouse.session.createDataFrame(pa.Table.from_arrays(columns, schema=SCHEMA))


def as_told(change_type: str, payload: str) -> ExpectedChange:
    # JSON has no NaN
    return (change_type, *(plain(value) for value in orjson.loads(payload)))


def json_like(told: ExpectedChange) -> ExpectedChange:
    return tuple(None if value == "NaN" else value for value in told)


def content(model_tables: ModelTables, model: Model) -> Counter[Row]:
    rows = model_tables.rows(model).drop("__ondatra_rowid", "_content_hash", "__ondatra_partition").collect()
    return Counter(tuple(plain(value) for value in row) for row in rows)


@pytest.mark.parametrize("kind", [kind for kind in QUERY_KINDS if kind != "append"])
def test_every_step_of_any_history_is_what_the_kind_promises(model_tables: ModelTables, kind: str) -> None:
    """The rows have nulls, NaN, both zeros, maps in any order, and keys that are missing or duplicated."""
    model = build_model(kind, "", key=("space", "key of it"))
    state = ExpectedTable()
    for rows in steps(kind):
        now = Counter(tuple(plain(value) for value in row) for row in rows)
        expected = APPLY_BY_KIND[kind](state, now)
        result = model_tables.write_frame(model, frame_of(model_tables, rows))
        assert (bool(expected), state.rows.total()) == (result.has_changes, result.rows)
        assert state.rows == content(model_tables, model)
        if expected:
            changes = model_tables.changes(model, state.version, result.version)
            assert Counter(map(json_like, expected)) == Counter(
                as_told(change.change_type, change.payload) for change in changes
            )
            state.version = result.version
        if KINDS[kind].checks_duplicates:
            assert count_invalid_rows(now) == dict(result.invalid_counts)


@pytest.mark.parametrize("is_row_by_row", [True, False])
def test_every_step_of_an_append_adds_only_new_rows(model_tables: ModelTables, *, is_row_by_row: bool) -> None:
    """The source's feed and a comparison of both complete results must give the same rows."""
    source = build_model("table", "", name=SOURCE)
    sql = f"select * from {SOURCE}"
    reads = ModelInput(model=SOURCE)
    place = sql.index(SOURCE)
    model = build_model(
        "append",
        sql,
        inputs=(reads,),
        references=(Reference(start=place, end=len(sql), input=reads),),
        is_row_by_row=is_row_by_row,
    )
    state = ExpectedTable()
    for rows in steps("append"):
        model_tables.write_frame(source, frame_of(model_tables, rows))
        expected = APPLY_BY_KIND["append"](state, Counter(tuple(plain(value) for value in row) for row in rows))
        result = model_tables.write(model, **{SOURCE: format_table_version(model_tables.state(source))})
        assert (len(expected), state.rows.total()) == (result.inserted, result.rows)
        assert state.rows == content(model_tables, model)
