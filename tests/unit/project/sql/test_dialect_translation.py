"""The Spark SQL for JSON functions and types of other dialects. tests/spark runs it."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ondatra_dagster.project.sql.input_references import replace_names
from ondatra_dagster.project.sql.json_function_translation import STRIP_BRACKETS, TO_JSON_OPTIONS
from ondatra_dagster.project.sql.query_parser import parse_query


def said(sql: str) -> str:
    query = parse_query(sql)
    assert () == query.dialect.problems
    return (
        replace_names(query.sql, (), {}, query.dialect.edits)
        .replace(TO_JSON_OPTIONS, "{how}")
        .replace(STRIP_BRACKETS, "{inner}")
    )


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("select json_object('a', x) from t", "select to_json(named_struct('a', x), {how}) from t"),
        ("select JSON_Object ( 'a' , x )", "select to_json (named_struct( 'a' , x ), {how})"),
        ("select json_object()", "select concat('{}')"),
        (
            "select json_array(x, 'y')",
            "select concat('[', regexp_extract(to_json(array(x), {how}), {inner}, ',', "
            "regexp_extract(to_json(array( 'y'), {how}), {inner}, ']')",
        ),
        (
            "select json_object('a', json_array())",
            "select concat('{', '\"a\"', ':', coalesce( concat('[]'), 'null'), '}')",
        ),
        (
            "select json_object('a', x, 'b', y, 'c', json_array(), k, z)",
            "select concat('{', regexp_extract(to_json(named_struct('a',  x,  'b',  y), {how}), {inner}, "
            "',',  '\"c\"', ':', coalesce( concat('[]'), 'null'), ',', regexp_extract(to_json(array(coalesce("
            "CAST( k AS STRING), raise_error('json_object() has a name that is null; give it a string')))), "
            "{inner}, ':', regexp_extract(to_json(array( z), {how}), {inner}, '}')",
        ),
        (
            "select json_group_array(x) from t",
            "select to_json(array_sort(collect_list(named_struct('v', x))).v, {how}) from t",
        ),
        (
            "select json_group_array(distinct x) filter (where y) from t",
            "select to_json(array_sort(collect_list(DISTINCT named_struct('v',  x)) filter (where y)).v, {how}) from t",
        ),
        (
            "select json_group_array(x) filter from t",
            "select to_json(array_sort(collect_list(named_struct('v', x))).v, {how}) filter from t",
        ),
        (
            "select json_group_array(x) over",
            "select to_json(array_sort(collect_list(named_struct('v', x))).v, {how}) over",
        ),
        (
            "select json_group_array(json_array()) over w from t",
            "select concat('[', array_join(array_sort(collect_list(named_struct('v', concat('[]'))) over w"
            ").v, ',', 'null'), ']') from t",
        ),
    ],
)
def test_a_json_function_is_translated_to_spark_sql(sql, expected):
    assert expected == said(sql)


@pytest.mark.parametrize(
    "sql",
    [
        "select 'json_object(1)', \"json_array(2)\" -- json_array(3)\n, /* json_array(4) */ 5",
        "select `json_object`('a', 1), x.json_array(1), json_array from t",
        "select json_array.x, json_object as json_group_array from t json_array",
        "select `x::TEXT`, 'x::TEXT' /* y::TEXT */ -- z::TEXT\n from t",
        "select x::int < 3 and text > 2, x::struct<text: int, json: map<int, int>> from t",
        "select x::INT, a.b::STRING, (a + b)::DECIMAL(10,2), '2024-01-01'::DATE, x::VARCHAR(10) from t",
        "select cast(x as array<string>), x::map<string, int>, x::struct<a: int>, y::`text` from t",
        "select xs[0]::int, cast(x as date), f(cast) from t",
    ],
)
def test_a_text_that_only_looks_like_a_json_function_is_not_changed(sql):
    assert sql == said(sql)


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("select x::TEXT::varchar", "select x::STRING::STRING"),
        ("select x :: text", "select x :: STRING"),
        (
            "select cast(x as VARCHAR), try_cast(y as hugeint)",
            "select cast(x as STRING), try_cast(y as DECIMAL(38, 0))",
        ),
        ("select x::int[], y::varchar(3)[][]", "select x::ARRAY<int>, y::ARRAY<ARRAY<varchar(3)>>"),
        ("select cast(cast(x as blob) as text[])", "select cast(cast(x as BINARY) as ARRAY<STRING>)"),
        ("select cast((select y as text from t) as bool)", "select cast((select y as text from t) as BOOLEAN)"),
    ],
)
def test_a_types_name_in_another_dialect_is_translated(sql, expected):
    assert expected == said(sql)


@pytest.mark.parametrize(
    ("value", "nests"),
    [
        ("json_array()", True),
        ("((json_array()))", True),
        ("json_group_array(x) over ()", True),
        ("max(json_array(x))", True),
        ("(select json_array())", True),
        ("(select json_array() union all select j from (select json_object() as j))", True),
        ("coalesce(null, json_array(x), json_object())", True),
        ("case x when 1 then json_array() end", True),
        ("if(x, json_array(), null)", True),
        ("x::JSON", True),
        ("cast(x as json)", True),
        ("c.made", True),
        ("made", True),
        ("null", False),
        ("x", False),
        ("c.made.field", False),
        ("json_array()::STRING", False),
        ("json_array() || ''", False),
        ("coalesce(x, json_array())", False),
        ("case when x then json_array() else 'a' end", False),
        ("(select json_array(), 1)", False),
        ("(select x union all select json_array())", False),
        ("lower(json_array())", False),
        ("plain", False),
        ("`json_array`()", False),
    ],
)
def test_only_the_result_of_a_json_function_is_nested_as_json(value, nests):
    """A text that only looks like JSON remains a text."""
    sql = f"with c as (select json_array() as made, '[]' as plain from t) select json_array({value}) from c, t"
    outer = said(sql).rpartition(" from c, t")[0].partition(") select concat('[', ")[2]
    assert outer.startswith("coalesce(" if nests else "regexp_extract(to_json(array(")


def test_line_numbers_do_not_change():
    """Spark's errors name the lines."""
    sql = "select json_group_array(\n json_object('a',\n -- a, b)\n x)\norder\n by\n x desc\n) from t\nwhere y"
    lines, expected = said(sql).split("\n"), sql.split("\n")
    assert len(expected) == len(lines)
    assert (" -- a, b)", "where y") == (lines[2], lines[8])


