"""Dry runs from Dagster: everything as in a run, nothing sent, nothing left, nothing recorded as made."""

from collections.abc import Callable

import dagster as dg
from support.files.folder_contents import read_folder
from support.projects.shop_project import ShopProject, write_contacts, write_shop_files

from ondatra_dagster.sync.run_history_store import RunResult
from ondatra_dagster.testing.demo_api.demo_server import DemoApi

PUSH = dg.AssetKey(["push", "sync", "crm"])
CRM = dg.AssetKey(["sync", "crm"])
DRY = {"ondatra/dry_run": "true"}
Materialize = Callable[..., dg.ExecuteInProcessResult]


def kept(shop: ShopProject) -> dict[str, bytes]:
    """All that a dry run may not touch, byte for byte."""
    state = shop.root / ".ondatra"
    return {
        name: content
        for folder in ("warehouse", "queue", "tracking")
        for name, content in read_folder(state / folder).items()
    }


def observed(result: dg.ExecuteInProcessResult, key: dg.AssetKey) -> dict[str, object]:
    """The metadata of the one observation of an asset."""
    (seen,) = [
        event.asset_observation_data.asset_observation
        for event in result.all_events
        if event.event_type is dg.DagsterEventType.ASSET_OBSERVATION
        and event.asset_observation_data.asset_observation.asset_key == key
    ]
    return {name: value.value for name, value in seen.metadata.items()}


def test_nothing_is_sent_and_nothing_stays(materialize: Materialize, shop: ShopProject, api: DemoApi) -> None:
    """Before the first run there is no table at all, and after a dry one there is none either."""
    assert materialize(shop, tags=DRY).success
    assert ["raw.contacts", "sync.crm"] == shop.tables.computed_models
    assert () == api.calls
    assert {} == kept(shop)
    assert not (shop.root / ".ondatra" / "dry").exists()


def test_a_change_is_told_in_rows_of_the_destination(materialize: Materialize, shop: ShopProject, api: DemoApi) -> None:
    """And what a real run does afterwards is just that."""
    materialize(shop)
    before, calls = kept(shop), api.calls
    write_contacts(shop.root, a1="ada@example.com", b2="bob@example.org", c3="cyn@example.com")
    told = observed(materialize(shop, tags=DRY), PUSH)
    assert (before, calls) == (kept(shop), api.calls)
    numbers = ("source rows", "changed", "creates", "updates", "deletes")
    assert [3, 2, 1, 1, 0] == [told[name] for name in numbers]
    assert (2, 3) == (told["destination before"], told["destination after"])
    materialize(shop)
    assert ["PATCH", "POST"] == sorted(call.method for call in api.calls[len(calls) :])


def test_dagster_records_no_materialization_and_no_check(
    materialize: Materialize, shop: ShopProject, dagster_instance: dg.DagsterInstance
) -> None:
    """Conditions, sensors and pages go by these: to them a dry run hasn't been."""
    materialize(shop)
    keys = (dg.AssetKey(["raw", "contacts"]), CRM, PUSH)
    seen = [dagster_instance.get_latest_materialization_event(key) for key in keys]
    write_contacts(shop.root, a1="ada@example.org")
    result = materialize(shop, tags=DRY)
    assert result.success
    assert seen == [dagster_instance.get_latest_materialization_event(key) for key in keys]
    assert [] == result.get_asset_check_evaluations()
    assert observed(result, CRM)["dry run"] is True
    assert 1 == observed(result, CRM)["updated"]
    assert 1 == observed(result, CRM)["version"]


def test_it_is_in_the_history_and_nowhere_else(materialize: Materialize, shop: ShopProject) -> None:
    """Who asks for the newest run of a sync means one that did something."""
    materialize(shop, tags=DRY)
    history = shop.workspace.history
    assert () == history.list_runs("sync.crm")
    (run,) = history.list_runs("sync.crm", with_dry=True)
    assert (RunResult.DRY, 2) == (run.result, run.counts["dry"]["creates"])
    assert materialize(shop).success  # else: a sync that has run, and lost its queue


def test_a_tag_that_says_no_is_no_dry_run(materialize: Materialize, shop: ShopProject, api: DemoApi) -> None:
    """Tags are texts."""
    assert materialize(shop, tags={"ondatra/dry_run": "false"}).success
    assert {"a1", "b2"} == set(api.contacts())


def test_what_a_killed_dry_run_left_goes(materialize: Materialize, shop: ShopProject) -> None:
    """It holds customers' rows."""
    left = shop.root / ".ondatra" / "dry" / "0123456789abcdef"
    (left / "tables").mkdir(parents=True)
    assert materialize(shop, tags=DRY).success
    assert not left.exists()


def test_what_a_run_would_refuse_is_refused(materialize: Materialize, shop: ShopProject, api: DemoApi) -> None:
    """The one thing that a dry run is best for: it tells before it is too late."""
    materialize(shop)
    before, calls = kept(shop), api.calls
    write_shop_files(shop.root, url="https://elsewhere.example.com")
    result = materialize(shop, tags=DRY)
    assert not result.success
    (error,) = shop.progress.sync_results[-1].errors
    assert ("undelivered", True) == (error.name, "ondatra resync" in error.description)
    assert (before, calls) == (kept(shop), api.calls)
    (run,) = shop.workspace.history.list_runs("sync.crm", limit=1, with_dry=True)
    assert "elsewhere.example.com" in run.first_errors[0]
