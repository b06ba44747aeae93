"""The Parquet files of one input: they have the same columns, because Spark uses those of one file for all."""

from datetime import UTC, datetime

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.spark.file_models import build_file_model, evaluate_rows, write_input_file
from support.spark.model_tables import ModelTables

from ondatra_dagster.errors import WarehouseError
from ondatra_dagster.warehouse.model_run import evaluate_query

pytestmark = pytest.mark.spark


def a_parquet(model_tables: ModelTables, path: str, **columns: list[object] | pa.Array) -> None:
    file = model_tables.warehouse.settings.root / path
    file.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table(columns), file)


@pytest.mark.parametrize(
    ("other", "told"),
    [
        (
            {"id": [2]},
            "in/b.parquet has no column 'name', which in/a.parquet has; write all files with the same columns, or set ",
        ),
        ({"id": [2], "name": ["y"], "More": [1]}, "in/a.parquet has no column 'More', which in/b.parquet has; "),
        (
            {"id": ["2"], "name": ["y"]},
            "column 'id' is bigint in in/a.parquet and string in in/b.parquet; write the files with one type",
        ),
    ],
)
def test_parquet_files_of_a_folder_have_the_same_columns(
    model_tables: ModelTables, other: dict[str, list[object]], told: str
) -> None:
    """Spark would use the columns of one of them for all."""
    a_parquet(model_tables, "in/a.parquet", id=[1], name=["x"])
    a_parquet(model_tables, "in/b.parquet", **other)
    with pytest.raises(WarehouseError) as failure:
        model_tables.write(build_file_model("in", "parquet"))
    assert str(failure.value).startswith(f"models/mart/things.sql:3: {told}")


def test_parquet_columns_that_are_missing_are_nulls_where_the_model_says_so(model_tables: ModelTables) -> None:
    a_parquet(model_tables, "in/a.parquet", id=[1])
    a_parquet(model_tables, "in/b.parquet", id=[2], name=["y"])
    model = build_file_model("in", "parquet", mergeSchema="true")
    assert [(1, None), (2, "y")] == evaluate_rows(model_tables, model)


def test_parquet_files_that_spark_reads_alike_are_accepted(model_tables: ModelTables) -> None:
    """They may have another order of columns, other writers, or folders of partitions."""
    moment = datetime(2026, 1, 2, tzinfo=UTC)
    a_parquet(
        model_tables,
        "in/day=1/a.parquet",
        id=[1],
        name=pa.array(["x"], pa.large_string()),
        at=pa.array([moment], pa.timestamp("ms", "UTC")),
    )
    a_parquet(
        model_tables,
        "in/day=2/b.parquet",
        AT=pa.array([moment], pa.timestamp("us", "UTC")),
        id=[2],
        name=pa.array(["y"]).dictionary_encode(),
    )
    write_input_file(model_tables, "in/_SUCCESS", "")
    rows = (
        evaluate_query(model_tables.warehouse, build_file_model("in", "parquet"), {})
        .select("id", "name", "day")
        .collect()
    )
    assert [(1, "x", 1), (2, "y", 2)] == sorted(map(tuple, rows))


def test_a_declared_parquet_column_is_in_every_file(model_tables: ModelTables) -> None:
    a_parquet(model_tables, "in/day=1/a.parquet", id=[1], name=["x"])
    a_parquet(model_tables, "in/day=1/b.parquet", id=[2])
    assert [(1, 1), (2, 1)] == evaluate_rows(
        model_tables, build_file_model("in", "parquet", schema="id BIGINT, day INT")
    )
    with pytest.raises(WarehouseError, match=r"in/day=1/b\.parquet has no column 'name', which the schema names"):
        model_tables.write(build_file_model("in", "parquet", schema="id BIGINT, name STRING"))


def test_the_error_about_another_declared_parquet_type_is_one_sentence(model_tables: ModelTables) -> None:
    a_parquet(model_tables, "in/a.parquet", id=["x"])
    message = r"^models/mart/things\.sql:3: Encountered error while reading file \S+/in/a\.parquet\. Data type mism"
    with pytest.raises(WarehouseError, match=message) as failure:
        model_tables.write(build_file_model("in", "parquet", schema="id BIGINT"))
    assert "\n" not in str(failure.value)
