"""The input columns from which a query computes each of its columns."""

import pytest
from sqlglot import exp

from ondatra_dagster.project.model import ModelInput
from ondatra_dagster.project.sql.column_name_resolution import Relation, ValueSources, input_relation
from ondatra_dagster.project.sql.column_tracing import trace_columns
from ondatra_dagster.project.sql.query_parser import parse_query

KNOWN = {"s.a": ["id", "x", "y"], "s.b": ["id", "v", "w"], "t.a": ["id", "z"]}  # the columns of s.u are unknown


def flow(sql: str) -> Relation:
    def relation_of(table: exp.Table) -> Relation:
        name = f"{table.db}.{table.name}".casefold()
        return input_relation(ModelInput(model=name), KNOWN.get(name))

    return trace_columns(parse_query(sql).tree, relation_of)


def shown(made: ValueSources | None) -> str:
    """Return the input columns, such as "s.a.x s.b.v", or "?" if they are unknown."""
    assert made is not None
    origins = sorted(f"{origin.input.name}.{origin.column}" for origin in made.origins)
    return " ".join(origins if made.is_known else ["?"])


def columns(sql: str) -> dict[str | None, str]:
    return {column.name: shown(column.sources) for column in flow(sql).columns}


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("select x, a.y, s.a.id from s.a", {"x": "s.a.x", "y": "s.a.y", "id": "s.a.id"}),
        ("select X as p, `x` as q from S.A", {"p": "s.a.x", "q": "s.a.x"}),
        ("select x + y as p, 1 as q, count(*) as n from s.a", {"p": "s.a.x s.a.y", "q": "", "n": ""}),
        ("select case when x > 1 then y else id end as p from s.a", {"p": "s.a.id s.a.x s.a.y"}),
        ("select x from s.a where y > 1 group by x having max(id) > 1 order by id", {"x": "s.a.x"}),
        ("select a.x.f.g, a.x, u.x.f as p from s.a, s.u", {"g": "s.a.x", "x": "s.a.x", "p": "s.u.x"}),
        ("select x[0] as p, y['k'] as q, x:k.l::int as r from s.a", {"p": "s.a.x", "q": "s.a.y", "r": "s.a.x"}),
        ("select cast(x as date) as p, y::text as q from s.a", {"p": "s.a.x", "q": "s.a.y"}),
        (
            "select transform(x, e -> e + y) as p, filter(x, (x, i) -> i > 1) as q from s.a",
            {"p": "s.a.x s.a.y", "q": "s.a.x"},
        ),
        ("select f(a => x, b => y) as p from s.a", {"p": "s.a.x s.a.y"}),
        (
            "select timestampadd(MONTH, 1, x) as p, datediff(DAY, x, y) as q, extract(YEAR from x) as r from s.u",
            {"p": "s.u.x", "q": "s.u.x s.u.y", "r": "s.u.x"},
        ),
        (
            "select interval 1 day as p, date'2024-01-01' as q, current_date as r, x as date from s.u",
            {"p": "", "q": "", "r": "", "date": "s.u.x"},
        ),
        (
            "select json_object('k', x, 'l', json_array(y)) as p, json_group_array(x order by y) as q from s.a",
            {"p": "s.a.x s.a.y", "q": "s.a.x s.a.y"},
        ),
        ("select struct(x as y, id) as p, named_struct('x', y) as q from s.a", {"p": "s.a.id s.a.x", "q": "s.a.y"}),
        ("select sum(x) over (partition by y order by id) as p from s.a", {"p": "s.a.id s.a.x s.a.y"}),
        ("select sum(x) over w as p from s.a window w as (partition by y)", {"p": "s.a.x s.a.y"}),
        (
            "select sum(x) filter (where y > 1) as p, max_by(x, id) as q from s.a",
            {"p": "s.a.x s.a.y", "q": "s.a.id s.a.x"},
        ),
    ],
)
def test_a_value_is_computed_from_the_columns_in_its_expression(sql, expected):
    """A column that only selects, groups or orders rows isn't a source of a value."""
    assert expected == columns(sql)


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("select * from s.a", {"id": "s.a.id", "x": "s.a.x", "y": "s.a.y"}),
        ("select * except (id) from s.a", {"x": "s.a.x", "y": "s.a.y"}),
        ("select t.z, s.* except (x) from s.a as s, t.a as t", {"z": "t.a.z", "id": "s.a.id", "y": "s.a.y"}),
        ("select c.* from s.a as c(p, q, r)", {"p": "s.a.id", "q": "s.a.x", "r": "s.a.y"}),
        ("from s.b", {"id": "s.b.id", "v": "s.b.v", "w": "s.b.w"}),
        ("table t.a", {"id": "t.a.id", "z": "t.a.z"}),
        ("select *, x + y as p from s.a", {"id": "s.a.id", "x": "s.a.x", "y": "s.a.y", "p": "s.a.x s.a.y"}),
        ("select struct(*) as p from t.a", {"p": "t.a.id t.a.z"}),
        ("select struct(*) as p from s.u", {"p": "?"}),
    ],
)
def test_a_star_means_all_known_columns(sql, expected):
    assert expected == columns(sql)


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("with c as (select x as p from s.a) select p as q from c", {"q": "s.a.x"}),
        ("with c(m, n) as (select x, y from s.a) select n, m from c", {"n": "s.a.y", "m": "s.a.x"}),
        ("with a as (select x from s.a), b as (select x + 1 as y from a) select y from b", {"y": "s.a.x"}),
        ("with c as (select x as p from s.a) select d.p from c d", {"p": "s.a.x"}),
        (
            "with c as (select 1 as x) select * from (with c as (select y as x from s.a) select x from c)",
            {"x": "s.a.y"},
        ),
        ("with u as (select id from s.u) select id from u", {"id": "s.u.id"}),
        ("select q from (select x + y as q from s.a)", {"q": "s.a.x s.a.y"}),
        ("select p.q from (select x from s.a) as p(q)", {"q": "s.a.x"}),
        ("select (select max(v) from s.b where s.b.id = a.id) as p from s.a", {"p": "s.b.v"}),
        ("select (select max(v + a.x) from s.b) as p from s.a", {"p": "s.a.x s.b.v"}),
        (
            "select x in (select v from s.b) as p, exists (select 1 from s.b where w = a.y) as q from s.a",
            {"p": "s.a.x s.b.v", "q": ""},
        ),
        ("select p from s.a, lateral (select x + v as p from s.b)", {"p": "s.a.x s.b.v"}),
        ("select l.p from s.a join lateral (select y as p) l", {"p": "s.a.y"}),
        (
            "with recursive r(n, m) as (select x, 1 from s.a union all select r.n + v, n from r join "
            "s.b on true) "
            "select n, m from r",
            {"n": "s.a.x s.b.v", "m": "s.a.x s.b.v"},
        ),
        ("from s.a |> where x > 1 |> select x as p, y |> select p + y as q", {"q": "s.a.x s.a.y"}),
        ("from s.a |> aggregate sum(x) as p group by y", {"y": "s.a.y", "p": "s.a.x"}),
    ],
)
def test_columns_are_traced_through_subqueries(sql, expected):
    assert expected == columns(sql)


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("select x as p from s.a union all select v from s.b", {"p": "s.a.x s.b.v"}),
        ("(select x as p from s.a) union (select v from s.b union select 1)", {"p": "s.a.x s.b.v"}),
        (
            "select x, y from s.a union all by name select v as y, w as x from s.b",
            {"x": "s.a.x s.b.w", "y": "s.a.y s.b.v"},
        ),
        ("select x from s.a except select v from s.b", {"x": "s.a.x"}),
        ("select x from s.a intersect select v from s.b", {"x": "s.a.x"}),
        (
            "select * from s.b union all select * from s.a",
            {"id": "s.a.id s.b.id", "v": "s.a.x s.b.v", "w": "s.a.y s.b.w"},
        ),
        ("select a, b from values (1, 2) as t(a, b)", {"a": "", "b": ""}),
        ("values (1, 2)", {"col1": "", "col2": ""}),
    ],
)
def test_a_union_has_the_sources_of_all_its_sides(sql, expected):
    """Columns match by position, or by name with BY NAME. EXCEPT and INTERSECT return rows of the left side only."""
    assert expected == columns(sql)


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("select x, v, b.id as i from s.a join s.b on s.a.id = s.b.id", {"x": "s.a.x", "v": "s.b.v", "i": "s.b.id"}),
        ("select id, x, v from s.a join s.b using (id)", {"id": "s.a.id", "x": "s.a.x", "v": "s.b.v"}),
        ("select id from s.a right join s.b using (id)", {"id": "s.b.id"}),
        ("select id, a.id as i from s.a full join s.b using (id)", {"id": "s.a.id s.b.id", "i": "s.a.id"}),
        ("select * from s.b left join t.a using (id)", {"id": "s.b.id", "v": "s.b.v", "w": "s.b.w", "z": "t.a.z"}),
        ("select * from s.b natural join t.a", {"id": "s.b.id", "v": "s.b.v", "w": "s.b.w", "z": "t.a.z"}),
        ("select x from s.a semi join s.b on s.a.id = s.b.id", {"x": "s.a.x"}),
        ("select * from t.a anti join s.b using (id)", {"id": "t.a.id", "z": "t.a.z"}),
        ("select s.a.id as p, t.a.id as q from s.a, t.a", {"p": "s.a.id", "q": "t.a.id"}),
        ("select x, v, z from (s.a join s.b on true) join t.a on true", {"x": "s.a.x", "v": "s.b.v", "z": "t.a.z"}),
        ("select x, q from s.a join s.u on true", {"x": "s.a.x", "q": "s.u.q"}),
        ("select e.n, x from s.a lateral view explode(y) e as n", {"n": "s.a.y", "x": "s.a.x"}),
        ("select k, v from s.a lateral view explode(map(x, y)) as k, v", {"k": "s.a.x s.a.y", "v": "s.a.x s.a.y"}),
        ("select col, x from s.a, lateral explode(y)", {"col": "s.a.y", "x": "s.a.x"}),
        ("select explode(x) as p, posexplode(y) as (i, q) from s.a", {"p": "s.a.x", "i": "s.a.y", "q": "s.a.y"}),
        ("select r.id as p, a.x from range(10) r join s.a on true", {"p": "", "x": "s.a.x"}),
    ],
)
def test_a_join_has_the_columns_of_its_sides(sql, expected):
    assert expected == columns(sql)


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("select x as p, p + y as q, q as r from s.a", {"p": "s.a.x", "q": "s.a.x s.a.y", "r": "s.a.x s.a.y"}),
        ("select y as x, x as p from s.a", {"x": "s.a.y", "p": "s.a.x"}),  # the table's own column comes first
    ],
)
def test_a_later_expression_can_use_an_alias(sql, expected):
    assert expected == columns(sql)


