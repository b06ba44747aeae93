"""A list of queries of every form that Spark has, each with the tables that it reads, for tests with and without Spark.

The tables are in TABLES. The queries are analysed, not run.
"""

from typing import NamedTuple

# the names in the project, each with a query that gives a table like it
TABLES = {
    "shop.customers": "select 1 as id, 'n' as name, 'SE' as country, array('t') as tags, "
    "named_struct('city', 'c', 'geo', named_struct('lat', 1.5D)) as address, parse_json('{}') as j",
    "shop.orders": "select 1 as id, 1 as customer_id, 1.5BD as amount, date'2024-01-01' as ordered_on, "
    "'new' as status, map('k', 'v') as attrs, 1 as q1, 2 as q2",
    "shop.lines": "select 1 as order_id, 'sku' as sku, 1 as quantity, array(named_struct('x', 1)) as parts",
    "hr.customers": "select 1 as id, 'b' as boss",
    "hr.2024_staff": "select 1 as id, 2 as 1st",
    "hr.order": "select 1 as `select`, 2 as `from`, 3 as id",
    "crm.Deals 2024": "select 1 as id, 'x' as `the name`, 1 as `a``b`",
    "csv.`data/x.csv`": "select '1' as id, '2' as v",
    "csv.`data/x.csv` WITH ('header' = 'true', 'sep' = ';')": "select '1' as id, '2' as v",
    "json.`data/*.json`": "select '1' as id",
}
MODELS = ("shop.customers", "shop.orders", "shop.lines", "hr.customers", "hr.2024_staff", "hr.order")
SOURCES = {"crm": "main.crm"}


class CorpusQuery(NamedTuple):
    sql: str
    table_names: tuple[str, ...]  # names in TABLES

    def __repr__(self) -> str:
        return " ".join(self.sql.split())[:70]


def _build_case(sql: str, *reads: str) -> CorpusQuery:
    return CorpusQuery(sql, tuple(f"shop.{name}" if "." not in name else name for name in reads))


