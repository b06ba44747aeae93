"""How rows lie: by @partitioned_by."""

import pytest
from support.model_tables import QUERIED, ModelTables, a_model, values

pytestmark = pytest.mark.spark

FIRST = values("1, 'a'", "2, 'b'")


@pytest.mark.parametrize("kind", [kind for kind in QUERIED if kind not in ("table", "partition")])
def test_a_hint_changes_nothing_but_how_rows_lie(lake: ModelTables, kind: str) -> None:
    lake.run(kind, FIRST, storage_columns=("name",))
    model = a_model(kind, values("1, 'a'", "2, 'B'"), storage_columns=("name",))
    assert lake.write(model).changed
    detail = lake.warehouse.session.sql(f"describe detail delta.`{lake.path(model)}`").collect()[0]
    assert ["name"] == list(detail["clusteringColumns"])


def test_a_table_that_is_written_whole_is_written_in_that_order(lake: ModelTables) -> None:
    """Its files then hold a range each, which is what a reader of some of it needs."""
    lake.run("table", FIRST, storage_columns=("name",))
    model = a_model("table", values("1, 'c'", "2, 'b'", "3, 'a'"), storage_columns=("name",))
    lake.write(model)
    rows = lake.rows(model).orderBy("__ondatra_rowid").collect()
    assert ["a", "b", "c"] == [row["name"] for row in rows]


def test_a_partition_has_a_folder_of_its_own(lake: ModelTables) -> None:
    """Replacing one rewrites no other's files."""
    lake.run("partition", FIRST)
    model = a_model("partition", FIRST)
    assert lake.state(model).partition_columns
    assert 2 == len({row[0] for row in lake.rows(model).selectExpr("input_file_name()").collect()})