@pytest.mark.parametrize(
    "sql",
    [
        "select p from s.u, s.u2",  # either table may have the column
        "select id as p from s.a, s.b",  # Spark refuses it as ambiguous
        "select p from s.u natural join s.a",
        "select q as p from s.a pivot (sum(x) for y in (1 as q))",
        "select p from s.a unpivot ((p, q) for k in ((x, y), (y, x)))",
        "select c.p from s.u as c(p, q)",
        "select nowhere as p from s.a",
        "select nowhere.x as p from s.a",
        "select transform(x, y) using 'cat' as (p) from s.a",
        "select p from (select transform(x, y) using 'cat' as (p) from s.a)",
        "select f(a => y -> y + x) as p from s.a",
        "select p from (select * from s.u union all select * from s.a)",
        "select `(x + 1)` as p from (select x + 1 from s.a)",
        "select (select * from s.u) as p",
    ],
)
def test_a_column_that_cannot_be_traced_is_unknown(sql):
    """A column's sources are never guessed."""
    sources = flow(sql).find_column("p")
    assert sources is None or not sources.is_known


def test_an_unpivot_has_the_values_of_its_columns():
    expected = {"id": "s.a.id", "k": "", "v": "s.a.x s.a.y"}
    assert expected == columns("select * from s.a unpivot (v for k in (x as one, y))")
    assert expected == columns("select u.* from (select * from s.a) unpivot (v for k in (x, y)) as u")
    assert {"v": "s.u.x s.u.y", "z": "s.u.z"} == columns("select v, z from s.u unpivot (v for k in (x, y))")


def test_a_star_of_unknown_columns_traces_each_name_to_its_input():
    relation = flow("select *, y as z from (select * from s.u)")
    assert ("s.u.q", "s.u.y") == (shown(relation.find_column("q")), shown(relation.find_column("z")))


def test_an_expression_without_a_name_is_a_column_without_a_name():
    assert [(None, "s.a.x")] == [
        (column.name, shown(column.sources)) for column in flow("select x + 1 from s.a").columns
    ]