CORPUS = (
    # simple queries, and the ways to write a table's name
    _build_case("select id from shop.orders", "orders"),
    _build_case("SELECT ID FROM SHOP.ORDERS", "orders"),
    _build_case("select `id` from `shop`.`orders`", "orders"),
    _build_case("select shop.orders.id, orders.amount from shop.orders", "orders"),
    _build_case("select o.id from shop . orders as o", "orders"),
    _build_case("select `o o`.id from shop.orders `o o`", "orders"),
    _build_case("select x from shop.orders as o(x, b, c, d, e, f, g, h)", "orders"),
    _build_case("select `select`, `from`, order.id from hr.order", "hr.order"),
    _build_case("select `the name`, `a``b`, `Deals 2024`.id from crm.`Deals 2024`", "crm.Deals 2024"),
    _build_case("select crm.`Deals 2024`.`the name` from crm.`Deals 2024`", "crm.Deals 2024"),
    _build_case("select * from csv.`data/x.csv`", "csv.`data/x.csv`"),
    _build_case(
        "select f.v from csv.`data/x.csv` with ('header' = 'true', 'sep' = ';') as f",
        "csv.`data/x.csv` WITH ('header' = 'true', 'sep' = ';')",
    ),
    _build_case(
        "select * from json.`data/*.json` union all select id from csv.`data/x.csv`",
        "json.`data/*.json`",
        "csv.`data/x.csv`",
    ),
    _build_case("table shop.orders", "orders"),
    _build_case("(table shop.orders) union all (table shop.orders)", "orders"),
    _build_case("from shop.orders select id, amount where amount > 1", "orders"),
    _build_case("from shop.orders", "orders"),
    _build_case("from (select id from shop.orders) select id", "orders"),
    _build_case(
        "from shop.orders select id where id > 1 union all from shop.customers select id", "orders", "customers"
    ),
    _build_case("values (1, 'a'), (2, 'b')"),
    _build_case("select * from values (1, 'shop.orders') as t(a, b)"),
    _build_case("select * from (values (1), (2)) as t(a)"),
    _build_case("select 1 as x, 'from shop.orders' as y -- from shop.orders\n, /* shop.lines */ \"shop.lines\" as z"),
    _build_case("select r'\\', -- from shop.lines\n 'it''s from shop.lines', 'a' 'b' from shop.orders", "orders"),
    _build_case(
        "select 'a\\'b -- c', 'from shop.lines' from shop.orders /* a /* nested from shop.lines */ b */", "orders"
    ),
    # names from WITH
    _build_case("with orders as (select 1 as id) select orders.id from orders"),
    _build_case("with a as (select * from shop.orders) select a.id from a", "orders"),
    _build_case("with orders as (select * from shop.orders) select orders.id from orders", "orders"),
    _build_case("with a(x) as (select id from shop.orders) select x from a", "orders"),
    _build_case("with a as (select 1 as id), b as (select * from a) select a.id from a join b using (id)"),
    _build_case(
        "with shop as (select 1 as id) select shop.id, o.id from shop join shop.orders o on o.id = shop.id", "orders"
    ),
    _build_case(
        "with a as (with b as (select id from shop.orders) select * from b) select * from a, shop.lines",
        "orders",
        "lines",
    ),
    _build_case(
        "with a as (select 1 as x) select * from (with a as (select 2 as y) select y from a) union select x from a"
    ),
    _build_case("with a as (select id from shop.orders) select * from (select * from (select * from a) b) c", "orders"),
    _build_case("with A as (select 1 as x) select a.X from `a`"),
    _build_case("with a as (select 1 as x) select (select max(x) from a) as m, x in (select x from a) as i from a"),
    _build_case(
        "with a as (select id from shop.orders) select * from shop.customers where id in (table a)",
        "orders",
        "customers",
    ),
    _build_case("with recursive n(i) as (select 1 union all select i + 1 from n where i < 5) select i from n"),
    _build_case(
        "with recursive up(id, depth) as (select id, 0 from shop.customers union all "
        "select o.customer_id, depth + 1 from shop.orders o join up on o.id = up.id where depth < 3) "
        "select * from up",
        "customers",
        "orders",
    ),
    _build_case("with a as (select 1 as x), a2 as (select x as y from a) (select y from a2) except select x from a"),
    # subqueries in every place
    _build_case(
        "select (select max(quantity) from shop.lines l where l.order_id = o.id), id from shop.orders o",
        "lines",
        "orders",
    ),
    _build_case(
        "select id from shop.orders where customer_id in (select id from shop.customers)", "orders", "customers"
    ),
    _build_case(
        "select id from shop.orders where (id, q1) not in (select order_id, quantity from shop.lines)",
        "orders",
        "lines",
    ),
    _build_case(
        "select id from shop.orders where exists (select 1 from shop.lines where shop.lines.order_id = shop.orders.id)",
        "orders",
        "lines",
    ),
    _build_case("select id from shop.orders where not exists (table hr.customers)", "orders", "hr.customers"),
    _build_case("select id from shop.orders where amount > (select avg(amount) from shop.orders)", "orders"),
    _build_case(
        "select status from shop.orders group by status having count(*) > (select count(*) from shop.lines)",
        "orders",
        "lines",
    ),
    _build_case("select id from shop.orders order by (select max(quantity) from shop.lines)", "orders", "lines"),
    _build_case(
        "select case when exists (select 1 from shop.lines) then 1 else (select 2) end from shop.orders",
        "lines",
        "orders",
    ),
    _build_case(
        "select o.id from (select id from shop.orders where id in (select order_id from shop.lines)) o",
        "orders",
        "lines",
    ),
    _build_case(
        "select coalesce((select boss from hr.customers limit 1), name) from shop.customers",
        "hr.customers",
        "customers",
    ),
    _build_case(
        "select * from shop.orders o join shop.lines l on o.id = l.order_id and o.id in (select id from hr.customers)",
        "orders",
        "lines",
        "hr.customers",
    ),
    _build_case("select struct((select 1 from shop.lines limit 1) as a, id) from shop.orders", "lines", "orders"),
    _build_case(
        "select sum(amount) filter (where id in (select order_id from shop.lines)) from shop.orders", "orders", "lines"
    ),
    _build_case(
        "select * from shop.orders o, lateral (select * from shop.lines where order_id = o.id)", "orders", "lines"
    ),
    _build_case(
        "select * from shop.orders left join lateral (select sku from shop.lines where order_id = "
        "shop.orders.id) l on true",
        "orders",
        "lines",
    ),
    _build_case(
        "select * from shop.orders o, lateral (select * from shop.lines l, lateral (select l.quantity + 1 as z))",
        "orders",
        "lines",
    ),
    _build_case("select transform(array(1), x -> x + 1) as t from shop.orders", "orders"),
    # set operations
    _build_case(
        "select id from shop.orders union select id from shop.customers union all select 1", "orders", "customers"
    ),
    _build_case(
        "select id from shop.orders intersect all select id from shop.customers minus select 2", "orders", "customers"
    ),
    _build_case(
        "(select id from shop.orders) except (select id from shop.customers) order by id limit 1", "orders", "customers"
    ),
    _build_case(
        "select id, name from shop.customers union all select id, boss from hr.customers", "customers", "hr.customers"
    ),
    _build_case(
        "select * from (select id from shop.orders union all select id from shop.customers) u where u.id > 1",
        "orders",
        "customers",
    ),
    _build_case(
        "select customers.id from shop.customers union all select customers.id from hr.customers",
        "customers",
        "hr.customers",
    ),
    # joins
    _build_case("select * from shop.orders o inner join shop.lines l on o.id = l.order_id", "orders", "lines"),
    _build_case("select * from shop.orders o left outer join shop.lines l on o.id = l.order_id", "orders", "lines"),
    _build_case("select * from shop.orders o full join shop.customers c using (id)", "orders", "customers"),
    _build_case("select * from shop.orders natural join shop.customers", "orders", "customers"),
    _build_case("select * from shop.orders natural left join hr.customers", "orders", "hr.customers"),
    _build_case(
        "select orders.id from shop.orders left semi join shop.lines on order_id = orders.id", "orders", "lines"
    ),
    _build_case("select * from shop.orders anti join shop.lines on order_id = id", "orders", "lines"),
    _build_case(
        "select * from shop.orders semi join shop.lines on shop.lines.order_id = shop.orders.id", "orders", "lines"
    ),
    _build_case("select * from shop.orders cross join shop.lines", "orders", "lines"),
    _build_case("select * from shop.orders, shop.lines, shop.customers", "orders", "lines", "customers"),
    _build_case(
        "select * from (shop.orders o join shop.lines l on o.id = l.order_id) right join shop.customers c on true",
        "orders",
        "lines",
        "customers",
    ),
    _build_case(
        "select * from shop.orders join (shop.lines join shop.customers on true) on orders.id = order_id",
        "orders",
        "lines",
        "customers",
    ),
    _build_case("select * from shop.orders a join shop.orders b on a.id = b.customer_id", "orders"),
    _build_case(
        "select shop.customers.id, hr.customers.boss from shop.customers join hr.customers on "
        "shop.customers.id = hr.customers.id",
        "customers",
        "hr.customers",
    ),
    _build_case(
        "select shop.customers.name from shop.customers where exists (select 1 from hr.customers "
        "where hr.customers.id = shop.customers.id)",
        "customers",
        "hr.customers",
    ),
    _build_case("select o.* except (id), l.sku from shop.orders o join shop.lines l on true", "orders", "lines"),
    # table functions
    _build_case("select * from range(10)"),
    _build_case("select r.id, o.id from range(1, 10, 2) as r join shop.orders o on o.id = r.id", "orders"),
    _build_case("select * from shop.customers lateral view explode(tags) t as tag", "customers"),
    _build_case(
        "select * from shop.customers lateral view outer posexplode(tags) t as i, tag lateral view explode(tags) u",
        "customers",
    ),
    _build_case("select id, explode(tags) as tag from shop.customers", "customers"),
    _build_case("select id, posexplode(tags) as (i, tag) from shop.customers", "customers"),
    _build_case("select id, inline(parts) from (select order_id as id, parts from shop.lines)", "lines"),
    _build_case("select * from shop.orders, lateral explode(attrs) as kv(k, v)", "orders"),
    _build_case("select * from explode(array(1, 2)) as t(x) join shop.orders on id = x", "orders"),
    _build_case("select stack(2, id, 'a', q1, 'b') as (n, what) from shop.orders", "orders"),
    _build_case("select * from explode(collection => array(1))"),
    # other clauses
    _build_case(
        "select /*+ broadcast(l), merge(shop.customers) */ * from shop.orders o join shop.lines l on true",
        "orders",
        "lines",
    ),
    _build_case("select /*+ repartition(3, id) */ id from shop.orders", "orders"),
    _build_case("select * from shop.orders tablesample (10 percent)", "orders"),
    _build_case("select o.id from shop.orders tablesample (5 rows) as o", "orders"),
    _build_case("select orders.id from shop.orders tablesample (bucket 1 out of 4) where shop.orders.id > 1", "orders"),
    _build_case(
        "select * from shop.orders tablesample (10 percent) repeatable (7) join shop.lines on true", "orders", "lines"
    ),
    _build_case(
        "select * from (select status, amount, q1 from shop.orders) pivot (sum(amount) for q1 in (1, 2))", "orders"
    ),
    _build_case(
        "select * from shop.orders pivot (sum(amount) as a, max(id) as m for status in ('new' as n, 'old' as o))",
        "orders",
    ),
    _build_case("select p.* from shop.orders pivot (sum(amount) for status in ('new', 'old')) as p", "orders"),
    _build_case("select id, k, v from shop.orders unpivot (v for k in (q1, q2))", "orders"),
    _build_case("select u.v from shop.orders unpivot include nulls ((v, w) for k in ((q1, q2) as a)) as u", "orders"),
    _build_case(
        "select id, row_number() over (partition by status order by amount desc) as n from shop.orders", "orders"
    ),
    _build_case(
        "select sum(amount) over w, avg(amount) over (partition by id rows between 1 preceding and "
        "current row) from shop.orders window w as (partition by status order by id)",
        "orders",
    ),
    _build_case("select id from shop.orders qualify row_number() over (partition by status order by id) = 1", "orders"),
    _build_case("select status, count(*) from shop.orders group by all", "orders"),
    _build_case(
        "select status, q1, sum(amount) from shop.orders group by grouping sets ((status), (status, q1), ())", "orders"
    ),
    _build_case("select status, q1, grouping_id() from shop.orders group by rollup (status, q1)", "orders"),
    _build_case(
        "select status, q1, count(*) from shop.orders group by cube (status, q1) order by all limit 3 offset 1",
        "orders",
    ),
    _build_case("select distinct status from shop.orders sort by status", "orders"),
    _build_case("select id from shop.orders distribute by status sort by id desc nulls last", "orders"),
    _build_case("select percentile_cont(0.5) within group (order by amount) from shop.orders", "orders"),
    _build_case("select listagg(sku, ',') within group (order by quantity) from shop.lines group by order_id", "lines"),
    # expressions
    _build_case(
        "select transform(tags, (t, i) -> t || i || name), filter(tags, t -> t > name) from shop.customers", "customers"
    ),
    _build_case("select aggregate(array(1), 0, (a, x) -> a + x, a -> a * q1) from shop.orders", "orders"),
    _build_case("select mask(name, otherChar => 'o'), mask(str => name) from shop.customers", "customers"),
    _build_case("select j:a.b[0]::int, j:['a'], address.geo.lat::string from shop.customers", "customers"),
    _build_case("select shop.customers.address.geo.lat, customers.address.city from shop.customers", "customers"),
    _build_case("select attrs['k'], attrs.k, element_at(attrs, 'k') from shop.orders", "orders"),
    _build_case(
        "select date'2024-01-01', timestamp '2024-01-01', interval 1 day, interval '1 2' day to "
        "hour, X'1F', 1L, 1.5BD, 2S from shop.orders",
        "orders",
    ),
    _build_case(
        "select extract(year from ordered_on), trim(both 'x' from status), substring(status from 1 "
        "for 2), overlay(status placing 'x' from 1), position('x' in status) from shop.orders",
        "orders",
    ),
    _build_case(
        "select id between 1 and 2, status like any ('a', 'b'), status rlike 'x', status is distinct "
        "from 'a', not id <=> 2, id div 2, id % 2, id & 1 | 2 ^ 3, ~id, -id from shop.orders",
        "orders",
    ),
    _build_case(
        "select cast(id as decimal(10, 2)), try_cast(status as int), id::bigint::string from shop.orders", "orders"
    ),
    _build_case(
        "select timestampadd(month, 1, ordered_on), datediff(day, ordered_on, current_date), "
        "dateadd(week, 1, ordered_on) from shop.orders",
        "orders",
    ),
    _build_case(
        "select count(distinct status, q1), count_if(id > 1), any_value(id) ignore nulls, first(id, "
        "true) from shop.orders",
        "orders",
    ),
    _build_case("select collate(status, 'UTF8_LCASE'), status collate unicode from shop.orders", "orders"),
    _build_case("select * except (tags, j) from shop.customers", "customers"),
    _build_case("select a + 1 as b from (select id as a from shop.orders)", "orders"),
    _build_case("select id as x, x + 1 as y, y + 1 as z from shop.orders", "orders"),
    _build_case(
        "select date, value, first, last, year, type, timestamp from (select 1 as date, 2 as value, "
        "3 as first, 4 as last, 5 as year, 6 as type, 7 as timestamp)"
    ),
    _build_case(
        "select if(id > 1, 'a', 'b'), nullif(id, 1), nvl2(id, 1, 2), decode(id, 1, 'a'), ifnull(id, "
        "0) from shop.orders",
        "orders",
    ),
    _build_case('select id from shop.orders where status = "new" and (id, q1) = (1, 2)', "orders"),
    _build_case("select window.end from (select window(timestamp_ntz'2024-01-01', '5 minutes'))"),
    # names in difficult places
    _build_case("select 2024_staff.1st, hr.2024_staff.id from hr.2024_staff", "hr.2024_staff"),
    _build_case("select shop.orders.id from shop.orders join shop.customers using (id)", "orders", "customers"),
    _build_case(
        "select shop.orders.id as shop, shop.orders.q1 as orders from shop.orders order by shop.orders.id", "orders"
    ),
    _build_case(
        "select (select max(shop.lines.quantity) from shop.lines where shop.lines.order_id = "
        "shop.orders.id) from shop.orders",
        "lines",
        "orders",
    ),
    _build_case(
        "select kv.k from shop.orders lateral view explode(shop.orders.attrs) kv as k, v where shop.orders.id = 1",
        "orders",
    ),
    _build_case("select x.k, shop.orders.id from shop.orders, lateral explode(shop.orders.attrs) as x(k, v)", "orders"),
    _build_case("select orders.k from shop.orders lateral view explode(attrs) orders as k, v", "orders"),
    _build_case(
        "select shop.orders.id, orders.k from shop.orders, lateral explode(shop.orders.attrs) as orders(k, v)", "orders"
    ),
    _build_case(
        "select sum(shop.orders.amount) over (partition by shop.orders.status order by "
        "shop.orders.id) from shop.orders",
        "orders",
    ),
    _build_case(
        "select shop.customers.j:a.b::int, customers.j:['x'], shop.customers.tags[0] from shop.customers", "customers"
    ),
    _build_case(
        "select transform(parts, lines -> lines.x), transform(shop.lines.parts, (p, i) -> p.x + "
        "lines.quantity) from shop.lines",
        "lines",
    ),
    _build_case("select exists(tags, t -> t = name), forall(tags, t -> t is null) from shop.customers", "customers"),
    _build_case(
        "select o.id from shop.orders as o where exists (from shop.lines select 1 where order_id = o.id)",
        "orders",
        "lines",
    ),
    _build_case("select id from shop.orders where id in (from shop.lines select order_id)", "orders", "lines"),
    _build_case(
        "select id from shop.orders where id in (1, (select max(order_id) from shop.lines))", "orders", "lines"
    ),
    _build_case("select * from (table shop.orders) as t where t.id > 1", "orders"),
    _build_case(
        "select shop.orders.status, count(*) from shop.orders group by shop.orders.status with rollup", "orders"
    ),
    _build_case(
        "select shop.orders.status from shop.orders group by grouping sets ((shop.orders.status), "
        "()) having max(shop.orders.id) > 1",
        "orders",
    ),
    _build_case(
        "select a.id from shop.orders a, shop.orders b, shop.orders where a.id = b.id and b.id = "
        "orders.id and shop.orders.q1 = 1",
        "orders",
    ),
    _build_case(
        "select customers.name from shop.customers where id in (select customers.id from hr.customers)",
        "customers",
        "hr.customers",
    ),
    _build_case(
        "select * from shop.customers join (select customers.boss from hr.customers) as b on customers.name = b.boss",
        "customers",
        "hr.customers",
    ),
    _build_case(
        "with customers as (select * from hr.customers) select customers.boss, shop.customers.name "
        "from customers join shop.customers on true",
        "hr.customers",
        "customers",
    ),
    _build_case(
        "with x as (select shop.orders.id from shop.orders), orders as (select * from x) select "
        "orders.id from orders join shop.orders o using (id)",
        "orders",
    ),
    _build_case(
        "with recursive n(i) max recursion level 5 as (select 1 union all select i + 1 from n "
        "where i < 3) select * from n"
    ),
    _build_case(
        "select id from shop.orders where amount = (with a as (select max(amount) as m from "
        "shop.orders) select m from a)",
        "orders",
    ),
    _build_case(
        "select json_object('id', shop.orders.id, 'lines', (select json_group_array(sku order by "
        "shop.lines.quantity desc) from shop.lines where order_id = shop.orders.id)) from "
        "shop.orders",
        "orders",
        "lines",
    ),
    _build_case(
        "select json_array(id, status::TEXT, (select json_object('n', count(*)) from shop.lines)) "
        "from shop.orders where exists (select 1 from hr.customers)",
        "lines",
        "orders",
        "hr.customers",
    ),
    _build_case("from shop.orders |> where shop.orders.id > 1 |> select orders.id", "orders"),
    _build_case(
        "from shop.orders |> left join shop.customers on shop.orders.customer_id = "
        "shop.customers.id |> select name, amount",
        "orders",
        "customers",
    ),
    _build_case("select transform(id, q1) using 'cat' as (a, b) from shop.orders", "orders"),
    _build_case("select u.k from shop.orders unpivot (v for k in (q1 as `first one`, q2)) u", "orders"),
    _build_case(
        "select * from shop.orders tablesample (3 rows), shop.lines tablesample (50 percent) l", "orders", "lines"
    ),
    _build_case(
        "select * from (select /*+ coalesce(1) */ * from shop.orders) join (select /*+ "
        "broadcast(lines) */ * from shop.lines) on true",
        "orders",
        "lines",
    ),
    _build_case("select s.* from (select struct(id, q1) as s from shop.orders)", "orders"),
    _build_case(
        "select named_struct('a', id, 'from', 'shop.lines').a, `from`.x from (select id, struct(1 "
        "as x) as `from` from shop.orders)",
        "orders",
    ),
    _build_case(
        "select count(1) filter (where shop.orders.status = 'new'), max(amount) filter (where "
        "exists (select 1 from shop.lines)) from shop.orders",
        "orders",
        "lines",
    ),
    _build_case("select id from shop.orders limit 1 + 1", "orders"),
    _build_case(
        "select case shop.orders.status when 'new' then shop.orders.q1 else orders.q2 end as c from shop.orders",
        "orders",
    ),
    _build_case(
        "select * from shop.orders where (select max(id) from shop.customers where customers.id = "
        "orders.customer_id) > 1",
        "orders",
        "customers",
    ),
    _build_case("select parts[0].x, struct(sku as s).s, parts.x from shop.lines", "lines"),
    # column names that Spark generates
    _build_case("select explode(tags) from shop.customers order by col", "customers"),
    _build_case("select upper(name) from shop.customers order by `upper(name)`", "customers"),
    _build_case("select status, grouping__id, count(*) from shop.orders group by status with cube", "orders"),
    _build_case("select id from shop.orders order by all", "orders"),
    _build_case(
        "select session_window.start as s, count(*) as n from shop.orders group by session_window(ordered_on, '1 day')",
        "orders",
    ),
    _build_case("select id from shop.orders where (id > 1) is unknown or (id > 2) is not unknown", "orders"),
    _build_case("select __auto_generated_subquery_name.id from (select id from shop.orders)", "orders"),
    # pipes
    _build_case("from shop.orders |> where id > 1 |> select id, amount |> order by id |> limit 3", "orders"),
    _build_case("from shop.orders |> aggregate sum(amount) as total group by status", "orders"),
    _build_case("from shop.orders |> extend id + 1 as next |> as o |> select o.next", "orders"),
    _build_case(
        "from shop.orders |> join shop.lines on id = order_id |> union all (select * from "
        "shop.orders join shop.lines on true)",
        "orders",
        "lines",
    ),
    _build_case("select id from shop.orders |> where id in (select order_id from shop.lines)", "orders", "lines"),
    _build_case(
        "from shop.orders |> select status, q1, amount |> pivot (sum(amount) for q1 in (1, 2)) |> tablesample (5 rows)",
        "orders",
    ),
    _build_case("with a as (from shop.orders |> select id) from a |> select distinct id", "orders"),
)
