"""The inputs of a query: where it names them, and which views replace them for Spark."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ondatra_dagster.project.inputs.input_resolution import InputNames
from ondatra_dagster.project.model import FileInput, Input, ModelInput, SourceInput
from ondatra_dagster.project.sql.input_references import InputReferences, find_references, replace_names
from ondatra_dagster.project.sql.query_parser import parse_query

MODELS = ("mart.customers", "mart.orders", "sync.customers", "mart.order", "raw.a", "raw.b")
NAMES = InputNames(models={name: name for name in MODELS}, sources={"crm": "main.crm", "old": "data/old"})


def found_in(sql: str) -> InputReferences:
    return find_references(parse_query(sql), NAMES)


def rewritten(sql: str) -> str:
    """Return the query that Spark gets. The view of each input is the input's name in brackets."""
    references = found_in(sql)
    assert () == references.unreadable_inputs
    views = {query_input.name: f"[{query_input.name}]" for query_input in references.inputs}
    return replace_names(parse_query(sql).sql, references.references, views, ()).replace("`[", "[").replace("]`", "]")


def inputs_of(sql: str) -> list[str]:
    return [query_input.name for query_input in found_in(sql).inputs]


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("select id from mart.orders", "select id from [mart.orders] AS `orders`"),
        ("select o.id from mart.orders o", "select o.id from [mart.orders] o"),
        ("select o.id from mart.orders as o", "select o.id from [mart.orders] as o"),
        ("select * from MART.Orders", "select * from [mart.orders] AS `Orders`"),
        ("select * from `mart`.`orders` `o`", "select * from [mart.orders] `o`"),
        ("select * from `mart` . orders", "select * from [mart.orders] AS `orders`"),
        ("select * from mart.order", "select * from [mart.order] AS `order`"),
        ("select * from mart.orders as o(a, b)", "select * from [mart.orders] as o(a, b)"),
        ("select * from mart.customers c, mart.orders o", "select * from [mart.customers] c, [mart.orders] o"),
        (
            "select * from mart.orders left anti join mart.order using (id)",
            "select * from [mart.orders] AS `orders` left anti join [mart.order] AS `order` using (id)",
        ),
        (
            "select * from (mart.orders o join mart.customers c on true)",
            "select * from ([mart.orders] o join [mart.customers] c on true)",
        ),
        ("from mart.orders select id", "from [mart.orders] AS `orders` select id"),
        ("from mart.orders |> where id > 1", "from [mart.orders] AS `orders` |> where id > 1"),
        ("(select id from mart.orders o)", "(select id from [mart.orders] o)"),
        (
            "select * from mart.orders pivot (sum(x) for q in ('a', 'b'))",
            "select * from [mart.orders] AS `orders` pivot (sum(x) for q in ('a', 'b'))",
        ),
        (
            "select * from mart.orders lateral view explode(xs) t as x",
            "select * from [mart.orders] AS `orders` lateral view explode(xs) t as x",
        ),
    ],
)
def test_a_table_is_replaced_by_a_view_and_keeps_its_name_as_alias(sql, expected):
    """The query may qualify columns with the table's name, and the view has another name."""
    assert expected == rewritten(sql)


def test_the_rest_of_the_users_text_does_not_change():
    sql = """select -- the ids of mart.orders
  'from mart.orders' as a, "mart.orders" AS b, /* mart.orders */ id
from   mart.orders  -- mart.orders
where x = 'é😀'  and y in (select id from mart.customers)"""
    expected = """select -- the ids of mart.orders
  'from mart.orders' as a, "mart.orders" AS b, /* mart.orders */ id
from   [mart.orders] AS `orders`  -- mart.orders
where x = 'é😀'  and y in (select id from [mart.customers] AS `customers`)"""
    assert expected == rewritten(sql)


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("select id from mart.orders union all select id from raw.a", ["mart.orders", "raw.a"]),
        ("select id from mart.orders minus select id from raw.a", ["mart.orders", "raw.a"]),
        ("select id from mart.orders except all (select id from raw.a)", ["mart.orders", "raw.a"]),
        ("select 1 from mart.orders where exists (select 1 from raw.a)", ["mart.orders", "raw.a"]),
        ("select (select max(id) from raw.a) from mart.orders", ["raw.a", "mart.orders"]),
        ("select * from mart.orders where id in (select id from raw.a)", ["mart.orders", "raw.a"]),
        ("select * from mart.orders group by x having sum(y) > (select 1 from raw.a)", ["mart.orders", "raw.a"]),
        ("select case when exists (select 1 from raw.a) then 1 end from mart.orders", ["raw.a", "mart.orders"]),
        ("select * from mart.orders join raw.a on raw.a.x = (select 1 from raw.b)", ["mart.orders", "raw.a", "raw.b"]),
        ("select * from mart.orders o, lateral (select * from raw.a where raw.a.x = o.x)", ["mart.orders", "raw.a"]),
        ("with x as (select * from raw.a) select * from x", ["raw.a"]),
        ("with x as (with y as (select * from raw.a) select * from y) select * from x, raw.b", ["raw.a", "raw.b"]),
        ("select * from raw.a join raw.a a2 on true", ["raw.a"]),
        ("select * from range(10) join raw.a on true", ["raw.a"]),
        ("select * from explode(array(1)) as t(x), raw.a", ["raw.a"]),
        ("select * from values (1), (2) as v(x)", []),
        ("values (1)", []),
        ("select 1", []),
    ],
)
def test_inputs_are_found_in_every_clause(sql, expected):
    assert expected == inputs_of(sql)


