"""The files that models read with their options; the files of a path are known before Spark is asked."""

import dataclasses

import pytest
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from support.spark.file_models import build_file_model, evaluate_rows, write_input_file
from support.spark.model_tables import ModelTables

from ondatra_dagster.errors import WarehouseError
from ondatra_dagster.warehouse.model_run import evaluate_query

pytestmark = pytest.mark.spark


def test_a_file_name_with_wildcard_characters_is_that_file(model_tables: ModelTables) -> None:
    """Spark would read the name as a pattern."""
    write_input_file(model_tables, "in [1] {a}/what? é*.csv", "id\n1\n")
    write_input_file(model_tables, "in [1] {a}/what? éx.csv", "id\n2\n")
    assert [("1",)] == evaluate_rows(model_tables, build_file_model("in [1] {a}/what? é*.csv", header="true"))


def test_patterns_and_folders_are_read(model_tables: ModelTables) -> None:
    for name in ("a", "b", "c"):
        write_input_file(model_tables, f"in/{name}.csv", f"id\n{name}\n")
    write_input_file(model_tables, "in/_SUCCESS", "")
    assert [("a",), ("b",)] == evaluate_rows(model_tables, build_file_model("in/{a,b}.csv", header="true"))
    assert [("b",), ("c",)] == evaluate_rows(model_tables, build_file_model("in/[^a].csv", header="true"))
    assert [("a",), ("b",), ("c",)] == evaluate_rows(model_tables, build_file_model("in", header="true"))


def test_a_folder_of_partitions_has_their_columns(model_tables: ModelTables) -> None:
    write_input_file(model_tables, "in/day=2026-01-02/x.json", '{"id": 1}\n')
    write_input_file(model_tables, "in/day=2026-01-03/x.json", '{"id": 2}\n')
    rows = evaluate_rows(model_tables, build_file_model("in", "json"))
    assert [(1, "2026-01-02"), (2, "2026-01-03")] == [(id_, str(day)) for id_, day in rows]


def test_a_byte_order_mark_is_not_part_of_a_column_name(model_tables: ModelTables) -> None:
    """Excel writes one."""
    write_input_file(model_tables, "x.csv", b"\xef\xbb\xbfid;name\r\n1;\xc3\xa9\r\n")
    model = build_file_model("x.csv", header="true", delimiter=";", inferSchema="true")
    assert ["id", "name"] == evaluate_query(model_tables.warehouse, model, {}).columns
    assert [(1, "é")] == evaluate_rows(model_tables, model)


def test_a_quoted_line_break_needs_an_option(model_tables: ModelTables) -> None:
    write_input_file(model_tables, "x.csv", 'id,text\n1,"two\nlines, ""quoted"""\n')
    model = build_file_model("x.csv", header="true", multiLine="true", escape='"')
    assert [("1", 'two\nlines, "quoted"')] == evaluate_rows(model_tables, model)


def test_a_schema_may_be_given(model_tables: ModelTables) -> None:
    """Then an empty file has no rows, and the values aren't read to find the types of columns."""
    write_input_file(model_tables, "x.csv", "id,at\n1,2026-01-02\n")
    model = build_file_model("x.csv", header="true", Schema="id BIGINT, at DATE")
    assert ["bigint", "date"] == [
        field.dataType.simpleString() for field in evaluate_query(model_tables.warehouse, model, {}).schema.fields
    ]
    write_input_file(model_tables, "x.csv", "")
    assert [] == evaluate_rows(model_tables, model)


def test_the_error_about_an_empty_file_says_what_to_do(model_tables: ModelTables) -> None:
    write_input_file(model_tables, "x.csv", "")
    with pytest.raises(WarehouseError, match=r"mart/things\.sql:3: x\.csv is empty, .* add 'schema' = "):
        evaluate_rows(model_tables, build_file_model("x.csv"))


def test_a_file_with_only_a_header_has_no_rows(model_tables: ModelTables) -> None:
    write_input_file(model_tables, "x.csv", "id,name\n")
    frame = evaluate_query(model_tables.warehouse, build_file_model("x.csv", header="true"), {})
    assert (["id", "name"], 0) == (frame.columns, frame.count())


