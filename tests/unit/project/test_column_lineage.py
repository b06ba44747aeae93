"""The source columns of a project's models."""

import time

import pytest

from ondatra_dagster.errors import SelectionError
from ondatra_dagster.project.column_lineage import LineageBranch, LineageResolver
from ondatra_dagster.project.model import Input, ModelInput

SHOP = {
    "models/raw/orders.sql": "select * from csv.`data/o.csv`",
    "models/raw/prices.sql": "select sku, cast(price as decimal(10, 2)) as price from json.`data/p.json`",
    "models/mart/lines.sql": "with o as (select * from raw.orders)\n"
    "select o.id, o.sku, quantity * p.price as amount, count(*) as n "
    "from o join raw.prices p on p.sku = o.sku",
    "models/mart/totals.sql": "select id, sum(amount) as total from mart.lines group by id",
    "models/mart/both.sql": "select *, 1 from mart.lines",
    "models/sync/crm.sql": "select id, total, now() as `sent at` from mart.totals",
}


@pytest.fixture
def shop(load_from_files):
    return load_from_files(SHOP)


def direct(lineage: LineageResolver, model: str) -> dict[str, list[str] | None]:
    """Return each column's direct sources, or None if they are unknown."""
    columns = lineage.columns(lineage._project.model(model))
    return {
        column.name: [f"{origin.input.name}.{origin.column}" for origin in column.origins] if column.is_known else None
        for column in columns
    }


def drawn(branch: LineageBranch) -> object:
    name = f"{branch.origin.input.name} {branch.origin.column}" + (" …" if branch.is_repeated else "")
    return (name, *map(drawn, branch.upstream_branches)) if branch.upstream_branches else name


def test_each_column_has_its_source_columns(shop):
    lineage = LineageResolver(shop)
    assert {"sku": ["json.`data/p.json`.sku"], "price": ["json.`data/p.json`.price"]} == direct(lineage, "raw.prices")
    assert {
        "id": ["raw.orders.id"],
        "sku": ["raw.orders.sku"],
        "amount": ["raw.orders.quantity", "raw.prices.price"],
        "n": [],
    } == direct(lineage, "mart.lines")
    assert {"id": ["mart.totals.id"], "total": ["mart.totals.total"], "sent at": []} == direct(lineage, "sync.crm")


def test_a_column_is_traced_to_the_files(shop):
    lineage = LineageResolver(shop)
    expected = (
        "sync.crm total",
        (
            "mart.totals total",
            (
                "mart.lines amount",
                ("raw.orders quantity", "csv.`data/o.csv` quantity"),
                ("raw.prices price", "json.`data/p.json` price"),
            ),
        ),
    )
    assert expected == drawn(lineage.branch(shop.model("sync.crm"), "TOTAL"))
    sources, is_all = lineage.sources(shop.model("sync.crm"), "total")
    assert ["csv.`data/o.csv` quantity", "json.`data/p.json` price"] == [
        f"{origin.input.name} {origin.column}" for origin in sources
    ]
    assert is_all


def test_a_repeated_branch_is_drawn_only_once(load_from_files):
    """Otherwise the tree of a project with many layers would fill the screen."""
    shop = load_from_files(
        {
            "models/a/one.sql": "select x from csv.`f`",
            "models/a/two.sql": "select x as p, x as q from a.one",
            "models/a/three.sql": "select p + q as r from a.two",
        }
    )
    expected = ("a.three r", ("a.two p", ("a.one x", "csv.`f` x")), ("a.two q", "a.one x …"))
    assert expected == drawn(LineageResolver(shop).branch(shop.model("a.three"), "r"))


def test_a_star_shows_the_columns_that_the_table_has(shop):
    """Only the table shows which columns the file's header has."""
    tables = {"raw.orders": ["id", "sku", "quantity"], "mart.both": ["id", "sku", "amount", "n", "1"]}

    def find_columns(read: Input) -> list[str] | None:
        return tables.get(read.name)

    lineage = LineageResolver(shop, find_columns)
    expected = {name: [f"csv.`data/o.csv`.{name}"] for name in ("id", "sku", "quantity")}
    assert expected == direct(lineage, "raw.orders")
    # Spark has chosen a name for the last one
    assert {"id", "sku", "amount", "n", "1"} == set(direct(lineage, "mart.both"))
    assert [] == direct(lineage, "mart.both")["1"]
    assert {} == direct(LineageResolver(shop), "raw.orders")