@pytest.mark.parametrize(
    "sql",
    [
        "with customers as (select 1 as id) select * from customers",
        "with Customers as (select 1 as id) select * from CUSTOMERS",
        "with a as (select 1), b as (select * from a) select * from b union select * from a",
        "with a as (select 1) select * from (select * from (select * from a))",
        "with recursive r(n) as (select 1 union all select n + 1 from r where n < 9) select * from r",
        "with a as (select 1) select (select max(x) from a)",
    ],
)
def test_a_cte_is_not_an_input(sql):
    assert sql == rewritten(sql)


def test_a_cte_does_not_hide_a_schema():
    """mart.orders has two parts, and the name of a CTE has only one."""
    sql = "with mart as (select 1) select * from mart, mart.orders"
    assert "with mart as (select 1) select * from mart, [mart.orders] AS `orders`" == rewritten(sql)


def test_a_cte_is_visible_only_in_its_own_query():
    references = found_in("select * from (with a as (select 1) select * from a) x, a")
    assert ["'a' is not an input"] == [missing.description for missing in references.unreadable_inputs]


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("select mart.orders.id from mart.orders", "select `orders`.id from [mart.orders] AS `orders`"),
        ("select MART.`Orders`.id from mart.orders", "select `orders`.id from [mart.orders] AS `orders`"),
        ("select mart.orders.* from mart.orders", "select `orders`.* from [mart.orders] AS `orders`"),
        (
            "select mart.orders.* except (id) from mart.orders",
            "select `orders`.* except (id) from [mart.orders] AS `orders`",
        ),
        (
            "select mart.orders.addr.city.name from mart.orders",
            "select `orders`.addr.city.name from [mart.orders] AS `orders`",
        ),
        (
            "select sum(x) over (partition by mart.orders.x) from mart.orders order by mart.orders.y",
            "select sum(x) over (partition by `orders`.x) from [mart.orders] AS `orders` order by `orders`.y",
        ),
        (
            "select 1 from mart.orders where exists (select 1 from raw.a where raw.a.id = mart.orders.id)",
            "select 1 from [mart.orders] AS `orders` where exists "
            "(select 1 from [raw.a] AS `a` where `a`.id = `orders`.id)",
        ),
        (
            "select * from mart.orders join lateral (select * from raw.a x where x.id = mart.orders.id) y",
            "select * from [mart.orders] AS `orders` join lateral (select * from [raw.a] x where x.id = `orders`.id) y",
        ),
        (
            "select mart.orders.id from mart.orders join mart.orders o on o.id = mart.orders.id",
            "select `orders`.id from [mart.orders] AS `orders` join [mart.orders] o on o.id = `orders`.id",
        ),
    ],
)
def test_columns_may_be_qualified_with_schema_and_table(sql, expected):
    assert expected == rewritten(sql)


@pytest.mark.parametrize(
    "sql",
    [
        "select mart.orders from raw.a mart",  # here mart is an alias, and orders a column
        "select mart.orders.id from raw.a mart",
        "select o.mart.orders from raw.a o",
        "select mart.orders(id) from raw.a x",
    ],
)
def test_a_name_that_only_looks_like_a_qualifier_does_not_change(sql):
    assert sql.replace("raw.a", "[raw.a]") == rewritten(sql)


