"""The JSON builders as Spark runs them: their results are valid JSON, with every null."""

import json
from decimal import Decimal
from typing import Any, NamedTuple

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from ondatra_dagster.project.sql.input_references import replace_names
from ondatra_dagster.project.sql.query_parser import parse_query
from ondatra_dagster.warehouse.spark.session import Warehouse

pytestmark = pytest.mark.spark

LINES = """
create or replace temporary view lines as select * from values
    ('INV-1', 2, 'pen', 1.50BD, true), ('INV-1', 1, 'ink', cast(null as decimal(10,2)), false),
    ('INV-1', 10, cast(null as string), 0.10BD, cast(null as boolean)), ('INV-2', 1, 'say "hi"', 3.00BD, true)
as t(invoice, line, sku, price, is_gift)
"""


@pytest.fixture(scope="module")
def spark(shared_warehouse: Warehouse) -> SparkSession:
    session = shared_warehouse.session
    session.sql(LINES)
    return session


def rows_of(spark: SparkSession, sql: str) -> list[tuple[Any, ...]]:
    query = parse_query(sql)
    assert () == query.dialect.problems
    return [tuple(row) for row in spark.sql(replace_names(query.sql, (), {}, query.dialect.edits)).collect()]


def value_of(spark: SparkSession, expression: str) -> Any:
    ((value,),) = rows_of(spark, f"select {expression}")
    return value


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("json_object()", "{}"),
        ("json_array()", "[]"),
        ("json_object('a', 1, 'b', null)", '{"a":1,"b":null}'),
        ("json_array(1, 'x', null, true)", '[1,"x",null,true]'),
        ("json_object('a', 1, 'a', 2)", '{"a":1,"a":2}'),
        ("json_object('it''s', 1, 'a\\nb', 'c\\nd', 'é😀', '\"')", '{"it\'s":1,"a\\nb":"c\\nd","é😀":"\\""}'),
        ("json_object('a', json_array(1, json_object('b', 2)))", '{"a":[1,{"b":2}]}'),
        ("json_array(json_array(), json_object(), null)", "[[],{},null]"),
        ("json_object('text', '{\"a\":1}')", '{"text":"{\\"a\\":1}"}'),
        ("json_object('text', json_array(1) || '')", '{"text":"[1]"}'),
        ("json_object('json', '{\"a\":1}'::JSON)", '{"json":{"a":1}}'),
        ("json_object(lower('K'), json_array(1))", '{"k":[1]}'),
        ("json_array(1.50BD, 0.1BD, 12345678901234567890.12BD)", "[1.50,0.1,12345678901234567890.12]"),
        ("json_array(date'1890-01-02', date'2024-02-29')", '["1890-01-02","2024-02-29"]'),
        ("json_array(timestamp'2024-01-02 03:04:05.123456')", '["2024-01-02T03:04:05.123456Z"]'),
        ("json_array(timestamp_ntz'1890-01-02 03:04:05')", '["1890-01-02T03:04:05.000000"]'),
        (
            "json_array(array(1, null), map('a', null), struct(1 as x, null as y))",
            '[[1,null],{"a":null},{"x":1,"y":null}]',
        ),
        ("json_array(array(), array(array('a]')))", '[[],[["a]"]]]'),
        ("json_array(x'0102', 9223372036854775807, 1e300, -0.5D)", '["AQI=",9223372036854775807,1.0E300,-0.5]'),
        ("json_array(case when true then json_array(1) else json_object() end)", "[[1]]"),
        ("json_array(case when true then json_array(1) else 'x' end)", '["[1]"]'),
        ("json_array(coalesce(null, json_array(1)), if(false, json_array(1), null))", "[[1],null]"),
        ("json_array((select json_object('a', 1)), (select 'b'))", '[{"a":1},"b"]'),
        ("json_array((select json_array(1) where false))", "[null]"),
        ("json_object('a', 1)::STRING || '!'", '{"a":1}!'),
        ("`lower`('JSON_ARRAY(1)') -- json_array(2)", "json_array(1)"),
    ],
)
def test_a_builder_gives_json_as_text(spark, expression, expected):
    assert expected == value_of(spark, expression)


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("json_group_array(line)", "[1,1,2,10]"),  # by value: 10 comes after 2
        ("json_group_array(sku)", '[null,"ink","pen","say \\"hi\\""]'),
        ("json_group_array(line order by line desc)", "[10,2,1,1]"),
        ("json_group_array(sku order by sku desc nulls first)", '[null,"say \\"hi\\"","pen","ink"]'),
        ("json_group_array(sku order by invoice desc, price nulls last)", '["say \\"hi\\"",null,"pen","ink"]'),
        ("json_group_array(sku order by is_gift, line)", '[null,"ink","say \\"hi\\"","pen"]'),
        ("json_group_array(distinct line)", "[1,2,10]"),
        ("json_group_array(distinct line order by line desc)", "[10,2,1]"),
        ("json_group_array(line) filter (where is_gift)", "[1,2]"),
        ("json_group_array(line) filter (where line > 99)", "[]"),
        (
            "json_group_array(map(sku, line) order by line desc) filter (where sku is not null)",
            '[{"pen":2},{"ink":1},{"say \\"hi\\"":1}]',
        ),
        (
            "json_group_array(json_object('l', line, 'p', price) order by invoice, line)",
            '[{"l":1,"p":null},{"l":2,"p":1.50},{"l":10,"p":0.10},{"l":1,"p":3.00}]',
        ),
        ("json_group_array(case when is_gift then json_array(line) end)", "[null,null,[1],[2]]"),
        ("json_array(count(*), json_group_array(line))", "[4,[1,1,2,10]]"),
    ],
)
def test_a_group_becomes_an_array(spark, expression, expected):
    assert [(expected,)] == rows_of(spark, f"select {expression} from lines")


