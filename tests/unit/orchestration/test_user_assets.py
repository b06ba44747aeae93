"""A user's own Dagster assets above and below models, in one graph and one run."""

import re
from collections.abc import Callable
from pathlib import Path

import dagster as dg
import pytest
from support.projects.shop_project import ShopProject, write_contacts, write_shop_files

from ondatra_dagster.errors import ProjectError
from ondatra_dagster.orchestration.definitions import build_definitions, definitions_of
from ondatra_dagster.testing.demo_api.demo_server import DemoApi

CRM, EXPORT, REPORT = dg.AssetKey(["sync", "crm"]), dg.AssetKey(["app", "export"]), dg.AssetKey("report")
FILES = {
    "pyproject.toml": '[tool.ondatra.sources]\napp = "data/app"\n',
    "models/raw/contacts.sql": "SELECT * FROM app.export\n",
}
Button = Callable[[dg.Definitions], dg.ExecuteInProcessResult]


@pytest.fixture
def materialize_all(dagster_instance: dg.DagsterInstance) -> Button:
    """Return the Materialize button for all assets."""

    def press(definitions: dg.Definitions) -> dg.ExecuteInProcessResult:
        job = definitions.resolve_implicit_global_asset_job_def()
        return job.execute_in_process(instance=dagster_instance, raise_on_error=False)

    return press


@pytest.fixture
def shop(shop: ShopProject) -> ShopProject:
    """Return a shop whose contacts come from a table that another program makes."""
    for name, text in FILES.items():
        (shop.root / name).write_text(text)
    return shop


def own_assets(shop: ShopProject, done: list[str], **contacts: str) -> dg.Definitions:
    """Return a user's assets: one makes the source, the other reads the result of the models."""

    @dg.asset(key=EXPORT)
    def export() -> None:
        write_contacts(shop.root, **contacts)
        folder = shop.root / "data" / "app" / "export"
        folder.mkdir(parents=True, exist_ok=True)
        (shop.root / "data" / "contacts.csv").replace(folder / "rows.csv")
        done.append("export")

    @dg.asset(deps=[CRM])
    def report() -> None:
        done.append(f"report of {len(shop.tables.table('sync.crm').rows)}")

    return dg.Definitions(assets=[export, report], resources={"io_manager": dg.mem_io_manager})


def test_a_source_is_an_asset_without_code(shop: ShopProject) -> None:
    """The table existed before the project. A user who looks at the graph wants to see where the rows come from."""
    graph = build_definitions(shop.root).resolve_asset_graph()
    node = graph.get(EXPORT)
    assert (True, "app", {dg.AssetKey(["raw", "contacts"])}) == (node.is_external, node.group_name, node.child_keys)
    assert "data/app/export" == node.metadata["dagster/uri"]


def test_user_assets_run_before_and_after_models(shop: ShopProject, materialize_all: Button, api: DemoApi) -> None:
    """It is one run: the model reads the table that was just made, and the report reads the model's table."""
    executions: list[str] = []
    ours = definitions_of(shop.workspace, open_service=shop.open_engine, with_sources=False)
    result = materialize_all(dg.Definitions.merge(ours, own_assets(shop, executions, a1="a@x.org", b2="b@x.org")))
    assert result.success
    assert ["export", "report of 2"] == executions
    assert {"a1", "b2"} == set(api.contacts())


def test_user_assets_below_a_failed_model_do_not_run(shop: ShopProject, materialize_all: Button, api: DemoApi) -> None:
    """They would report the old rows."""
    executions: list[str] = []
    shop.tables.failing_models.add("raw.contacts")
    ours = definitions_of(shop.workspace, open_service=shop.open_engine, with_sources=False)
    assert not materialize_all(dg.Definitions.merge(ours, own_assets(shop, executions, a1="a@x.org"))).success
    assert ["export"] == executions


def test_a_users_executor_works_if_the_projects_executor_is_left_out(root: Path) -> None:
    """Dagster refuses two executors, even if they are the same."""

    @dg.asset
    def mine() -> None: ...

    own = dg.Definitions(assets=[mine], executor=dg.in_process_executor)
    merged = dg.Definitions.merge(build_definitions(root, with_executor=False), own)
    assert {dg.AssetKey("mine"), CRM} <= set(merged.resolve_all_asset_keys())


def test_the_example_in_the_docs_runs(tmp_path: Path) -> None:
    """It runs with the names of the docs, in a project that has these names too."""
    page = (Path(__file__).parents[3] / "docs" / "run.md").read_text(encoding="utf-8")
    (example,) = [text for text in re.findall(r"```python\n(.*?)```", page, re.DOTALL) if "merge(" in text]
    files = {
        "pyproject.toml": '[tool.ondatra.sources]\ncrm = "data/crm"\n',
        "models/mart/customers.sql": "SELECT id, email FROM crm.deals\n",
    }
    root = write_shop_files(tmp_path, url="http://127.0.0.1:9", files=files)
    names: dict[str, dg.Definitions] = {"__file__": str(root / "ondatra_project" / "definitions.py")}  # type: ignore[dict-item]
    exec(example, names)
    graph = names["defs"].resolve_asset_graph()
    customers = graph.get(dg.AssetKey(["mart", "customers"]))
    assert {dg.AssetKey(["crm", "deals"])} == customers.parent_keys
    assert dg.AssetKey("report") in customers.child_keys
    assert not graph.get(dg.AssetKey(["crm", "deals"])).is_external


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return write_shop_files(tmp_path / "another shop", url="http://127.0.0.1:9")


def test_a_source_with_the_name_of_a_models_folder_is_refused(root: Path) -> None:
    """Otherwise Dagster would report two assets with one key, and that message is hard to read."""
    (root / "pyproject.toml").write_text('[tool.ondatra.sources]\nsync = "data/sync"\n')
    with pytest.raises(ProjectError, match="'sync' is also models/sync"):
        build_definitions(root)