def test_two_inputs_with_the_same_table_name_get_different_aliases():
    """Otherwise both views would have the alias customers, and every column of both would be ambiguous."""
    sql = "select mart.customers.id from mart.customers join sync.customers on mart.customers.id = sync.customers.id"
    expected = (
        "select `mart.customers`.id from [mart.customers] AS `mart.customers` "
        "join [sync.customers] AS `sync.customers` on `mart.customers`.id = `sync.customers`.id"
    )
    assert expected == rewritten(sql)


def test_an_inner_table_does_not_capture_columns_of_an_outer_table():
    """mart.customers.id would become a column of sync.customers. The condition would always be true."""
    sql = (
        "select customers.x from mart.customers where exists "
        "(select 1 from sync.customers where sync.customers.id = mart.customers.id and customers.z = 1)"
    )
    expected = (
        "select `mart.customers`.x from [mart.customers] AS `mart.customers` where exists "
        "(select 1 from [sync.customers] AS `sync.customers` "
        "where `sync.customers`.id = `mart.customers`.id and `sync.customers`.z = 1)"
    )
    assert expected == rewritten(sql)


def test_after_a_semi_join_a_short_name_means_the_left_side():
    """The right side's columns aren't visible there, so Spark resolves customers.x on the left side."""
    sql = (
        "select customers.x from mart.customers left anti join sync.customers "
        "on mart.customers.id = sync.customers.id where customers.x > 1"
    )
    expected = (
        "select `mart.customers`.x from [mart.customers] AS `mart.customers` "
        "left anti join [sync.customers] AS `sync.customers` "
        "on `mart.customers`.id = `sync.customers`.id where `mart.customers`.x > 1"
    )
    assert expected == rewritten(sql)


def test_the_selects_of_a_union_have_independent_aliases():
    sql = "select customers.id from mart.customers union select customers.id from sync.customers"
    expected = (
        "select customers.id from [mart.customers] AS `customers` "
        "union select customers.id from [sync.customers] AS `customers`"
    )
    assert expected == rewritten(sql)


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        (
            "with orders as (select 1 a) select 1 from mart.orders join orders on mart.orders.a = orders.a",
            "with orders as (select 1 a) select 1 "
            "from [mart.orders] AS `mart.orders` join orders on `mart.orders`.a = orders.a",
        ),
        (
            "select * from mart.orders join (select 1 as id) orders on mart.orders.id = orders.id",
            "select * from [mart.orders] AS `mart.orders` join (select 1 as id) orders on `mart.orders`.id = orders.id",
        ),
        (
            "select * from mart.orders join raw.a orders on mart.orders.id = orders.id",
            "select * from [mart.orders] AS `mart.orders` join [raw.a] orders on `mart.orders`.id = orders.id",
        ),
        (
            "with orders as (select orders.id from mart.orders) select orders.id from orders",
            "with orders as (select `mart.orders`.id from [mart.orders] AS `mart.orders`) select orders.id from orders",
        ),
    ],
)
def test_an_alias_is_longer_if_the_user_has_used_its_name(sql, expected):
    assert expected == rewritten(sql)


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        (
            "select * from mart.orders tablesample (10 percent) where id > 1",
            "select * from [mart.orders] tablesample (10 percent) AS `orders` where id > 1",
        ),
        (
            "select * from raw.a tablesample (5 rows) repeatable (7) where raw.a.id > 1",
            "select * from [raw.a] tablesample (5 rows) repeatable (7) AS `a` where `a`.id > 1",
        ),
        (
            "select * from mart.orders tablesample (bucket 4 out of 10) o",
            "select * from [mart.orders] tablesample (bucket 4 out of 10) o",
        ),
    ],
)
def test_an_alias_follows_the_sample_clause(sql, expected):
    """Spark accepts it only there."""
    assert expected == rewritten(sql)


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("table mart.orders", "table [mart.orders]"),
        ("(table mart.orders) union all table raw.a", "(table [mart.orders]) union all table [raw.a]"),
        ("with x as (table raw.a) table x", "with x as (table [raw.a]) table x"),
        ("select * from raw.b where exists (table raw.a)", "select * from [raw.b] AS `b` where exists (table [raw.a])"),
    ],
)
def test_a_table_statement_gets_no_alias(sql, expected):
    """Spark allows none there."""
    assert expected == rewritten(sql)


