"""The dry runs of Dagster: they compute as a run does, but send nothing, leave nothing and materialize nothing."""

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
    """Return the bytes of all files that a dry run may not touch."""
    state = shop.root / ".ondatra"
    return {
        name: content
        for folder in ("warehouse", "queue", "tracking")
        for name, content in read_folder(state / folder).items()
    }


def observed(result: dg.ExecuteInProcessResult, key: dg.AssetKey) -> dict[str, object]:
    """Return the metadata of the one observation of an asset."""
    (observation,) = [
        event.asset_observation_data.asset_observation
        for event in result.all_events
        if event.event_type is dg.DagsterEventType.ASSET_OBSERVATION
        and event.asset_observation_data.asset_observation.asset_key == key
    ]
    return {name: value.value for name, value in observation.metadata.items()}


def test_a_dry_run_sends_nothing_and_leaves_no_files(materialize: Materialize, shop: ShopProject, api: DemoApi) -> None:
    """Before the first run there is no table, and after a dry run there is none either."""
    assert materialize(shop, tags=DRY).success
    assert ["raw.contacts", "sync.crm"] == shop.tables.computed_models
    assert () == api.calls
    assert {} == kept(shop)
    assert not (shop.root / ".ondatra" / "dry").exists()


def test_a_dry_run_reports_changes_as_rows_of_the_destination(
    materialize: Materialize, shop: ShopProject, api: DemoApi
) -> None:
    """The real run afterwards makes exactly these changes."""
    materialize(shop)
    before, calls = kept(shop), api.calls
    write_contacts(shop.root, a1="ada@example.com", b2="bob@example.org", c3="cyn@example.com")
    metadata = observed(materialize(shop, tags=DRY), PUSH)
    assert (before, calls) == (kept(shop), api.calls)
    numbers = ("source rows", "changed", "creates", "updates", "deletes")
    assert [3, 2, 1, 1, 0] == [metadata[name] for name in numbers]
    assert (2, 3) == (metadata["destination before"], metadata["destination after"])
    materialize(shop)
    assert ["PATCH", "POST"] == sorted(call.method for call in api.calls[len(calls) :])


def test_dagster_records_no_materialization_and_no_check(
    materialize: Materialize, shop: ShopProject, dagster_instance: dg.DagsterInstance
) -> None:
    """Conditions, sensors and pages use these events. For them the dry run must not exist."""
    materialize(shop)
    keys = (dg.AssetKey(["raw", "contacts"]), CRM, PUSH)
    events = [dagster_instance.get_latest_materialization_event(key) for key in keys]
    write_contacts(shop.root, a1="ada@example.org")
    result = materialize(shop, tags=DRY)
    assert result.success
    assert events == [dagster_instance.get_latest_materialization_event(key) for key in keys]
    assert [] == result.get_asset_check_evaluations()
    assert observed(result, CRM)["dry run"] is True
    assert 1 == observed(result, CRM)["updated"]
    assert 1 == observed(result, CRM)["version"]


def test_a_dry_run_is_only_in_the_history(materialize: Materialize, shop: ShopProject) -> None:
    """A user who asks for the newest run of a sync means one that did something."""
    materialize(shop, tags=DRY)
    history = shop.workspace.history
    assert () == history.list_runs("sync.crm")
    (run,) = history.list_runs("sync.crm", with_dry=True)
    assert (RunResult.DRY, 2) == (run.result, run.counts["dry"]["creates"])
    assert materialize(shop).success  # otherwise the sync would seem to have run and lost its queue


def test_a_dry_run_tag_with_the_value_false_starts_a_real_run(
    materialize: Materialize, shop: ShopProject, api: DemoApi
) -> None:
    """The values of Dagster's tags are strings."""
    assert materialize(shop, tags={"ondatra/dry_run": "false"}).success
    assert {"a1", "b2"} == set(api.contacts())


def test_the_files_of_a_killed_dry_run_are_deleted(materialize: Materialize, shop: ShopProject) -> None:
    """They contain rows about customers."""
    folder = shop.root / ".ondatra" / "dry" / "0123456789abcdef"
    (folder / "tables").mkdir(parents=True)
    assert materialize(shop, tags=DRY).success
    assert not folder.exists()


def test_a_dry_run_refuses_what_a_run_would_refuse(materialize: Materialize, shop: ShopProject, api: DemoApi) -> None:
    """This is the main use of a dry run: the user learns of the problem before it is too late."""
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