@pytest.mark.parametrize(
    ("call", "what", "remedy"),
    [
        (
            "json_object('a')",
            "json_object() takes pairs of a name and a value, and one of them is incomplete",
            "write json_object('name', value, 'other', value)",
        ),
        ("json_object(1, 2)", "json_object() has the name 1, which is not a string", "write '1'"),
        ("json_object(null, 2)", "json_object() has the name NULL, which is not a string", "write 'NULL'"),
        ("json_object(*)", "json_object() takes values only", "write json_object('name', value, 'other', value)"),
        ("json_array(t.*)", "json_array() takes values only", "write json_array(value, other)"),
        ("json_object(, 'a', 1)", "json_object() can't be read", "write json_object('name', value, 'other', value)"),
        (
            "json_object('a', values, 'b', 1)",
            "json_object() can't be read",
            "write json_object('name', value, 'other', value)",
        ),
        (
            "json_group_array(, x order by y)",
            "json_group_array() can't be read",
            "write json_group_array(value) or json_group_array(value ORDER BY other)",
        ),
        ("json_object(as)", "json_object() can't be read", "write json_object('name', value, 'other', value)"),
        ("json_array(, 1)", "json_array() can't be read", "write json_array(value, other)"),
        ("json_array(distinct x)", "json_array() takes values only", "write json_array(value, other)"),
        ("json_array(x order by y)", "json_array() takes values only", "write json_array(value, other)"),
        ("json_array(x as y)", "json_array() takes values only", "write json_array(value, other)"),
        (
            "json_group_array(x, y)",
            "json_group_array() takes one value",
            "write json_group_array(value) or json_group_array(value ORDER BY other)",
        ),
        (
            "json_group_array(distinct x order by y)",
            "json_group_array() with DISTINCT can only be ordered by its value",
            "remove ORDER BY or DISTINCT",
        ),
        (
            "json_group_array(x) within group (order by y)",
            "json_group_array() keeps nulls, and is ordered within its parentheses",
            "write json_group_array(value) or json_group_array(value ORDER BY other)",
        ),
        (
            "json_group_array(x order by y limit 3)",
            "json_group_array() takes values only",
            "write json_group_array(value) or json_group_array(value ORDER BY other)",
        ),
    ],
)
def test_an_invalid_call_is_a_problem_at_its_line(call, what, remedy):
    (problem,) = parse_query(f"select x,\n{call}\nfrom t").dialect.problems
    assert (2, what, remedy) == (problem.line, problem.description, problem.remedy)


def test_all_invalid_calls_are_reported_together(find_problems):
    problems = find_problems({"models/a/b.sql": "select json_object('a') as a,\n json_group_array() as b"})
    assert ["models/a/b.sql:1", "models/a/b.sql:2"] == [line[:16] for line in problems]


def test_the_definition_is_computed_from_the_users_text(load_from_files):
    """The translation may change with the next release, and no row has to be sent again for that."""
    one = load_from_files({"models/a/b.sql": "select json_array(1)::TEXT as a"})
    other = load_from_files({"models/a/b.sql": "select json_array ( 1 ) :: TEXT as a -- json"})
    assert one.model("a.b").definition == other.model("a.b").definition
    assert one.model("a.b").edits


def an_object(values):
    pairs = (f"{name!r}, {value}" for name, value in zip("abc", values, strict=False))
    return f"json_object( {' ,'.join(pairs)} )"


expressions = st.recursive(
    st.sampled_from(["x", "'a,b)'", "null", "t.x::TEXT", "f(x, y)", "(x)", "xs[1]", "1 /* ,( */", "cast(x as text)"]),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3).map(lambda values: f"json_array({', '.join(values)})"),
        st.lists(inner, max_size=3).map(an_object),
        inner.map(lambda value: f"json_group_array({value} order by {value} desc, x)"),
        inner.map(lambda value: f"(select {value} from t)"),
    ),
    max_leaves=8,
)


@settings(max_examples=150)
@given(st.lists(expressions, min_size=1, max_size=3))
def test_no_json_function_remains_in_any_nested_query(values):
    """The result can be parsed, and contains nothing that Spark doesn't know."""
    text = said(f"select {', '.join(values)} from t")
    again = parse_query(text.replace("{how}", "how").replace("{inner}", "'inner', 1)"))
    assert ((), ()) == again.dialect