def test_a_hint_is_not_a_table():
    sql = "select /*+ broadcast(b), merge(mart.orders) */ * from raw.b b"
    assert "select /*+ broadcast(b), merge(mart.orders) */ * from [raw.b] b" == rewritten(sql)


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("csv.`data/x.csv`", FileInput(format="csv", path="data/x.csv")),
        ("JSON.`d/*.json`", FileInput(format="json", path="d/*.json")),
        ("parquet.`s3a://b/a b.parquet`", FileInput(format="parquet", path="s3a://b/a b.parquet")),
        ("csv.`x` WITH ('header' = 'true')", FileInput(format="csv", path="x", options=(("header", "true"),))),
        (
            "csv.`x` with ('header'='true', sep ';', a.b = 1, 'escape' '(')",
            FileInput(
                format="csv", path="x", options=(("header", "true"), ("sep", ";"), ("a.b", "1"), ("escape", "("))
            ),
        ),
    ],
)
def test_a_file_is_an_input_with_its_options(sql, expected):
    assert (expected,) == found_in(f"select * from {sql}").inputs
    for after in (" where 1 = 1", " as f", ""):
        text = f"select * from {sql}{after}"
        assert f"select * from `v`{after}" == replace_names(text, found_in(text).references, {expected.name: "v"}, ())


def test_the_same_file_with_other_options_is_another_input():
    """Each of the two has its own view."""
    sql = "select * from csv.`x` with ('sep' = ';') a, csv.`x` b"
    assert ["csv.`x` WITH ('sep' = ';')", "csv.`x`"] == inputs_of(sql)


def test_a_source_is_an_input():
    references = found_in("select * from CRM.`Deals 2024` d join old.t on true")
    expected: tuple[Input, ...] = (
        SourceInput(source="crm", table="Deals 2024", location="main.crm"),
        SourceInput(source="old", table="t", location="data/old"),
    )
    assert expected == references.inputs


def test_each_input_has_the_line_of_its_first_reference():
    references = found_in("select *\nfrom mart.orders o\njoin raw.a on true\njoin mart.orders p on true")
    assert ((ModelInput(model="mart.orders"), 2), (ModelInput(model="raw.a"), 3)) == references.lines


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("select *\nfrom mart.custmers", (2, "nothing makes mart.custmers", "did you mean mart.customers?")),
        ("select * from order", (1, "'order' is not an input", "did you mean mart.order?")),
        ("select * from zzzz", (1, "'zzzz' is not an input", "write schema.table")),
        (
            "select * from main.crm.deals",
            (
                1,
                "'main.crm.deals' is not an input",
                "give its schema a name in [tool.ondatra.sources] and read it as name.table",
            ),
        ),
        (
            "select * from shop.zzzz",
            (1, "nothing makes shop.zzzz", "add models/shop/zzzz.sql, or shop to [tool.ondatra.sources]"),
        ),
        (
            "select * from mart.orders with ('a' = 'b')",
            (1, "mart.orders can't have options", "remove WITH (…): it is for files"),
        ),
        (
            "select * from mart.orders version as of 3",
            (1, "inputs are read at their newest version", "remove VERSION or TIMESTAMP AS OF"),
        ),
        (
            "select * from identifier('mart.orders')",
            (1, "IDENTIFIER() hides what is read", "write the table's name itself"),
        ),
    ],
)
def test_an_unknown_input_is_reported_with_its_line(sql, expected):
    (missing,) = found_in(sql).unreadable_inputs
    assert expected == (missing.line, missing.description, missing.remedy)


def test_a_view_may_have_any_name():
    query = parse_query("select * from raw.a")
    assert "select * from `a``b` AS `a`" == replace_names(
        query.sql, found_in(query.sql).references, {"raw.a": "a`b"}, ()
    )


@settings(max_examples=200)
@given(
    st.lists(
        st.sampled_from(
            [
                "select {t}.id from {t}",
                "select x.id from {t} x",
                "select * from {t} where id in (select {t}.id from {t})",
                "(table {t})",
                "select 'mart.orders' as a /* raw.a */ from {t} -- raw.b\n",
                "select * from {t} tablesample (1 rows)",
            ]
        ),
        min_size=1,
        max_size=5,
    ),
    st.sampled_from(MODELS),
    st.sampled_from([" union all ", "\nunion\n", " minus ", " intersect "]),
)
def test_the_rewritten_query_reads_only_views(parts, table, between):
    """In any combination of queries no input's name remains, and Spark's text can be parsed."""
    sql = between.join(part.format(t=table) for part in parts)
    query = parse_query(sql)
    references = find_references(query, NAMES)
    text = replace_names(
        query.sql, references.references, {query_input.name: "v" for query_input in references.inputs}, ()
    )
    again = find_references(parse_query(text), NAMES)
    assert {"'v' is not an input"} == {missing.description for missing in again.unreadable_inputs}
    assert () == again.references
