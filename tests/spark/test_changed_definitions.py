"""A changed definition alters the table where that is safe, and says what to do where it isn't."""

import orjson
import pytest
from support.model_tables import ModelTables, a_model, values

from ondatra_dagster.errors import WarehouseError
from ondatra_dagster.project.kinds import KINDS

pytestmark = pytest.mark.spark

FIRST = "select id, name from values (1, 'a'), (2, 'b') as t(id, name)"


@pytest.mark.parametrize("kind", KINDS)
def test_a_column_is_added(lake: ModelTables, kind: str) -> None:
    first = lake.run(kind, FIRST)
    model = a_model(kind, f"select *, id * 10 as `times ten` from ({FIRST})")
    lake.write(model)
    assert ["id", "name", "times ten"] == [column.name for column in lake.state(model).columns]
    rows = {orjson.loads(change.payload)[2] for change in lake.changes(model, None)}
    assert {10, 20} == rows
    # the feed is readable across it, the old images without a value
    told = [orjson.loads(change.payload) for change in lake.changes(model, first.version)]
    assert [1, "a", None] in told
    assert [1, "a", 10] in told


def test_an_added_column_without_values_changes_no_row(lake: ModelTables) -> None:
    """What the API has is still what it should have."""
    for kind in KINDS:
        lake.run(kind, FIRST, name=f"mart.{kind}")
        model = a_model(kind, f"select *, cast(null as string) as note from ({FIRST})", name=f"mart.{kind}")
        assert not lake.write(model).changed, kind
        assert not lake.write(model).changed, kind


@pytest.mark.parametrize("kind", KINDS)
def test_a_dropped_column_sends_no_equal_row_again(lake: ModelTables, kind: str) -> None:
    """The feed is cut there: one layout can't hold both sides."""
    query = "select id, name, {} as extra from values (1, 'a'), (2, 'b') as t(id, name)"
    first = lake.run(kind, query.format("id"))
    model = a_model(kind, FIRST)
    written = lake.write(model)
    assert not written.changed
    assert ["id", "name"] == [column.name for column in lake.state(model).columns]
    later = lake.run(kind, values("1, 'a'", "2, 'B'"))
    segments = [
        (page.layout.names, [orjson.loads(change.payload) for change in page.changes])
        for segment in lake.feed(model).segments(0, later.version)
        for page in segment.pages
    ]
    assert ("id", "name", "extra") == segments[0][0]
    assert [2, "b", 2] in segments[0][1]
    assert ("id", "name") == segments[-1][0]
    assert [2, "B"] in segments[-1][1]
    if kind != "table":
        assert not [row for row in segments[-1][1] if row[0] == 1]
    assert first.version == 1


@pytest.mark.parametrize("kind", KINDS)
def test_a_wider_type_changes_no_row(lake: ModelTables, kind: str) -> None:
    """An INT that becomes a BIGINT is the same number."""
    model = a_model(kind, f"select cast(id as bigint) as id, name from ({FIRST})")
    lake.run(kind, FIRST)
    assert not lake.write(model).changed
    assert ["bigint", "string"] == [column.type for column in lake.state(model).columns]
    assert lake.run(kind, f"select id + 5000000000 as id, name from ({FIRST})").inserted == 2
    # a narrower type fits as it is
    lake.run(kind, FIRST)
    assert ["bigint", "string"] == [column.type for column in lake.state(model).columns]


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