def test_the_error_about_a_missing_file_says_what_to_do(model_tables: ModelTables) -> None:
    """Spark's own message says where it looked, in the words of a file system."""
    with pytest.raises(WarehouseError, match=r"^models/mart/things\.sql:3: in/\*\.csv isn't there; put it"):
        evaluate_rows(model_tables, build_file_model("in/*.csv"))


def test_the_error_about_a_missing_file_has_the_line_that_names_it(model_tables: ModelTables) -> None:
    lost = build_file_model("in/x.csv")
    model = dataclasses.replace(lost, sql=lost.sql.replace(" from ", "\nfrom "))
    with pytest.raises(WarehouseError, match=r"^models/mart/things\.sql:4: in/x\.csv isn't there"):
        evaluate_query(model_tables.warehouse, model, {})


def test_a_file_that_is_deleted_during_a_run_leaves_the_table_unchanged(model_tables: ModelTables) -> None:
    file = write_input_file(model_tables, "x.csv", "id\n1\n")
    model = build_file_model("x.csv", header="true")
    model_tables.write(model)
    before = model_tables.state(model)
    frame = evaluate_query(model_tables.warehouse, model, {})
    file.unlink()
    with pytest.raises(WarehouseError, match=r"^models/mart/things\.sql:\d+: ") as failure:
        model_tables.write_frame(model, frame)
    assert "\n" not in str(failure.value)
    assert before == model_tables.state(model)


@pytest.mark.parametrize(
    ("header", "told"),
    [
        ("at,id", "x.csv has the columns at, id, where id, at are read; name them as in the file, or set "),
        ("id,when", "x.csv has the columns id, when, where id, at are read; "),
        ("id", "x.csv has 1 column, where 2 are read; "),
        ("id,at,more", "x.csv has 3 columns, where 2 are read; "),
    ],
)
def test_a_header_that_differs_from_the_schema_is_refused(model_tables: ModelTables, header: str, told: str) -> None:
    """Spark reads columns by position. It would confuse them, or return null where the types differ."""
    write_input_file(model_tables, "x.csv", f"{header}\n1,2026-01-02\n")
    model = build_file_model("x.csv", header="true", schema="id BIGINT, at DATE")
    with pytest.raises(WarehouseError) as failure:
        model_tables.write(model)
    assert str(failure.value).startswith(f"models/mart/things.sql:3: {told}")


def test_the_files_of_a_folder_have_their_columns_in_one_order(model_tables: ModelTables) -> None:
    write_input_file(model_tables, "in/a.csv", "id,name\n1,x\n")
    write_input_file(model_tables, "in/b.csv", "name,id\ny,2\n")
    # Spark takes the columns of the file that the file system lists first
    named = r"b\.csv has the columns name, id, where id, name|a\.csv has the columns id, name, where name, id"
    with pytest.raises(WarehouseError, match=rf"({named}) are read"):
        model_tables.write(build_file_model("in", header="true"))


def test_a_query_of_one_column_checks_the_whole_header(model_tables: ModelTables) -> None:
    write_input_file(model_tables, "x.csv", "at,id\n1,2026-01-02\n")
    model = build_file_model("x.csv", header="true", schema="id STRING, at STRING")
    with pytest.raises((Py4JError, PySparkException), match="CSV header does not conform"):
        evaluate_query(model_tables.warehouse, model, {}).select("id").collect()


@pytest.mark.parametrize("option", ["enforceSchema", "ENFORCESCHEMA"])
def test_columns_are_read_by_position_where_a_model_says_so(model_tables: ModelTables, option: str) -> None:
    """With this option the model's names may differ from those in the file."""
    write_input_file(model_tables, "x.csv", "Customer No.,When\n1,2026-01-02\n")
    model = build_file_model("x.csv", header="true", schema="id BIGINT, at DATE", **{option: "true"})
    assert [(1, "2026-01-02")] == [(id_, str(at)) for id_, at in evaluate_rows(model_tables, model)]
