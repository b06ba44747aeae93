"""A query reads its inputs as they were when its run looked, by names that can't be mistaken."""

import dataclasses
from pathlib import Path

import pytest
from support.model_tables import ModelTables, a_model, values

from ondatra_dagster.errors import WarehouseError
from ondatra_dagster.project.model import FileInput, ModelInput, Reference, SourceInput
from ondatra_dagster.warehouse.model_run import evaluate

pytestmark = pytest.mark.spark

RAW = a_model("table", values("1, 'a'"), name="raw.things")


def reading(name: str, source: object, sql: str = "select * from {}"):
    start = sql.index("{}")
    return a_model(
        "table",
        sql.format(name),
        inputs=(source,),
        references=(Reference(start=start, end=start + len(name), input=source),),
    )


def test_a_later_version_is_not_read(lake: ModelTables) -> None:
    """What the commit says it was made from is what it was made from."""
    first = lake.write(RAW)
    lake.write(dataclasses.replace(RAW, sql=values("1, 'b'")))
    model = reading("raw.things", ModelInput(model="raw.things"))
    versions = {"raw.things": f"{first.table_id}@{first.version}"}
    assert [(1, "a")] == [tuple(row) for row in evaluate(lake.warehouse, model, versions).collect()]
    assert [(1, "b")] == [tuple(row) for row in evaluate(lake.warehouse, model, {}).collect()]


def test_hidden_columns_are_not_read(lake: ModelTables) -> None:
    """Else `select *` would take another table's rowids for a column."""
    lake.write(dataclasses.replace(a_model("tracked", values("1, 'a'")), name="raw.things"))
    model = reading("raw.things", ModelInput(model="raw.things"))
    assert ["id", "name"] == evaluate(lake.warehouse, model, {}).columns


def test_a_column_that_came_without_rows_is_read(lake: ModelTables) -> None:
    """The version is older than the column."""
    first = lake.write(RAW)
    lake.write(dataclasses.replace(RAW, sql=f"select *, cast(null as int) as n from ({RAW.sql})"))
    model = reading("raw.things", ModelInput(model="raw.things"))
    versions = {"raw.things": f"{first.table_id}@{first.version}"}
    assert ["id", "name", "n"] == evaluate(lake.warehouse, model, versions).columns


def test_files_are_read_with_their_options(lake: ModelTables) -> None:
    root = lake.warehouse.settings.root
    (root / "some data").mkdir()
    (root / "some data" / "x y.csv").write_text("id;name\n1;a\n")
    source = FileInput(format="csv", path="some data/x y.csv", options=(("header", "true"), ("sep", ";")))
    model = reading("csv.`some data/x y.csv`", source)
    assert [("1", "a")] == [tuple(row) for row in evaluate(lake.warehouse, model, {}).collect()]


def test_a_folder_of_tables_is_read(lake: ModelTables) -> None:
    root: Path = lake.warehouse.settings.root
    rows = lake.warehouse.session.sql("select 7 as id")
    rows.write.format("delta").save(str(root / "lake" / "tables" / "sevens"))
    rows.write.format("parquet").save(str(root / "lake" / "tables" / "plain"))
    for table in ("sevens", "plain"):
        source = SourceInput(source="crm", table=table, location="lake/tables")
        model = reading(f"crm.{table}", source)
        assert [7] == [row["id"] for row in evaluate(lake.warehouse, model, {}).collect()]


def test_an_unmade_input_is_named(lake: ModelTables) -> None:
    model = reading("raw.nothing", ModelInput(model="raw.nothing"))
    with pytest.raises(WarehouseError, match=r"models/mart/things\.sql:3: raw\.nothing has no table yet"):
        evaluate(lake.warehouse, model, {"raw.nothing": "missing"})


def test_a_failing_query_is_one_sentence_with_its_line(lake: ModelTables) -> None:
    """Spark's own answer has a hundred lines, and not the file's name."""
    model = a_model("table", "select\n  1 as a,\n  nothing as b\nfrom values (1) as t(id)")
    with pytest.raises(WarehouseError) as failure:
        evaluate(lake.warehouse, model, {})
    assert str(failure.value).startswith("models/mart/things.sql:5: ")
    assert "nothing" in str(failure.value)
    assert "\n" not in str(failure.value)
    with pytest.raises(WarehouseError, match=r"models/mart/things\.sql:4: "):
        evaluate(lake.warehouse, a_model("table", "select 1\nfrom from x"), {})
