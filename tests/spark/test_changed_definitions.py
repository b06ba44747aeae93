"""A changed definition alters the table where that is safe, and says what to do where it isn't."""

import orjson
import pytest
from support.model_tables import QUERIED, ModelTables, a_model, values

from ondatra_dagster.errors import WarehouseError
from ondatra_dagster.project.kinds import KINDS
from ondatra_dagster.project.model import Model
from ondatra_dagster.warehouse.altered_table import STALE_HASHES

pytestmark = pytest.mark.spark

FIRST = "select id, name from values (1, 'a'), (2, 'b') as t(id, name)"


def columns_of(lake: ModelTables, model: Model) -> set[str]:
    """The table's columns, but for the kind's own."""
    return {column.name for column in lake.state(model).columns} - set(model.kind.own_columns)


def told_by_name(lake: ModelTables, model: Model, after: int) -> list[tuple[object, ...]]:
    """The rows of the feed, but for the kind's own columns."""
    return [
        tuple(
            value
            for name, value in zip(page.layout.names, orjson.loads(change.payload), strict=True)
            if name not in model.kind.own_columns
        )
        for segment in lake.feed(model).segments(after, lake.state(model).version)
        for page in segment.pages
        for change in page.changes
    ]


REPLACING = [kind for kind in QUERIED if kind != "append"]  # to which a row with a new column is a new row


@pytest.mark.parametrize("kind", REPLACING)
def test_a_column_is_added(lake: ModelTables, kind: str) -> None:
    first = lake.run(kind, FIRST)
    model = a_model(kind, f"select *, id * 10 as `times ten` from ({FIRST})")
    lake.write(model)
    assert {"id", "name", "times ten"} == columns_of(lake, model)
    # the feed is readable across it, the old images without a value
    told = told_by_name(lake, model, first.version)
    assert (1, "a", None) in told
    assert (1, "a", 10) in told


def test_an_added_column_without_values_changes_no_row(lake: ModelTables) -> None:
    """What the API has is still what it should have."""
    for kind in QUERIED:
        lake.run(kind, FIRST, name=f"mart.{kind}")
        model = a_model(kind, f"select *, cast(null as string) as note from ({FIRST})", name=f"mart.{kind}")
        assert not lake.write(model).changed, kind
        assert not lake.write(model).changed, kind


@pytest.mark.parametrize("kind", QUERIED)
def test_a_dropped_column_sends_no_equal_row_again(lake: ModelTables, kind: str) -> None:
    """The feed is cut there: one layout can't hold both sides."""
    query = "select id, name, {} as extra from values (1, 'a'), (2, 'b') as t(id, name)"
    first = lake.run(kind, query.format("id"))
    model = a_model(kind, FIRST)
    written = lake.write(model)
    assert not written.changed
    assert {"id", "name"} == columns_of(lake, model)
    later = lake.run(kind, values("1, 'a'", "2, 'B'"))
    segments = [
        (page.layout.names, [orjson.loads(change.payload) for change in page.changes])
        for segment in lake.feed(model).segments(0, later.version)
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
def test_hashes_are_trusted_again_once_all_rows_are_rewritten(lake: ModelTables, kind: str) -> None:
    """Of other columns they are no use, and are reckoned anew in each run; new rows bring their own."""
    model = a_model(kind, "")
    query = "select id, name, {} as extra from values (1, 'a'), (2, 'b') as t(id, name)"
    lake.run(kind, query.format("id"))
    lake.run(kind, FIRST)
    lake.run(kind, FIRST + " union all select 3, 'c'")
    # a table is written whole anyway; of the others two rows still hold a hash of three columns
    assert (kind == "table") is trusts_hashes(lake, model)
    written = lake.run(kind, values("1, 'A'", "2, 'B'", "3, 'C'"))
    assert trusts_hashes(lake, model)
    assert written.version == lake.state(model).version
    assert not lake.run(kind, values("2, 'B'", "1, 'A'", "3, 'C'")).changed
    again = lake.run(kind, values("1, 'A'", "2, 'b'", "3, 'C'"))
    assert (3 if kind == "table" else 1) == again.inserted


def trusts_hashes(lake: ModelTables, model: Model) -> bool:
    return STALE_HASHES not in lake.state(model).properties


@pytest.mark.parametrize("kind", QUERIED)
def test_a_wider_type_changes_no_row(lake: ModelTables, kind: str) -> None:
    """An INT that becomes a BIGINT is the same number."""
    model = a_model(kind, f"select cast(id as bigint) as id, name from ({FIRST})")
    lake.run(kind, FIRST)
    assert not lake.write(model).changed
    assert ["bigint", "string"] == [column.type for column in lake.state(model).columns[:2]]
    assert lake.run(kind, f"select id + 5000000000 as id, name from ({FIRST})").inserted == 2
    # a narrower type fits as it is
    lake.run(kind, FIRST)
    assert ["bigint", "string"] == [column.type for column in lake.state(model).columns[:2]]


@pytest.mark.parametrize(
    ("kind", "key", "query", "said"),
    [
        ("merge", ("id",), "select id, 1 as name from ({})", "column 'name' was string and would be int"),
        ("tracked", ("id",), FIRST, "the table was made with the kind merge"),
        ("merge", ("name",), FIRST, "the table was made with the key"),
    ],
)
def test_what_would_make_another_table_is_refused(
    lake: ModelTables, kind: str, key: tuple[str, ...], query: str, said: str
) -> None:
    lake.run("merge", FIRST)
    model = a_model("merge", FIRST)
    before = lake.state(model)
    with pytest.raises(WarehouseError, match=said):
        lake.run(kind, query.format(FIRST), key=key)
    assert before == lake.state(model)