def test_a_column_of_a_star_has_a_lineage_before_its_table_exists(shop):
    lineage = LineageResolver(shop)
    (origin,) = lineage.column(shop.model("raw.orders"), "anything").origins
    assert "anything" == origin.column


def test_an_unknown_column_is_refused_with_the_nearest_right_one(shop):
    message = "mart.totals has no column 'totl'; did you mean 'total'? the columns are id, total"
    with pytest.raises(SelectionError) as refused:
        LineageResolver(shop).column(shop.model("mart.totals"), "totl")
    assert message == str(refused.value)


def test_a_column_above_an_untraceable_one_has_unknown_sources(load_from_files):
    shop = load_from_files(
        {
            "models/a/one.sql": "select * from csv.`f` pivot (sum(x) for y in (1 as p))",
            "models/a/two.sql": "select p as q, 1 as r from a.one",
        }
    )
    lineage = LineageResolver(shop)
    assert {"q": ["a.one.p"], "r": []} == direct(lineage, "a.two")
    assert not lineage.column(shop.model("a.one"), "p").is_known
    assert ((), False) == lineage.sources(shop.model("a.two"), "q")


def test_a_model_with_the_table_name_of_its_input_reads_that_input(load_from_files):
    """b.x reads a.x: a model with the same table name in another schema is another model."""
    shop = load_from_files(
        {"models/a/x.sql": "select id from csv.`f`", "models/b/x.sql": "select x.id, a.x.id as again from a.x"}
    )
    assert {"id": ["a.x.id"], "again": ["a.x.id"]} == direct(LineageResolver(shop), "b.x")


def test_a_kinds_system_columns_have_no_sources(load_from_files):
    """Readers see these columns, and an input has them like any other column."""
    shop = load_from_files(
        {
            "models/a/versions.sql": "-- @kind: scd2\n-- @unique_key: id\nselect id, plan from csv.`f`",
            "models/a/now.sql": "select * from a.versions where is_current",
            "models/a/seen.sql": "-- @kind: events\npage STRING NOT NULL, seconds INT",
        }
    )
    own = ("valid_from_snapshot", "valid_to_snapshot", "is_current")
    expected = {"id": ["csv.`f`.id"], "plan": ["csv.`f`.plan"]} | {name: [] for name in own}
    assert expected == direct(LineageResolver(shop), "a.versions")
    assert {name: [f"a.versions.{name}"] for name in ("id", "plan", *own)} == direct(LineageResolver(shop), "a.now")
    assert {"page": [], "seconds": [], "_extra": []} == direct(LineageResolver(shop), "a.seen")


def test_500_models_are_traced_in_one_or_two_seconds(load_from_files):
    """The lineage is computed only when it is read, because it parses each query again."""
    files = {"models/m/m0.sql": "select id, x from csv.`f`"}
    for number in range(1, 500):
        read = number - 1 if number % 100 else 0
        files[f"models/m/m{number}.sql"] = (
            f"with a as (select id, x from m.m{read}), b as (select id, max(x) as x from a group by id) "
            "select a.id, a.x + b.x as x from a join b using (id)"
        )
    shop = load_from_files(files)
    started = time.perf_counter()
    lineage = LineageResolver(shop)
    for model in shop.models.values():
        lineage.columns(model)
    sources, is_all = lineage.sources(shop.model("m.m499"), "x")
    assert (["x"], True) == ([origin.column for origin in sources], is_all)
    assert time.perf_counter() - started < 10  # usually one second; the limit allows for a busy machine


def test_the_columns_of_the_models_own_table_are_looked_up(shop):
    """The lookup gets the model itself as an input."""
    inputs: list[Input] = []
    LineageResolver(shop, lambda read: inputs.append(read)).columns(shop.model("mart.totals"))
    assert ModelInput(model="mart.totals") in inputs
