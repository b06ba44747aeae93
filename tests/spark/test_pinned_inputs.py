"""The inputs of a query: it reads the versions that its run has planned, by names that can't be mistaken."""

import dataclasses
from pathlib import Path

import pytest
from support.spark.model_tables import ModelTables, build_model, values_query

from ondatra_dagster.deltalog.log_reader import read_table_state
from ondatra_dagster.errors import WarehouseError
from ondatra_dagster.project.model import FileInput, ModelInput, Reference, SourceInput
from ondatra_dagster.warehouse.model_run import evaluate_query

pytestmark = pytest.mark.spark

RAW = build_model("table", values_query("1, 'a'"), name="raw.things")


def reading(name: str, source: object, sql: str = "select * from {}"):
    start = sql.index("{}")
    return build_model(
        "table",
        sql.format(name),
        inputs=(source,),
        references=(Reference(start=start, end=start + len(name), input=source),),
    )


def test_a_later_version_is_not_read(model_tables: ModelTables) -> None:
    """The table is computed from the versions that its commit names."""
    first = model_tables.write(RAW)
    model_tables.write(dataclasses.replace(RAW, sql=values_query("1, 'b'")))
    model = reading("raw.things", ModelInput(model="raw.things"))
    versions = {"raw.things": f"{first.table_id}@{first.version}"}
    assert [(1, "a")] == [tuple(row) for row in evaluate_query(model_tables.warehouse, model, versions).collect()]
    assert [(1, "b")] == [tuple(row) for row in evaluate_query(model_tables.warehouse, model, {}).collect()]


def test_hidden_columns_are_not_read(model_tables: ModelTables) -> None:
    """Otherwise `select *` would return another table's rowids as a column."""
    model_tables.write(dataclasses.replace(build_model("tracked", values_query("1, 'a'")), name="raw.things"))
    model = reading("raw.things", ModelInput(model="raw.things"))
    assert ["id", "name"] == evaluate_query(model_tables.warehouse, model, {}).columns


def test_a_column_that_was_added_without_rows_is_read(model_tables: ModelTables) -> None:
    """The planned version is older than the column."""
    first = model_tables.write(RAW)
    model_tables.write(dataclasses.replace(RAW, sql=f"select *, cast(null as int) as n from ({RAW.sql})"))
    model = reading("raw.things", ModelInput(model="raw.things"))
    versions = {"raw.things": f"{first.table_id}@{first.version}"}
    assert ["id", "name", "n"] == evaluate_query(model_tables.warehouse, model, versions).columns


def test_files_are_read_with_their_options(model_tables: ModelTables) -> None:
    root = model_tables.warehouse.settings.root
    (root / "some data").mkdir()
    (root / "some data" / "x y.csv").write_text("id;name\n1;a\n")
    source = FileInput(format="csv", path="some data/x y.csv", options=(("header", "true"), ("sep", ";")))
    model = reading("csv.`some data/x y.csv`", source)
    assert [("1", "a")] == [tuple(row) for row in evaluate_query(model_tables.warehouse, model, {}).collect()]


def test_a_folder_of_tables_is_read(model_tables: ModelTables) -> None:
    root: Path = model_tables.warehouse.settings.root
    rows = model_tables.warehouse.session.sql("select 7 as id")
    rows.write.format("delta").save(str(root / "lake" / "tables" / "sevens"))
    rows.write.format("parquet").save(str(root / "lake" / "tables" / "plain"))
    for table in ("sevens", "plain"):
        source = SourceInput(source="crm", table=table, location="lake/tables")
        model = reading(f"crm.{table}", source)
        assert [7] == [row["id"] for row in evaluate_query(model_tables.warehouse, model, {}).collect()]


