"""A changed definition: it alters the table where that is safe, and elsewhere the message says what to do."""

import orjson
import pytest
from support.spark.model_tables import QUERY_KINDS, ModelTables, build_model, values_query

from ondatra_dagster.errors import WarehouseError
from ondatra_dagster.project.model import Model
from ondatra_dagster.project.model_kinds import KINDS
from ondatra_dagster.warehouse.schema_evolution import STALE_HASHES

pytestmark = pytest.mark.spark

FIRST = "select id, name from values (1, 'a'), (2, 'b') as t(id, name)"


def columns_of(model_tables: ModelTables, model: Model) -> set[str]:
    """Return the table's columns, except those that its kind adds."""
    return {column.name for column in model_tables.state(model).columns} - set(model.kind.own_columns)


def told_by_name(model_tables: ModelTables, model: Model, after: int) -> list[tuple[object, ...]]:
    """Return the rows of the feed, without the columns that the kind adds."""
    return [
        tuple(
            value
            for name, value in zip(page.layout.names, orjson.loads(change.payload), strict=True)
            if name not in model.kind.own_columns
        )
        for segment in model_tables.feed(model).segments(after, model_tables.state(model).version)
        for page in segment.pages
        for change in page.changes
    ]


REPLACING = [kind for kind in QUERY_KINDS if kind != "append"]  # for append a row with a new column is a new row


@pytest.mark.parametrize("kind", REPLACING)
def test_a_column_is_added(model_tables: ModelTables, kind: str) -> None:
    first = model_tables.write_query(kind, FIRST)
    model = build_model(kind, f"select *, id * 10 as `times ten` from ({FIRST})")
    model_tables.write(model)
    assert {"id", "name", "times ten"} == columns_of(model_tables, model)
    # the feed is readable across the new column, which is null in old images
    rows = told_by_name(model_tables, model, first.version)
    assert (1, "a", None) in rows
    assert (1, "a", 10) in rows


def test_an_added_column_without_values_changes_no_row(model_tables: ModelTables) -> None:
    """The API still has what it should have."""
    for kind in QUERY_KINDS:
        model_tables.write_query(kind, FIRST, name=f"mart.{kind}")
        model = build_model(kind, f"select *, cast(null as string) as note from ({FIRST})", name=f"mart.{kind}")
        assert not model_tables.write(model).has_changes, kind
        assert not model_tables.write(model).has_changes, kind


@pytest.mark.parametrize("kind", QUERY_KINDS)
def test_a_dropped_column_sends_no_equal_row_again(model_tables: ModelTables, kind: str) -> None:
    """The feed is split there, because one layout can't hold both sides."""
    query = "select id, name, {} as extra from values (1, 'a'), (2, 'b') as t(id, name)"
    first = model_tables.write_query(kind, query.format("id"))
    model = build_model(kind, FIRST)
    result = model_tables.write(model)
    assert not result.has_changes
    assert {"id", "name"} == columns_of(model_tables, model)
    later = model_tables.write_query(kind, values_query("1, 'a'", "2, 'B'"))
    segments = [
        (page.layout.names, [orjson.loads(change.payload) for change in page.changes])
        for segment in model_tables.feed(model).segments(0, later.version)
        for page in segment.pages
    ]
    own = KINDS[kind].own_columns
    assert ("id", "name", "extra", *own) == segments[0][0]
    assert [2, "b", 2] in [row[:3] for row in segments[0][1]]
    assert ("id", "name", *own) == segments[-1][0]
    assert [2, "B"] in [row[:2] for row in segments[-1][1]]
    if kind != "table":
        assert not [row for row in segments[-1][1] if row[0] == 1]
    assert first.version == 1


@pytest.mark.parametrize("kind", ["table", "tracked", "partition"])
def test_hashes_are_trusted_again_once_all_rows_are_rewritten(model_tables: ModelTables, kind: str) -> None:
    """Hashes of other columns are useless, so each run computes them again. New rows have the new hashes."""
    model = build_model(kind, "")
    query = "select id, name, {} as extra from values (1, 'a'), (2, 'b') as t(id, name)"
    model_tables.write_query(kind, query.format("id"))
    model_tables.write_query(kind, FIRST)
    model_tables.write_query(kind, FIRST + " union all select 3, 'c'")
    # a table is written in full anyway; in other kinds two rows still have a hash of three columns
    assert (kind == "table") is trusts_hashes(model_tables, model)
    result = model_tables.write_query(kind, values_query("1, 'A'", "2, 'B'", "3, 'C'"))
    assert trusts_hashes(model_tables, model)
    assert result.version == model_tables.state(model).version
    assert not model_tables.write_query(kind, values_query("2, 'B'", "1, 'A'", "3, 'C'")).has_changes
    again = model_tables.write_query(kind, values_query("1, 'A'", "2, 'b'", "3, 'C'"))
    assert (3 if kind == "table" else 1) == again.inserted


def trusts_hashes(model_tables: ModelTables, model: Model) -> bool:
    return STALE_HASHES not in model_tables.state(model).properties


@pytest.mark.parametrize("kind", QUERY_KINDS)
def test_a_wider_type_changes_no_row(model_tables: ModelTables, kind: str) -> None:
    """An INT that becomes a BIGINT is the same number."""
    model = build_model(kind, f"select cast(id as bigint) as id, name from ({FIRST})")
    model_tables.write_query(kind, FIRST)
    assert not model_tables.write(model).has_changes
    assert ["bigint", "string"] == [column.type for column in model_tables.state(model).columns[:2]]
    assert model_tables.write_query(kind, f"select id + 5000000000 as id, name from ({FIRST})").inserted == 2
    # a narrower type fits without a change
    model_tables.write_query(kind, FIRST)
    assert ["bigint", "string"] == [column.type for column in model_tables.state(model).columns[:2]]


@pytest.mark.parametrize(
    ("kind", "key", "query", "said"),
    [
        ("merge", ("id",), "select id, 1 as name from ({})", "column 'name' was string and would be int"),
        ("tracked", ("id",), FIRST, "the table was created with the kind merge"),
        ("merge", ("name",), FIRST, "the table was created with the key"),
    ],
)
def test_a_definition_that_needs_another_table_is_refused(
    model_tables: ModelTables, kind: str, key: tuple[str, ...], query: str, said: str
) -> None:
    model_tables.write_query("merge", FIRST)
    model = build_model("merge", FIRST)
    before = model_tables.state(model)
    with pytest.raises(WarehouseError, match=said):
        model_tables.write_query(kind, query.format(FIRST), key=key)
    assert before == model_tables.state(model)
