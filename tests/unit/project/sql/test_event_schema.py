"""The columns of a model of kind events: it has column definitions in place of a query."""

import pytest

from ondatra_dagster.project.model import EventColumn, EventType
from ondatra_dagster.project.sql.event_schema import empty_query, read_event_columns
from ondatra_dagster.project.sql.tokenizer import QueryError


def test_column_definitions_are_read_with_not_null():
    text = """
    event_name STRING NOT NULL,  -- what happened
    seconds decimal(10, 2),
    `page url` string comment 'where',
    parts struct<a: int, b: array<string>>
    """
    columns = read_event_columns(text)
    text_type, whole = EventType(name="string"), EventType(name="int")
    parts = EventType(
        name="struct", fields=("a", "b"), type_arguments=(whole, EventType(name="array", type_arguments=(text_type,)))
    )
    expected = (
        EventColumn(name="event_name", type="STRING", event_type=text_type, is_required=True),
        EventColumn(name="seconds", type="DECIMAL(10, 2)", event_type=EventType(name="decimal", precision=10, scale=2)),
        EventColumn(name="page url", type="STRING", event_type=text_type),
        EventColumn(name="parts", type="STRUCT<a: INT, b: ARRAY<STRING>>", event_type=parts),
    )
    assert expected == columns
    query = empty_query(columns).splitlines()  # each column has its own line, so that an error names the line
    assert ["SELECT ", "CAST(NULL AS STRING) AS `event_name`, "] == query[:2]


@pytest.mark.parametrize(
    ("text", "line", "what"),
    [
        ("", 1, "there are no column definitions"),
        ("select 1", 1, "there are no column definitions"),
        ("a string,\nb", 2, "'b' is not a column definition"),
        ("a string,\nb foo", 2, "the column definitions can't be read"),
        ("a string,\n\nb string default 'x'", 3, "column 'b' can't have DEFAULT 'x'"),
        ("a string,\nprimary key (a)", 2, "is not a column definition"),
        ("a string 'x", 1, "the column definitions can't be read"),
        ("a string,\nb variant", 2, "column 'b' can't be VARIANT"),
        ("a decimal(39, 2)", 1, "column 'a' can't be DECIMAL(39, 2)"),
        ("a decimal(5, 6)", 1, "column 'a' can't be DECIMAL(5, 6)"),
        ("a string,\nb map<double, int>", 2, "column 'b' is a map whose keys are DOUBLE"),
        ("a array", 1, "column 'a' is ARRAY, which is incomplete"),
        ("a struct", 1, "column 'a' is STRUCT, which is incomplete"),
        ("a struct<b: int not null>", 1, "column 'a' has a field 'b' with more than a type"),
    ],
)
def test_an_invalid_definition_is_refused_at_its_line(text: str, line: int, what: str):
    with pytest.raises(QueryError) as refused:
        read_event_columns(text)
    assert line == refused.value.line
    assert what in refused.value.description
    assert refused.value.remedy


@pytest.mark.parametrize(
    ("written", "of"),
    [
        ("timestamp", "TIMESTAMP"),
        ("timestamp_ltz", "TIMESTAMP"),
        ("timestamp_ntz", "TIMESTAMP_NTZ"),
        ("long", "BIGINT"),
        ("integer", "INT"),
        ("double precision", "DOUBLE"),
        ("real", "FLOAT"),
        ("text", "STRING"),
        ("varchar(20)", "STRING"),
        ("bytea", "BINARY"),
        ("bool", "BOOLEAN"),
        ("numeric(5)", "DECIMAL(5, 0)"),
        ("decimal", "DECIMAL(10, 0)"),
        ("array<map<string, struct<a: date>>>", "ARRAY<MAP<STRING, STRUCT<a: DATE>>>"),
    ],
)
def test_a_type_may_be_spelled_in_several_ways(written: str, of: str):
    """The collector checks events against the type, and Spark writes them with it. Both must mean the same type."""
    (column,) = read_event_columns(f"a {written}")
    assert of == str(column.event_type)
