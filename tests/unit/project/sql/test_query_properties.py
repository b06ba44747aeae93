"""The properties of a query's result that follow from its text."""

import pytest

from ondatra_dagster.project.sql.query_parser import parse_query
from ondatra_dagster.project.sql.query_properties import excludes_last_value, is_ordered, is_row_by_row


@pytest.mark.parametrize(
    "sql",
    [
        "select * from a.b",
        "select id, upper(name) as n from a.b where amount > 3 and name is not null",
        "select case when x then 1 else cast(y as int) end as z from a.b t order by z",
        "select explode(parts) from a.b",
        "select json_object('id', id, 'parts', json_array(x, y)) as j from a.b",
    ],
)
def test_queries_that_compute_each_row_separately(sql: str):
    """For these queries the input's changes alone show the new rows."""
    assert is_row_by_row(parse_query(sql).tree)


@pytest.mark.parametrize(
    "sql",
    [
        "select sum(x) from a.b",
        "select some_function(x) from a.b",
        "select any(x) as y from a.b",
        "select json_group_array(x) as y from a.b",
        "select x from a.b group by x",
        "select distinct x from a.b",
        "select x from a.b limit 3",
        "select row_number() over (order by x) from a.b",
        "select x from a.b join a.c using (id)",
        "select x from a.b, a.c",
        "select x from a.b where id in (select id from a.b)",
        "select (select max(x) from a.b) from a.b",
        "select x from (select x from a.b)",
        "with c as (select x from a.b) select x from c",
        "select x from a.b union all select x from a.b",
        "select x from a.b tablesample (10 percent)",
        "select x from a.b lateral view explode(parts) as part",
        "select x from a.b qualify row_number() over (order by x) = 1",
        "select 1",
        "values (1)",
    ],
)
def test_queries_whose_rows_depend_on_other_rows(sql: str):
    assert not is_row_by_row(parse_query(sql).tree)


def test_only_the_outermost_order_counts():
    assert is_ordered(parse_query("select x from a.b order by x").tree)
    assert is_ordered(parse_query("select x from a.b union all select x from a.c order by x").tree)
    assert not is_ordered(parse_query("select x from (select x from a.b order by x)").tree)


@pytest.mark.parametrize(
    ("condition", "does"),
    [
        ("at > {{ last_value }}", True),
        ("{{last_value}} < at", True),
        ("at > ({{ last_value }})", True),
        ("at > cast({{ last_value }} as timestamp)", True),
        ("at > coalesce({{ last_value }}, date'1970-01-01')", True),
        ("not at <= {{ last_value }}", True),
        ("not (({{ last_value }} >= at))", True),
        ("not at < {{ last_value }}", False),
        ("at >= ({{ last_value }}::date)", False),
        ("at >= {{ last_value }}", False),
        ("{{ last_value }} <= at", False),
        ("at >= {{ last_value }} and x > 3", False),
    ],
)
def test_a_comparison_that_excludes_rows_equal_to_last_value_is_found(condition: str, does: bool):
    assert does == excludes_last_value(parse_query(f"select at from a.b where {condition}").tree)
