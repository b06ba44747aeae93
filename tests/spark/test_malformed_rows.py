"""Rows of JSON and CSV files that can't be parsed: they fail their model, unless it asks for another mode."""

import dataclasses
import gzip
import re

import pytest
from support.spark.file_models import build_file_model, evaluate_rows, write_input_file
from support.spark.model_tables import ModelTables

from ondatra_dagster.errors import WarehouseError
from ondatra_dagster.warehouse.model_run import evaluate_query

pytestmark = pytest.mark.spark

BROKEN = '{"id": 1, "name": "x"}\n\n{"id": 2, "name":\n{"id": 3, "name": "z"}\nnothing\n'
PERMISSIVE = {"mode": "PERMISSIVE"}


@pytest.mark.parametrize(
    "options",
    [{}, {"schema": "id INT, name STRING"}, {"MODE": "failfast"}],
    ids=["columns found", "columns given", "asked for"],
)
def test_json_that_cant_be_parsed_fails_its_model(model_tables: ModelTables, options: dict[str, str]) -> None:
    """Spark's reader would return nulls for such rows, without a message."""
    write_input_file(model_tables, "in/x.json", BROKEN)
    of_id = "int" if "schema" in options else "bigint"
    with pytest.raises(WarehouseError) as failure:
        model_tables.write(build_file_model("in/x.json", "json", **options))
    assert str(failure.value) == (
        "models/mart/things.sql:3: in/x.json has 2 rows that can't be parsed as"
        f' id {of_id}, name string; the first in line 3 is \'{{"id": 2, "name":\';'
        " correct the file, or read such rows as nulls with 'mode' = 'PERMISSIVE' in its WITH (…)"
    )


def test_nothing_is_written_of_files_with_rows_that_cant_be_parsed(model_tables: ModelTables) -> None:
    write_input_file(model_tables, "x.json", '{"id": 1}\n')
    model = build_file_model("x.json", "json")
    model_tables.write(model)
    before = model_tables.state(model)
    write_input_file(model_tables, "x.json", '{"id": 1}\n{"id": 2}\n{"id"\n')
    with pytest.raises(WarehouseError, match=r"x\.json has 1 row that can't be parsed as id bigint"):
        model_tables.write(model)
    assert before == model_tables.state(model)


@pytest.mark.parametrize(
    ("path", "told"),
    [
        ("in", "in/b.json.gz and 1 other file have 3 rows .* the first in line 2 is 'broken'"),
        ("in/[b]*", "in/b.json.gz has 1 row .* the first in line 2 is 'broken'"),
    ],
)
def test_all_files_of_a_folder_or_pattern_are_counted(model_tables: ModelTables, path: str, told: str) -> None:
    write_input_file(model_tables, "in/a.json", '{"id": 1}\n')
    write_input_file(model_tables, "in/b.json.gz", gzip.compress(b'{"id": 2}\nbroken\n'))
    write_input_file(model_tables, "in/c.json", '{"id": 3}\n5\n"text"\n')
    with pytest.raises(WarehouseError, match=told):
        model_tables.write(build_file_model(path, "json"))


def test_the_error_about_a_broken_multiline_document_has_no_line(model_tables: ModelTables) -> None:
    write_input_file(model_tables, "x.json", '[\n  {"id": 1},\n  {"id":\n]\n')
    message = r"x\.json has 1 row that can't be parsed as JSON objects; the first is '\[ \{\"id\": 1\}, "
    with pytest.raises(WarehouseError, match=message):
        model_tables.write(build_file_model("x.json", "json", multiLine="true"))


def test_a_value_of_another_type_fails_its_model(model_tables: ModelTables) -> None:
    """With a declared schema Spark would drop the text of the value."""
    write_input_file(model_tables, "x.json", '{"id": 1}\n{"id": "two"}\n')
    with pytest.raises(WarehouseError, match=r"parsed as id int; the first in line 2 is '\{\"id\": \"two\"\}'"):
        model_tables.write(build_file_model("x.json", "json", schema="id INT"))


