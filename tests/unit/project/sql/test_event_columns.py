"""A model of kind events is column definitions."""

import pytest

from ondatra_dagster.project.model import EventColumn
from ondatra_dagster.project.sql.event_columns import as_query, read_event_columns
from ondatra_dagster.project.sql.tokens import QueryError


def test_definitions_are_read_with_what_is_required():
    text = """
    event_name STRING NOT NULL,  -- what happened
    seconds decimal(10, 2),
    `page url` string comment 'where',
    parts struct<a: int, b: array<string>>
    """
    columns = read_event_columns(text)
    expected = (
        EventColumn(name="event_name", type="STRING", is_required=True),
        EventColumn(name="seconds", type="DECIMAL(10, 2)"),
        EventColumn(name="page url", type="STRING"),
        EventColumn(name="parts", type="STRUCT<a: INT, b: ARRAY<STRING>>"),
    )
    assert expected == columns
    assert "SELECT CAST(NULL AS STRING) AS `event_name`, " in as_query(columns)


@pytest.mark.parametrize(
    ("text", "line", "what"),
    [
        ("", 1, "there are no column definitions"),
        ("select 1", 1, "there are no column definitions"),
        ("a string,\nb", 2, "'b' is no column definition"),
        ("a string,\nb foo", 2, "the column definitions can't be read"),
        ("a string,\n\nb string default 'x'", 3, "column 'b' can't have DEFAULT 'x'"),
        ("a string,\nprimary key (a)", 2, "is no column definition"),
        ("a string 'x", 1, "the column definitions can't be read"),
    ],
)
def test_what_is_no_definition_is_refused_at_its_line(text: str, line: int, what: str):
    with pytest.raises(QueryError) as refused:
        read_event_columns(text)
    assert line == refused.value.line
    assert what in refused.value.what
    assert refused.value.remedy
