"""The way from SQL through Spark, Delta, queue, Starlark and HTTP to an API with state, and what the API then has."""

import contextlib
from pathlib import Path

import duckdb
import pytest
from support.spark.spark_project import SparkProject

from ondatra_dagster.cli.commands.run import execute_plan
from ondatra_dagster.testing.demo_api import DEMO_KEY, DemoApi
from ondatra_dagster.warehouse.spark.session import Warehouse

pytestmark = pytest.mark.acceptance

ROOT = Path(__file__).parents[2]
CRM = """
-- @kind: merge
-- @unique_key: customer_id
-- @sink: crm_push
SELECT customer_id, name, email FROM csv.`data/customers.csv` WITH ('header' = 'true')
"""
ERP = """
-- @kind: tracked
-- @group_key: invoice_id
-- @sink: erp_push
SELECT invoice_id, customer_id, issued_on, CAST(line_no AS int) AS line_no, product,
    CAST(quantity AS int) AS quantity, CAST(unit_price AS decimal(10, 2)) AS unit_price
FROM csv.`data/lines.csv` WITH ('header' = 'true')
"""
PRICES = """
-- @kind: table
-- @sink: prices_push
SELECT * FROM csv.`data/products.csv` WITH ('header' = 'true')
"""
STEPS = """
-- @kind: append
-- @sink: timeline_push
SELECT * FROM csv.`data/orders.csv` WITH ('header' = 'true')
"""
CUSTOMERS = ("customer_id", "name", "email")
LINES = ("invoice_id", "customer_id", "issued_on", "line_no", "product", "quantity", "unit_price")
PRODUCTS = ("product_id", "name", "unit_price")
ORDERS = ("order_id", "customer_id", "status")
ADA, BEN, CYN = (("C-1", "Ada", "ada@x.org"), ("C-2", "Ben", "ben@x.org"), ("C-3", "Cyn", "cyn@x.org"))


def line(invoice: str, number: int, quantity: int = 1) -> tuple[object, ...]:
    return (invoice, "C-1", "2026-01-02", number, f"thing {number}", quantity, "9.90")


@pytest.fixture
def shop(tmp_path: Path, shared_warehouse: Warehouse, api: DemoApi) -> SparkProject:
    """Return a project with the example's push functions over tables of a test."""
    shop = SparkProject(tmp_path / "shop", shared_warehouse.session)
    libraries = {
        f"lib/{name}.star": (ROOT / "lib" / f"{name}.star")
        .read_text()
        .replace('"http://127.0.0.1:8321",', f'"{api.url}", "retry": 1, "backoff": 0,')
        .replace('"poll_interval": "1s"', '"poll_interval": "1ms"')
        for name in ("crm_push", "erp_push", "prices_push", "timeline_push")
    }
    shop.write_files({"pyproject.toml": "[tool.ondatra]\n", ".env": f"DEMO_API_KEY={DEMO_KEY}\n", **libraries})
    return shop


def took(api: DemoApi) -> list[tuple[str, str]]:
    """Return the calls since the last time."""
    requests = [(call.method, call.path) for call in api.calls[took.seen :]]
    took.seen = len(api.calls)
    return sorted(requests)


@pytest.fixture(autouse=True)
def reset_call_position() -> None:
    took.seen = 0


def test_a_merge_sends_new_and_changed_rows_to_the_crm(shop: SparkProject, api: DemoApi) -> None:
    """The steps are a first run, no change, a change, and a row that disappears from its source."""
    shop.write_files({"models/sync/crm.sql": CRM})
    shop.write_rows("customers", CUSTOMERS, [ADA, BEN])
    assert 0 == shop.run()
    assert [("POST", "/crm/contacts")] * 2 == took(api)
    shop.write_rows("customers", CUSTOMERS, [BEN, ADA])
    assert 0 == shop.run()
    assert [] == took(api)
    shop.write_rows("customers", CUSTOMERS, [ADA, ("C-2", "Bea", "ben@x.org"), CYN])
    assert 0 == shop.run()
    assert [("PATCH", "/crm/contacts/C-2"), ("POST", "/crm/contacts")] == took(api)
    shop.write_rows("customers", CUSTOMERS, [ADA])
    assert 0 == shop.run()
    assert [] == took(api)
    assert {"C-1": "Ada", "C-2": "Bea", "C-3": "Cyn"} == {
        key: contact["name"] for key, contact in api.contacts().items()
    }


def test_tracked_sends_whole_invoices_to_the_erp(shop: SparkProject, api: DemoApi) -> None:
    """An invoice is sent whole, again whole when one line changes, and is deleted with its last line."""
    shop.write_files({"models/sync/erp.sql": ERP})
    shop.write_rows("lines", LINES, [line("I-1", 1), line("I-1", 2), line("I-2", 1)])
    assert 0 == shop.run()
    assert [("PUT", "/erp/invoices/I-1"), ("PUT", "/erp/invoices/I-2")] == took(api)
    shop.write_rows("lines", LINES, [line("I-2", 1), line("I-1", 2), line("I-1", 1)])
    assert 0 == shop.run()
    assert [] == took(api)
    shop.write_rows("lines", LINES, [line("I-1", 1), line("I-1", 2, quantity=5), line("I-2", 1)])
    assert 0 == shop.run()
    assert [("PUT", "/erp/invoices/I-1")] == took(api)
    shop.write_rows("lines", LINES, [line("I-1", 1), line("I-1", 2, quantity=5)])
    assert 0 == shop.run()
    assert [("DELETE", "/erp/invoices/I-2")] == took(api)
    assert [1, 5] == [row["quantity"] for row in api.invoices()["I-1"]["lines"]]
    assert ["I-1"] == list(api.invoices())


