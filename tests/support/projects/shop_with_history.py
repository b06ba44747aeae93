"""A shop whose sync has run several times, not always with success. Queue, history and records are real."""

from pathlib import Path

from support.projects.shop_project import ShopProject, write_contacts

from ondatra_dagster.app.run_events import SyncResult
from ondatra_dagster.sync.run_context import RunOptions
from ondatra_dagster.testing.demo_api.demo_server import DemoApi

HOSTILE_EMAIL = "<script>alert('email')</script>"
HOSTILE_KEY = '<b id="key">'
DAGSTER_RUN_ID = "0b9f3a52-1c7e-4a41-9d0c-7f5f0c1d2e3f"


def run_shop(shop: ShopProject, *, is_dry: bool = False, **occasion: str) -> SyncResult:
    """Run the models and the sync as `ondatra run` does, without Dagster."""
    workspace = shop.workspace
    sync = workspace.sync("sync.crm")
    with shop.open_engine(workspace, is_dry=is_dry) as engine:
        for model in workspace.project.models.values():
            step = engine.plan_model(model)
            if step.will_run:
                engine.write(engine.compute(step, run_id="r"))
        return engine.push(sync, RunOptions(**{"trigger": "ondatra run", **occasion}))


def create_shop_with_history(root: Path, api: DemoApi) -> ShopProject:
    """Return a shop after three runs and a dry run.

    First run: a1 and a key with HTML arrive, b2 is refused with HTML in the reason, one row is invalid. Second run:
    the API is down for c3, which waits. Third run, by Dagster: d4 arrives.
    """
    shop = ShopProject.create(root, url=api.url)
    contacts = {"a1": "ada@example.com", "b2": HOSTILE_EMAIL, HOSTILE_KEY: "html@example.com"}
    write_contacts(shop.root, **contacts, nobody="nobody@example.com")
    run_shop(shop)
    contacts["c3"] = "cy@example.com"
    write_contacts(shop.root, **contacts)
    api.fail(path="/crm/contacts", status=503, message="<i>down</i>")
    run_shop(shop)
    contacts["d4"] = "di@example.com"
    write_contacts(shop.root, **contacts)
    run_shop(shop, trigger="push__sync__crm__sensor", dagster_run_id=DAGSTER_RUN_ID)
    write_contacts(shop.root, **contacts, e5="eve@example.com")
    run_shop(shop, is_dry=True)
    return shop
