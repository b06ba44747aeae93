"""The output columns that can be read from a query's text."""

import pytest

from ondatra_dagster.project.sql.output_and_system_columns import is_reserved_name, read_output_columns
from ondatra_dagster.project.sql.query_parser import parse_query


def columns_of(sql: str) -> tuple[list[str], bool]:
    output_columns = read_output_columns(parse_query(sql).tree)
    return [column.name for column in output_columns.columns], output_columns.is_complete


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("select a, b from x.y", ["a", "b"]),
        ("select t.a, x.y.b, `C d` from x.y t", ["a", "b", "C d"]),
        ("select a as b, count(*) as `n o`, 1 c from x.y", ["b", "n o", "c"]),
        ("select s.f, s.t.g.h.i from x.y", ["f", "i"]),
        ("select explode(m) as (k, v) from x.y", ["k", "v"]),
        ("select a from x.y union all select b from x.y", ["a"]),
        ("(select a from x.y) union (select b from x.y) order by 1", ["a"]),
        ("with c as (select z from x.y) select a from c", ["a"]),
        ("select distinct a from x.y", ["a"]),
        ("from x.y select a", ["a"]),
    ],
)
def test_certain_column_names_are_found(sql, expected):
    assert (expected, True) == columns_of(sql)


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("select * from x.y", []),
        ("select t.*, a from x.y t", ["a"]),
        ("select x.y.* from x.y", []),
        ("select a, count(*) from x.y", ["a"]),
        ("select a, f(b).c, d[0].c from x.y", ["a"]),  # Spark names them f(b).c and d[0].c
        ("select a, explode(b) from x.y", ["a"]),
        ("select a, v:b from x.y", ["a"]),
        ("table x.y", []),
        ("from x.y", []),
        ("values (1)", []),
        ("select transform(a) using 'cat' as (b) from x.y", []),
    ],
)
def test_a_name_that_spark_chooses_is_not_guessed(sql, expected):
    """A wrong guess would refuse a correct query."""
    assert (expected, False) == columns_of(sql)


def test_a_column_is_found_only_with_its_own_name():
    output_columns = read_output_columns(parse_query("select Customer_ID from x.y").tree)
    assert ("Customer_ID", None) == (output_columns.find_column("customer_id"), output_columns.find_column("id"))


def test_columns_have_their_lines():
    output_columns = read_output_columns(parse_query("select\n  a,\n  b + 1 as c\nfrom x.y").tree)
    assert [("a", 2), ("c", 3)] == [tuple(column) for column in output_columns.columns]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("_change_type", True),
        ("_Commit_Version", True),
        ("_commit_timestamp", True),
        ("_content_hash", True),
        ("__ondatra_rowid", True),
        ("__ONDATRA_x", True),
        ("change_type", False),
        ("_id", False),
    ],
)
def test_some_column_names_are_reserved(name, expected):
    assert expected == is_reserved_name(name)


def test_a_field_named_like_a_literal_has_its_tables_line() -> None:
    """`t.null` and `t.true` are columns of t, and the parser gives no position for their names."""
    output_columns = read_output_columns(parse_query("select\n  t.null,\n  a.t.true\nfrom a.t").tree)
    assert [("null", 2), ("true", 3)] == list(output_columns.columns)