def test_an_invoice_contains_its_lines(spark):
    """A push function sends this: one text for each row, with everything nested in it."""
    sql = """
        with totals as (select invoice, sum(price)::DECIMAL(12,2) as total from lines group by invoice)
        select
            invoice,
            json_object(
                'number', invoice,  -- its name there
                'total', total,
                'gift', bool_or(is_gift),
                'lines', json_group_array(json_object('line', line, 'sku', sku) order by line)
            ) as body
        from lines join totals using (invoice)
        group by invoice, total
        order by invoice"""
    expected = [
        (
            "INV-1",
            {
                "number": "INV-1",
                "total": 1.6,
                "gift": True,
                "lines": [{"line": 1, "sku": "ink"}, {"line": 2, "sku": "pen"}, {"line": 10, "sku": None}],
            },
        ),
        ("INV-2", {"number": "INV-2", "total": 3, "gift": True, "lines": [{"line": 1, "sku": 'say "hi"'}]}),
    ]
    assert expected == [(invoice, json.loads(body)) for invoice, body in rows_of(spark, sql)]


def test_a_builder_nests_through_a_subquery(spark):
    """Users build the inner part first, and give it a name."""
    sql = """
        with skus as (select invoice, json_group_array(sku order by line) as list from lines group by all),
            both as (select s.* from skus s union all select 'none', json_array())
        select json_object('n', n, 'skus', list, 'field', named_struct('list', 'x').list)
        from (select invoice as n, both.list from both) order by n"""
    expected = [
        '{"n":"INV-1","skus":["ink","pen",null],"field":"x"}',
        '{"n":"INV-2","skus":["say \\"hi\\""],"field":"x"}',
        '{"n":"none","skus":[],"field":"x"}',
    ]
    assert expected == [text for (text,) in rows_of(spark, sql)]


def test_a_builder_works_wherever_an_expression_does(spark):
    sql = """
        select invoice, json_array(max(line)) from lines
        where json_array(line) <> '[10]'
        group by invoice {}"""
    having = rows_of(spark, sql.format("having json_group_array(line) = '[1,2]'"))
    assert [("INV-1", "[2]")] == having
    ordered = rows_of(spark, sql.format("order by json_group_array(line) desc"))
    assert [("INV-1", "[2]"), ("INV-2", "[1]")] == sorted(ordered)


def test_a_group_array_works_as_a_window_function(spark):
    sql = """
        select line, json_group_array(line) over (partition by invoice),
            json_group_array(json_array(line) order by line desc) over w
        from lines where invoice = 'INV-1' window w as (partition by invoice order by line) order by line"""
    expected = [(1, "[1,2,10]", "[[1]]"), (2, "[1,2,10]", "[[2],[1]]"), (10, "[1,2,10]", "[[10],[2],[1]]")]
    assert expected == rows_of(spark, sql)


