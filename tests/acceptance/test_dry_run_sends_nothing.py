"""A dry run against a server that counts: no request is sent, and no byte of warehouse, queue or tracking changes."""

from pathlib import Path

import orjson
import pytest
from support.files.folder_contents import read_folder
from support.spark.spark_project import SparkProject

from ondatra_dagster.testing.demo_api import DEMO_KEY, DemoApi
from ondatra_dagster.warehouse.spark.session import Warehouse

pytestmark = pytest.mark.acceptance

ROOT = Path(__file__).parents[2]
STAGING = """
-- @kind: table
SELECT customer_id, trim(name) AS name, email FROM csv.`data/customers.csv` WITH ('header' = 'true')
"""
CRM = """
-- @kind: merge
-- @unique_key: customer_id
-- @sink: crm_push
SELECT customer_id, name, email FROM staging.customers
"""
CUSTOMERS = ("customer_id", "name", "email")
ADA, BEN, CYN = (("C-1", "Ada", "ada@x.org"), ("C-2", "Ben", "ben@x.org"), ("C-3", "Cyn", "cyn@x.org"))


@pytest.fixture
def shop(tmp_path: Path, shared_warehouse: Warehouse, api: DemoApi) -> SparkProject:
    """Return a project with two models, one below the other, and the example's CRM."""
    shop = SparkProject(tmp_path / "shop", shared_warehouse.session)
    library = (ROOT / "lib" / "crm_push.star").read_text()
    shop.write_files(
        {
            "pyproject.toml": "[tool.ondatra]\n",
            ".env": f"DEMO_API_KEY={DEMO_KEY}\n",
            "lib/crm_push.star": library.replace("http://127.0.0.1:8321", api.url),
            "models/staging/customers.sql": STAGING,
            "models/sync/crm.sql": CRM,
        }
    )
    return shop


def kept(shop: SparkProject) -> dict[str, bytes]:
    state = shop.root / ".ondatra"
    folders = ("warehouse", "queue", "tracking")
    return {name: content for folder in folders for name, content in read_folder(state / folder).items()}


def test_a_dry_run_sends_no_request_and_changes_no_file(
    shop: SparkProject, api: DemoApi, capfd: pytest.CaptureFixture[str]
) -> None:
    """The first comes before any run, the second has changes and a dead letter. The next run does what was forecast."""
    shop.write_rows("customers", CUSTOMERS, [ADA, ("C-2", "Ben", "no address")])
    assert 0 == shop.run(is_dry=True)
    assert ((), {}) == (api.calls, kept(shop))
    assert 0 == shop.run()
    before, calls = kept(shop), api.calls
    shop.write_rows("customers", CUSTOMERS, [("C-1", "Ada L.", "ada@x.org"), BEN, CYN])
    capfd.readouterr()
    assert 0 == shop.run(is_dry=True, as_json=True)
    assert (before, calls) == (kept(shop), api.calls)
    (dry_run,) = [line for line in map(orjson.loads, capfd.readouterr().out.splitlines()) if "sync" in line]
    names = ("source_rows", "changed", "creates", "updates", "deletes", "dead")
    assert (3, 3, 2, 1, 0, 0) == tuple(dry_run[name] for name in names)
    assert (1, 3) == (dry_run["destination_before"], dry_run["destination_after"])
    columns = {row["key"]: row["columns"] for row in dry_run["samples"]}
    assert {"C-1", "C-2", "C-3"} == set(columns)
    assert {"name": ["Ada", "Ada L."]} == columns["C-1"]
    assert 0 == shop.run()
    assert {"C-1", "C-2", "C-3"} == set(api.contacts())
    methods = sorted(call.method for call in api.calls[len(calls) :])
    assert ["PATCH", "POST", "POST"] == methods
