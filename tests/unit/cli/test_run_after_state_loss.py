"""The `ondatra run` command for a sync with lost state: what it sends, and what it refuses to send."""

import shutil

from support.processes.cli_terminal import CommandLine
from support.projects.shop_project import ShopProject
from support.spark.plain_sync_log_table import PlainSyncLogTable

from ondatra_dagster.testing.demo_api.demo_server import DemoApi


def lose_state(shop: ShopProject) -> None:
    """Remove the queues, the history and the whole tracking store. The tables are in another folder."""
    for path in ("queue", "tracking"):
        shutil.rmtree(shop.root / ".ondatra" / path)
    for path in (shop.root / ".ondatra").glob("history.sqlite*"):
        path.unlink()


def test_the_sync_log_shows_that_rows_were_delivered(shop: ShopProject, api: DemoApi, ondatra: CommandLine) -> None:
    """Nothing is sent until the user decides how to continue. `--allow-new-state` sends all rows as inserts."""
    ondatra.run_project(shop)
    shop.workspace.sync_log.append(PlainSyncLogTable(shop.workspace.settings))
    api.clear()
    lose_state(shop)
    result = ondatra.run_project(shop)
    assert (1, ()) == (result.exit_code, api.calls)
    assert "`ondatra resync sync.crm`" in result.stderr
    assert "`ondatra run --allow-new-state sync.crm`" in result.stderr
    result = ondatra("run", "--allow-new-state", "--dry-run", "sync.crm", shop=shop)
    assert (0, ()) == (result.exit_code, api.calls)
    assert "would create 2 rows" in result.stderr
    result = ondatra("run", "--allow-new-state", "sync.crm", shop=shop)
    assert (0, 2) == (result.exit_code, len(api.calls))
    assert "sync.crm runs for the first time: 2 inserts to send to http://127.0.0.1:" in result.stderr


def test_a_sync_without_sync_log_runs_as_for_the_first_time(
    shop: ShopProject, api: DemoApi, ondatra: CommandLine
) -> None:
    """Nothing shows an earlier delivery."""
    ondatra.run_project(shop)
    api.clear()
    lose_state(shop)
    result = ondatra.run_project(shop)
    assert (0, 2) == (result.exit_code, len(api.calls))


def test_a_run_reports_a_lost_queue(shop: ShopProject, api: DemoApi, ondatra: CommandLine) -> None:
    """It sends nothing again."""
    ondatra.run_project(shop)
    api.clear()
    shutil.rmtree(shop.root / ".ondatra" / "queue")
    result = ondatra.run_project(shop)
    assert (0, ()) == (result.exit_code, api.calls)
    assert "sync.crm: the queue is missing; it continues from the queue snapshot in the tracking store" in result.stderr