def test_values_with_equal_sort_keys_always_have_the_same_order(spark):
    """Otherwise a row would differ from itself and be sent again."""
    sql = "select json_group_array(id order by id % 2, 1) from range(0, 50, 1, {})"
    assert 1 == len({rows_of(spark, sql.format(parts))[0] for parts in (1, 3, 7)})


def test_a_null_as_a_name_is_refused(spark):
    """SQLite and DuckDB refuse it too, because the text would not be JSON."""
    with pytest.raises(Exception, match="has a name that is null"):
        rows_of(spark, "select json_object(sku, json_array(1)) from lines")


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("'2024-01-01'::DATE::STRING", "2024-01-01"),
        ("(1 + 2)::DECIMAL(10,2)::TEXT", "3.00"),
        ("-1::varchar || (1 + 1)::int::string", "-12"),
        ("typeof(array(1, 2)::bigint[])", "array<bigint>"),
        ("typeof(array(array(1))::text[][])", "array<array<string>>"),
        ("typeof(cast('1' as hugeint))", "decimal(38,0)"),
        ("typeof(cast(struct(1 as a) as struct<a: string>))", "struct<a:string>"),
        ("typeof(try_cast('x' AS BLOB)) || typeof('t'::bool)", "binaryboolean"),
        ("named_struct('b', 1).b::STRING", "1"),
        ("'x::TEXT' -- y::TEXT", "x::TEXT"),
        ("string(array('a')::ARRAY<STRING>[0]::varchar(1))", "a"),
    ],
)
def test_casts_accept_the_type_names_of_other_databases(spark, expression, expected):
    assert expected == value_of(spark, expression)


class Value(NamedTuple):
    """An expression, and the JSON that it becomes within a builder."""

    sql: str
    json: Any
    is_json: bool = False


def a_text(text: str) -> Value:
    literal = text.replace("\\", "\\\\").replace("'", "\\'").replace("\n", "\\n")
    return Value(f"'{literal}'", text)


plain = st.one_of(
    st.just(Value("null", None)),
    st.integers(-(2**63) + 1, 2**63 - 1).map(lambda number: Value(f"{number}L", number)),
    st.booleans().map(lambda truth: Value(str(truth), truth)),
    st.decimals(-(10**9), 10**9, places=3).map(lambda number: Value(f"{number}BD", Decimal(str(number)))),
    st.text(st.characters(exclude_categories=["Cs", "Cc"]), max_size=8).map(a_text),
    st.sampled_from(["", "\n", "'", '"', "\\", "[1]", "{}", "null"]).map(a_text),
    st.dates().map(lambda day: Value(f"date'{day}'", day.isoformat())),
    st.lists(st.integers(0, 9), min_size=1, max_size=3).map(
        lambda numbers: Value(f"array({', '.join(map(str, numbers))})", numbers)
    ),
)


def built(values: st.SearchStrategy[Value]) -> st.SearchStrategy[Value]:
    names = st.text(st.characters(exclude_categories=["Cs", "Cc"]), max_size=4).map(a_text)
    arrays = st.lists(values, max_size=3).map(
        lambda items: Value(
            f"json_array({', '.join(item.sql for item in items)})", [item.json for item in items], is_json=True
        )
    )
    objects = st.lists(st.tuples(names, values), max_size=3).map(
        lambda pairs: Value(
            f"json_object({', '.join(f'{name.sql},{value.sql}' for name, value in pairs)})",
            tuple((name.json, value.json) for name, value in pairs),
            is_json=True,
        )
    )
    forms = st.sampled_from(["{}", "({})", "coalesce({0}, {0})", "case when true then {} end", "(select {})"])
    return st.builds(lambda form, value: value._replace(sql=form.format(value.sql)), forms, arrays | objects)


expressions = built(st.recursive(plain, lambda inner: plain | built(inner), max_leaves=6))


@settings(max_examples=8, suppress_health_check=list(HealthCheck))
@given(st.lists(expressions, min_size=10, max_size=25))
def test_builders_return_the_json_that_python_would_build(spark, values):
    """The examples mix names, nesting, types and nulls. The order of names is kept."""
    (row,) = rows_of(spark, "select " + ", ".join(value.sql for value in values))
    parsed = [json.loads(text, object_pairs_hook=tuple, parse_float=Decimal) for text in row]
    assert [value.json if value.json != () else () for value in values] == parsed
