"""The columns in a query's text that certainly don't exist. Uncertain cases aren't reported."""

import pytest
from sqlglot import exp
from support.projects.query_corpus import CORPUS, MODELS, SOURCES, CorpusQuery

from ondatra_dagster.project.inputs.input_resolution import InputNames
from ondatra_dagster.project.sql.column_name_resolution import Relation, input_relation, opaque_relation
from ondatra_dagster.project.sql.find_unresolved_columns import UnresolvedColumn, find_unresolved_columns
from ondatra_dagster.project.sql.input_references import find_references
from ondatra_dagster.project.sql.query_parser import parse_query

COLUMNS = {
    "shop.customers": ["id", "name", "country", "tags", "address", "j"],
    "shop.orders": ["id", "customer_id", "amount", "ordered_on", "status", "attrs", "q1", "q2"],
    "shop.lines": ["order_id", "sku", "quantity", "parts"],
    "hr.customers": ["id", "boss"],
    "hr.2024_staff": ["id", "1st"],
    "hr.order": ["select", "from", "id"],
    "crm.Deals 2024": ["id", "the name", "a`b"],
}
FILE = ["id", "v"]
NAMES = InputNames(models={name: name for name in MODELS}, sources=SOURCES)


def unresolved(sql: str, *, unknown: str = "") -> list[UnresolvedColumn]:
    """Return the unresolved columns if the columns of every table except `unknown` are known."""
    query = parse_query(sql)
    references = find_references(query, NAMES).references
    inputs = {reference.start: reference.input for reference in references if not reference.is_qualifier}

    def relation_of(table: exp.Table) -> Relation:
        read = inputs.get(table.parts[0].meta.get("start", -1))
        if read is None:
            return opaque_relation()
        return input_relation(read, None if read.name == unknown else COLUMNS.get(read.name, FILE))

    return find_unresolved_columns(query, relation_of)


@pytest.mark.parametrize("case", CORPUS, ids=repr)
def test_no_valid_query_is_reported(case: CorpusQuery) -> None:
    """Spark accepts all these queries."""
    assert [] == unresolved(case.sql)


@pytest.mark.parametrize(
    ("sql", "names"),
    [
        ("select lastnme from shop.customers", ["lastnme"]),
        ("select upper(nam) as n, id from shop.customers", ["nam"]),
        ("select c.nam from shop.customers c", ["c.nam"]),
        ("select customers.nam from shop.customers", ["customers.nam"]),
        ("select shop.customers.nam from shop.customers", ["shop.customers.nam"]),
        ("select x.name from shop.customers c", ["x.name"]),
        ("select id from shop.customers where nam = 'x'", ["nam"]),
        ("select country, count(*) as n from shop.customers group by contry", ["contry"]),
        ("select country from shop.customers group by country having max(nam) > 'a'", ["nam"]),
        ("select id from shop.customers order by nam", ["nam"]),
        ("select id, sum(id) over (partition by contry) as n from shop.customers", ["contry"]),
        ("select sum(id) over w as s from shop.customers window w as (order by nam)", ["nam"]),
        ("select c.id from shop.customers c join shop.orders o on o.custmer_id = c.id", ["o.custmer_id"]),
        ("select c.boss from shop.customers c join hr.customers h using (id)", ["c.boss"]),
        ("select c.id from shop.customers c left semi join hr.customers h on h.nr = c.id", ["h.nr"]),
        ("select id from shop.customers where id in (select custmer_id from shop.orders)", ["custmer_id"]),
        (
            "select id from shop.customers c where exists (select 1 from shop.orders o where o.id = c.i)",
            ["c.i"],
        ),
        ("select (select max(q1) from shop.orders o where o.id = c.i) as m from shop.customers c", ["c.i"]),
        ("with a as (select id, name as n from shop.customers) select name from a", ["name"]),
        ("with a as (select nam from shop.customers) select * from a", ["nam"]),
        ("select a.name from (select id from shop.customers) a", ["a.name"]),
        ("select x from (select * from shop.customers) a", ["x"]),
        ("select id from shop.customers union all select idd from shop.orders", ["idd"]),
        ("select o.id from shop.orders as o(x, b, c, d, e, f, g, h)", ["o.id"]),
        ("select k.x from shop.orders lateral view explode(attr) k as x, y", ["attr"]),
        ("select k.z from shop.orders lateral view explode(attrs) k as x, y", ["k.z"]),
        ("select c from values (1, 2) as t(a, b)", ["c"]),
        ("select case when nam is null then id end as x from shop.customers", ["nam"]),
        ("select adress.city as city from shop.customers", ["adress.city"]),
        ("select * except (id) from (select id, name from shop.customers) where nam > 'a'", ["nam"]),
        ("select nowhere", ["nowhere"]),
    ],
)  # fmt: skip
def test_a_column_that_no_table_has_is_found(sql: str, names: list[str]) -> None:
    assert names == [column.name for column in unresolved(sql)]