def test_a_source_is_read_at_the_version_that_was_planned(model_tables: ModelTables) -> None:
    """Another program writes to the source while the run reads it."""
    root: Path = model_tables.warehouse.settings.root
    table = root / "lake" / "Deals 2026"
    for number in (1, 2):
        model_tables.warehouse.session.sql(f"select {number} as id").write.format("delta").mode("overwrite").save(
            str(table)
        )
    source = SourceInput(source="crm", table="Deals 2026", location="lake")
    model = reading("crm.`Deals 2026`", source)
    state = read_table_state(table)
    assert state is not None
    planned = {source.name: f"{state.table_id}@0"}
    assert [1] == [row["id"] for row in evaluate_query(model_tables.warehouse, model, planned).collect()]
    assert [2] == [row["id"] for row in evaluate_query(model_tables.warehouse, model, {}).collect()]
    with pytest.raises(WarehouseError, match="a table was replaced while this run was under way"):
        evaluate_query(model_tables.warehouse, model, {source.name: "another@0"})


def test_another_projects_hidden_columns_are_not_read(model_tables: ModelTables) -> None:
    """An ordinary table with a column of such a name keeps it."""
    model_tables.write(build_model("tracked", values_query("1, 'a'"), name="raw.things"))
    warehouse = model_tables.warehouse.settings.warehouse
    theirs = SourceInput(source="crm", table="things", location=f"{warehouse}/raw")
    assert ["id", "name"] == evaluate_query(model_tables.warehouse, reading("crm.things", theirs), {}).columns
    own = str(model_tables.warehouse.settings.root / "lake" / "plain")
    model_tables.warehouse.session.sql("select 1 as id, 'x' as _content_hash").write.format("delta").save(own)
    plain = SourceInput(source="crm", table="plain", location="lake")
    model = reading("crm.plain", plain, "select id, _content_hash as theirs from {}")
    assert ["id", "theirs"] == evaluate_query(model_tables.warehouse, model, {}).columns


def test_a_table_of_a_catalog_is_read(model_tables: ModelTables) -> None:
    session = model_tables.warehouse.session
    session.sql("create schema if not exists Odd_Schema").collect()
    location = (model_tables.warehouse.settings.root / "catalog").as_uri()
    session.sql(f"create table Odd_Schema.My_Deals using parquet location '{location}' as select 7 as id")
    source = SourceInput(source="crm", table="My_Deals", location="spark_catalog.Odd_Schema")
    model = reading("crm.My_Deals", source)
    assert [7] == [row["id"] for row in evaluate_query(model_tables.warehouse, model, {}).collect()]
    session.sql("drop schema Odd_Schema cascade").collect()


def test_the_error_about_a_missing_table_names_a_similar_one(model_tables: ModelTables) -> None:
    (model_tables.warehouse.settings.root / "lake" / "Deals").mkdir(parents=True)
    model = reading("crm.deals", SourceInput(source="crm", table="deals", location="lake"))
    with pytest.raises(WarehouseError, match=r"crm\.deals isn't there; did you mean `Deals`\?"):
        evaluate_query(model_tables.warehouse, model, {})


def test_an_input_without_a_table_is_named(model_tables: ModelTables) -> None:
    model = reading("raw.nothing", ModelInput(model="raw.nothing"))
    with pytest.raises(WarehouseError, match=r"models/mart/things\.sql:3: raw\.nothing has no table yet"):
        evaluate_query(model_tables.warehouse, model, {"raw.nothing": "missing"})


def test_the_error_of_a_failing_query_is_one_sentence_with_its_line(model_tables: ModelTables) -> None:
    """Spark's own message has a hundred lines, and not the name of the file."""
    model = build_model("table", "select\n  1 as a,\n  nothing as b\nfrom values (1) as t(id)")
    with pytest.raises(WarehouseError) as failure:
        evaluate_query(model_tables.warehouse, model, {})
    assert str(failure.value).startswith("models/mart/things.sql:5: ")
    assert "nothing" in str(failure.value)
    assert "\n" not in str(failure.value)
    with pytest.raises(WarehouseError, match=r"models/mart/things\.sql:4: "):
        evaluate_query(model_tables.warehouse, build_model("table", "select 1\nfrom from x"), {})
