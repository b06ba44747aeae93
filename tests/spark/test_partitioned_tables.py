"""The layout of rows in files, by @partitioned_by."""

import pytest
from support.spark.model_tables import QUERY_KINDS, ModelTables, build_model, values_query

pytestmark = pytest.mark.spark

FIRST = values_query("1, 'a'", "2, 'b'")


@pytest.mark.parametrize("kind", [kind for kind in QUERY_KINDS if kind not in ("table", "partition")])
def test_partitioned_by_changes_only_the_layout_of_rows(model_tables: ModelTables, kind: str) -> None:
    model_tables.write_query(kind, FIRST, storage_columns=("name",))
    model = build_model(kind, values_query("1, 'a'", "2, 'B'"), storage_columns=("name",))
    assert model_tables.write(model).has_changes
    detail = model_tables.warehouse.session.sql(f"describe detail delta.`{model_tables.path(model)}`").collect()[0]
    assert ["name"] == list(detail["clusteringColumns"])


def test_a_table_that_is_written_in_full_is_written_in_that_order(model_tables: ModelTables) -> None:
    """Each of its files then holds a range, which helps a reader of some of its rows."""
    model_tables.write_query("table", FIRST, storage_columns=("name",))
    model = build_model("table", values_query("1, 'c'", "2, 'b'", "3, 'a'"), storage_columns=("name",))
    model_tables.write(model)
    rows = model_tables.rows(model).orderBy("__ondatra_rowid").collect()
    assert ["a", "b", "c"] == [row["name"] for row in rows]


def test_each_partition_has_separate_files(model_tables: ModelTables) -> None:
    """Replacing one partition doesn't rewrite the files of another."""
    model_tables.write_query("partition", FIRST)
    model = build_model("partition", FIRST)
    assert model_tables.state(model).partition_columns
    assert 2 == len({row[0] for row in model_tables.rows(model).selectExpr("input_file_name()").collect()})