@pytest.mark.parametrize(
    "sql",
    [
        "select id as x, x + 1 as y from shop.orders",  # a lateral alias
        "select status as s, count(*) as n from shop.orders group by s having n > 1 order by n",
        "select address.cty from shop.customers",  # the fields of a struct are unknown
        "select s.nowhere from (select address as s from shop.customers)",
        "select s.* from (select address as s from shop.customers) order by anything",
        "select _metadata.file_path, _content_hash from shop.customers",
        "select CURRENT_DATE, current_user, User, localtimestamp from shop.customers",
        "select transform(tags, t -> t || nam) from shop.customers",
        "select timestampadd(MONTH, 1, ordered_on), extract(week from ordered_on) from shop.orders",
        "select anything from range(3)",
        "select anything from shop.customers, lateral explode(tags)",
        "select anything from shop.customers pivot (max(id) for country in ('SE', 'NO'))",
        "select o.anything from shop.customers o natural join csv.`x.csv` natural join range(2)",
        "from shop.customers |> extend 1 as one |> select two",  # sqlglot rewrites a query with pipes
        "select id from shop.orders o where exists (with a as (select o.nowhere) select * from a)",
        "select ID, `Id` from Shop.Customers where NAME = 'x'",
        "select address.city from shop.customers order by (select max(q1) from shop.orders where status = city)",
        "select percentile_cont(0.5) within group (order by amount desc) as m from shop.orders",
        "select date_diff(DAY, ordered_on, now()), date_add(WEEK, 1, ordered_on), "
        "timestampdiff(HOUR, ordered_on, now()), extract(dayofweek_iso from ordered_on) from shop.orders",
        "select trim(leading 'x' from status), substring(status from 1 for 2), "
        "position('e' in status) from shop.orders",
        "select interval 1 day + ordered_on, interval '1-2' year to month, date'2024-01-01', X'1F' from shop.orders",
        "select cast(attrs as map<string, string>)['k'], tags[0] from shop.orders, shop.customers",
        "select listagg(status, ',') within group (order by id) from shop.orders",
        "select id, lag(id, 1) ignore nulls over (order by id) from shop.orders",
        "select all id from shop.orders",
        "select id from shop.orders where status collate UTF8_LCASE = 'new'",
        "select named_struct('x', id).x, map_filter(attrs, (k, v) -> k = v) from shop.orders",
    ],
)
def test_an_uncertain_column_is_not_reported(sql: str) -> None:
    assert [] == unresolved(sql)


def test_a_table_with_unknown_columns_may_have_any_column() -> None:
    """It may even have a struct with the name of the other table."""
    sql = "select c.nam, amont from shop.customers c join shop.orders o on o.custmer_id = c.id"
    assert ["amont", "c.nam", "o.custmer_id"] == [column.name for column in unresolved(sql)]
    assert [] == unresolved(sql, unknown="shop.orders")


def test_an_unresolved_column_has_its_line_and_the_known_columns() -> None:
    sql = "select\n    c.id,\n    c.nam\nfrom shop.customers c\njoin hr.customers h on h.id = c.id"
    known_columns = ("id", "name", "country", "tags", "address", "j")
    assert [UnresolvedColumn("c.nam", 3, "nam", known_columns)] == unresolved(sql)


def test_a_column_is_reported_once_per_line() -> None:
    assert [("nam", 1), ("nam", 2)] == [
        (column.name, column.line)
        for column in unresolved("select nam, upper(nam) as u,\nlower(nam) as l from shop.customers")
    ]