def test_a_price_list_is_sent_and_accepted_as_a_whole(shop: SparkProject, api: DemoApi) -> None:
    """Any change is one call. When the ERP refuses the call, it keeps the list that it has."""
    shop.write_files({"models/raw/products.sql": PRICES})
    pen, ink = ("P-1", "Pen", "34.00"), ("P-2", "Ink", "11.50")
    shop.write_rows("products", PRODUCTS, [pen, ink])
    assert 0 == shop.run()
    assert ["P-1", "P-2"] == sorted(api.prices())
    shop.write_rows("products", PRODUCTS, [pen, ("P-3", "Paper", "free")])
    assert 1 == shop.run()
    assert ["P-1", "P-2"] == sorted(api.prices())
    shop.write_rows("products", PRODUCTS, [pen, ("P-3", "Paper", "12.75")])
    assert 0 == shop.run()
    assert ["P-1", "P-3"] == sorted(api.prices())
    assert [("PUT", "/erp/prices")] * 3 == took(api)


def test_new_steps_of_orders_are_sent_as_a_job(shop: SparkProject, api: DemoApi) -> None:
    """The job is polled until it has ended. Only new steps are sent."""
    shop.write_files({"models/mart/order_steps.sql": STEPS})
    shop.write_rows("orders", ORDERS, [("1", "C-1", "open"), ("2", "C-2", "open")])
    assert 0 == shop.run()
    assert ["1 open", "2 open"] == sorted(api.timeline())
    shop.write_rows("orders", ORDERS, [("1", "C-1", "shipped"), ("2", "C-2", "open")])
    assert 0 == shop.run()
    assert ["1 open", "1 shipped", "2 open"] == sorted(api.timeline())
    jobs = [("GET", f"/crm/imports/J-{number}") for number in (1, 1, 2, 2)]
    assert [*jobs, *[("POST", "/crm/imports")] * 2] == took(api)


def test_a_reject_that_is_fixed_at_its_source_arrives_as_new(shop: SparkProject, api: DemoApi) -> None:
    """It doesn't stop the other rows. Rows with null or duplicate keys are invalid, and counted."""
    shop.write_files({"models/sync/crm.sql": CRM})
    invalid = [(None, "Nobody", "n@x.org"), ("C-9", "One", "o@x.org"), ("C-9", "Two", "t@x.org")]
    shop.write_rows("customers", CUSTOMERS, [ADA, ("C-2", "Ben", "no address"), *invalid])
    assert 0 == shop.run()
    assert ["C-1"] == list(api.contacts())
    state = shop.workspace.queue("sync.crm")
    assert (0, 1) == (state.depth, state.dead_units)
    counts = shop.workspace.history.list_runs("sync.crm")[0].counts["grid"]
    assert 3 == sum(counts["invalid"].values())
    took(api)
    shop.write_rows("customers", CUSTOMERS, [ADA, BEN, *invalid])
    assert 0 == shop.run()
    assert [("POST", "/crm/contacts")] == took(api)
    assert 0 == shop.workspace.queue("sync.crm").dead_units


def test_an_api_that_answers_500_gets_only_the_allowed_retries(shop: SparkProject, api: DemoApi, capfd) -> None:
    """Each of three rows is sent once and retried once. The exit code is 1, and the rows still wait."""
    shop.write_files({"models/sync/crm.sql": CRM})
    shop.write_rows("customers", CUSTOMERS, [ADA, BEN, CYN])
    api.fail(status=500, times=None)
    assert 1 == shop.run()
    assert 3 * 2 == len(api.calls)  # one call for each row, `retry: 1`
    assert "the API is down" in capfd.readouterr().err
    state = shop.workspace.queue("sync.crm")
    assert (3, 0) == (state.waiting_units, state.dead_units)


def test_a_run_whose_rows_are_all_rejected_fails(shop: SparkProject, api: DemoApi) -> None:
    """A run that delivered nothing must not look like one that did."""
    shop.write_files({"models/sync/crm.sql": CRM})
    shop.write_rows("customers", CUSTOMERS, [("C-1", "Ada", "none"), ("C-2", "Ben", "none")])
    assert 1 == shop.run()
    assert {} == api.contacts()


def test_the_documents_query_reads_the_folder_of_a_run(shop: SparkProject) -> None:
    """Users bring this query and change only its path."""
    shop.write_files({"models/sync/crm.sql": CRM})
    shop.write_rows("customers", CUSTOMERS, [ADA, ("C-2", "Ben", "none")])
    shop.run()
    run_id = shop.workspace.history.list_runs("sync.crm")[0].run_id
    folder = shop.workspace.tracking.run_address("sync.crm", run_id)
    rows = duckdb.sql(
        f"""
        SELECT status_message, ARRAY_AGG(identifier) AS rejected_records
        FROM read_parquet('{folder}/*.parquet', union_by_name=True)
        WHERE status = 'rejected'
        GROUP BY 1
        """
    ).fetchall()
    assert [("""{"error":"email 'none' isn't an address"}""", ["C-2"])] == rows


def test_a_run_with_nothing_to_do_opens_nothing(shop: SparkProject, api: DemoApi) -> None:
    """It starts no JVM and no Dagster, and makes no call, because users run it every few minutes."""
    shop.write_files({"models/sync/crm.sql": CRM})
    shop.write_rows("customers", CUSTOMERS, [ADA])
    shop.run()
    took(api)

    def opened(*_: object) -> contextlib.AbstractContextManager[object]:
        raise AssertionError("nothing was to be opened")

    workspace = shop.workspace
    assert 0 == execute_plan(workspace, workspace.plan(None), open_service=opened)
    assert [] == took(api)