def test_a_broken_row_that_a_filter_leaves_out_fails_its_model(model_tables: ModelTables) -> None:
    """Spark would stop parsing at the column that the filter uses."""
    write_input_file(model_tables, "x.json", '{"id": 1, "name": "x"}\n{"id": 2, "name": "y\n')
    model = build_file_model("x.json", "json", schema="id INT, name STRING")
    with pytest.raises(WarehouseError, match="has 1 row that can't be parsed"):
        model_tables.write(dataclasses.replace(model, sql=f"{model.sql} where id = 1"))


def test_rows_that_cant_be_parsed_are_nulls_where_the_model_says_so(model_tables: ModelTables) -> None:
    """Spark documents its mode PERMISSIVE like this."""
    write_input_file(model_tables, "x.json", BROKEN)
    frame = evaluate_query(model_tables.warehouse, build_file_model("x.json", "json", **PERMISSIVE), {})
    assert ["_corrupt_record", "id", "name"] == frame.columns
    values = sorted(map(str, (row[0] for row in frame.collect())))
    assert ["None", "None", "nothing", '{"id": 2, "name":'] == values
    named = build_file_model(
        "x.json", "json", **PERMISSIVE, columnNameOfCorruptRecord="bad", schema="id INT, bad STRING"
    )
    bad_texts = [row["bad"] for row in evaluate_query(model_tables.warehouse, named, {}).collect() if row["bad"]]
    assert ['{"id": 2, "name":', "nothing"] == bad_texts


def test_rows_that_cant_be_parsed_are_dropped_where_the_model_says_so(model_tables: ModelTables) -> None:
    write_input_file(model_tables, "x.json", BROKEN)
    assert [(1, "x"), (3, "z")] == evaluate_rows(model_tables, build_file_model("x.json", "json", mode="dropMalformed"))
    write_input_file(model_tables, "x.csv", "id,name\n1\n2,y\n")
    model = build_file_model("x.csv", header="true", mode="DROPMALFORMED")
    model = dataclasses.replace(model, sql=model.sql.replace("*", "id"))
    moved = dataclasses.replace(model.references[0], start=15, end=26)
    assert [("2",)] == evaluate_rows(model_tables, dataclasses.replace(model, references=(moved,)))


def test_a_real_column_named_corrupt_record_is_read(model_tables: ModelTables) -> None:
    write_input_file(model_tables, "x.json", '{"_corrupt_record": 5, "id": 1}\n')
    assert [(5, 1)] == evaluate_rows(model_tables, build_file_model("x.json", "json"))


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ("1,x\n2\n", "x.csv has 1 row that can't be parsed as id string, name string; the first in line 3 is '2'"),
        ("1,x\n2,y,z\n", "the first in line 3 is '2,y,z'"),
        ('1,x\n"2,y\n', "the first in line 3 is '\"2,y'"),
    ],
)
def test_a_csv_row_of_another_length_fails_its_model(model_tables: ModelTables, content: str, told: str) -> None:
    """Spark would add nulls or drop values, and the row also fails when that column isn't read."""
    write_input_file(model_tables, "x.csv", f"id,name\n{content}")
    model = build_file_model("x.csv", header="true")
    with pytest.raises(WarehouseError, match=re.escape(told)):
        model_tables.write(model)
    with pytest.raises(WarehouseError, match=re.escape(told)):
        model_tables.write(dataclasses.replace(model, sql=model.sql.replace("*", "1")))


def test_a_csv_value_of_another_type_fails_its_model(model_tables: ModelTables) -> None:
    write_input_file(model_tables, "x.csv", "id,at\n1,2026-01-02\n2,\n3,soon\n")
    message = r"x\.csv has 1 row that can't be parsed as id bigint, at date; the first in line 4 is '3,soon'"
    with pytest.raises(WarehouseError, match=message):
        model_tables.write(build_file_model("x.csv", header="true", schema="id BIGINT, at DATE"))
