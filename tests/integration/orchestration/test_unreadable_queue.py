"""A queue that can't be read: its own sync fails, and no other sync is hidden or delayed."""

import dataclasses
from collections.abc import Callable, Iterator
from pathlib import Path

import dagster as dg
import orjson
import pytest
from support.apis.webhook_receiver import WebhookReceiver, running_webhook_receiver
from support.projects.shop_project import ShopProject, write_contacts

from ondatra_dagster.app.alert_service import AlertService
from ondatra_dagster.app.project_metrics import project_metrics_text
from ondatra_dagster.cli.commands.maintain import run_maintenance
from ondatra_dagster.cli.commands.run import RunCommandOptions, execute_plan, plan_run
from ondatra_dagster.cli.commands.status import command as status
from ondatra_dagster.orchestration.sensors import due_sensor
from ondatra_dagster.testing.demo_api.demo_server import DemoApi

TAKES_ALL = """
def push(rows):
    return {str(row["__ondatra_rowid"]) + ":" + row["__ondatra_change_type"]: "ok" for row in rows}
"""
MODEL = "-- @kind: merge\n-- @unique_key: id\n-- @sink: takes_all\nSELECT id, email FROM raw.contacts\n"


@pytest.fixture
def shop(tmp_path: Path, api: DemoApi, dagster_home: Path, monkeypatch: pytest.MonkeyPatch) -> ShopProject:
    """Return a shop of two syncs that have run, with new rows for both and a damaged queue of the first."""
    files = {"models/sync/ads.sql": MODEL, "lib/takes_all.star": TAKES_ALL}
    shop = ShopProject.create(tmp_path / "my shop", url=api.url, files=files)
    monkeypatch.setenv("DAGSTER_HOME", str(dagster_home))
    monkeypatch.chdir(shop.root)
    write_contacts(shop.root, a1="ada@example.com")
    assert 0 == go(shop)
    damage(shop)
    write_contacts(shop.root, a1="ann@example.com")
    return shop


def damage(shop: ShopProject) -> None:
    queue = shop.workspace.syncs["sync.ads"].queue_file
    queue.write_bytes(b"\xff" * queue.stat().st_size)


def go(shop: ShopProject, *, is_dry: bool = False) -> int:
    workspace = shop.workspace
    plan = plan_run(workspace, is_dry=is_dry)
    return execute_plan(workspace, plan, RunCommandOptions(is_dry=is_dry), open_service=shop.open_engine)


def test_status_shows_all_other_syncs_and_the_remedy(shop: ShopProject, capfd: pytest.CaptureFixture[str]) -> None:
    """The exit code is 1, and the error is where people and programs look for this sync."""
    capfd.readouterr()
    assert 1 == status.main(["--json"], standalone_mode=False)
    lines = {
        str(line.get("sync", line["model"])): line for line in map(orjson.loads, capfd.readouterr().out.splitlines())
    }
    assert {"raw.contacts", "sync.ads", "sync.crm"} == set(lines)
    ads, crm = lines["sync.ads"], lines["sync.crm"]
    assert "sync.ads.sqlite is damaged (file is not a database)" in ads["error"]
    assert "move it away: the next run rebuilds it" in ads["error"]
    assert [None, None, None] == [ads[name] for name in ("waiting", "open_jobs", "dead")]
    assert (None, 0, "succeeded") == (crm["error"], crm["waiting"], crm["result"])
    assert 1 == status.main([], standalone_mode=False)
    shown = capfd.readouterr().out
    (line,) = [line for line in shown.splitlines() if "is damaged" in line]
    assert line.startswith("sync.ads")


def test_a_run_fails_only_that_sync(shop: ShopProject, api: DemoApi, capfd: pytest.CaptureFixture[str]) -> None:
    """Models and the other syncs run."""
    capfd.readouterr()
    assert 1 == go(shop)
    stderr = capfd.readouterr().err
    assert "✗ sync.ads" in stderr
    assert "sync.ads.sqlite is damaged (file is not a database); move it away" in stderr
    assert "→ sync.crm      delivered 1 update" in stderr
    assert ["ann@example.com"] == [row["email"] for row in api.contacts().values()]


def test_the_check_of_the_unreadable_sync_fails(
    shop: ShopProject, materialize: Callable[..., dg.ExecuteInProcessResult]
) -> None:
    """Otherwise the passed check of an earlier run would still be shown."""
    checks = {
        (check.asset_key.path[-1], check.check_name): check.passed
        for event in materialize(shop).all_events
        if event.event_type is dg.DagsterEventType.ASSET_CHECK_EVALUATION
        for check in [event.asset_check_evaluation_data]
    }
    assert (False, True) == (checks["ads", "undelivered"], checks["crm", "undelivered"])


def test_a_dry_run_forecasts_the_other_syncs(shop: ShopProject, capfd: pytest.CaptureFixture[str]) -> None:
    """It works on copies of the queues, which have the same damage."""
    capfd.readouterr()
    assert 1 == go(shop, is_dry=True)
    output = capfd.readouterr()
    assert "✗ sync.ads" in output.err
    assert "sync.crm" in output.out


def test_with_sinks_off_nothing_fails(shop: ShopProject) -> None:
    """No part of a sync is read then."""
    (shop.root / "pyproject.toml").write_text('[tool.ondatra]\nsinks = "off"\n')
    assert [0, 0] == [go(shop), go(shop)]


def test_metrics_leave_out_an_unknown_queue_depth(shop: ShopProject) -> None:
    """A depth of 0 would say that all is well."""
    metrics = project_metrics_text(shop.workspace)
    assert 'ondatra_sync_queue_depth{sync="sync.crm"} 0' in metrics
    assert 'ondatra_sync_queue_depth{sync="sync.ads"}' not in metrics
    assert 'ondatra_sync_runs_total{sync="sync.ads"} 1' in metrics


def test_the_sensor_does_not_request_the_failed_sync_at_each_tick(
    shop: ShopProject, dagster_instance: dg.DagsterInstance
) -> None:
    """It requests the sync less and less often, as after any failed run."""
    go(shop)
    at = shop.workspace.clock()
    sensor, cursor, keys = due_sensor(dataclasses.replace(shop.workspace, clock=lambda: at)), None, []
    for _ in range(2):
        with dg.build_sensor_context(instance=dagster_instance, cursor=cursor) as context:
            answer = sensor(context)
        assert isinstance(answer, dg.SensorResult)
        cursor, keys = answer.cursor, [*keys, *(answer.run_requests or ())]
    assert [[dg.AssetKey(["push", "sync", "ads"])]] == [request.asset_selection for request in keys]


@pytest.fixture
def receiver() -> Iterator[WebhookReceiver]:
    with running_webhook_receiver() as received:
        yield received


def test_the_failure_fires_and_the_other_syncs_are_checked(shop: ShopProject, receiver: WebhookReceiver) -> None:
    """A problem with one sync is no reason to send no alerts."""
    (shop.root / "pyproject.toml").write_text(f'[tool.ondatra.alerts]\nwebhook = "{receiver.url}"\n')
    assert 1 == go(shop)
    assert [("sync.ads", "failed", "fired")] == receiver.alerts()
    assert 1 == AlertService(shop.workspace).check_and_send().counts["alerting"]


def test_maintenance_continues_with_the_other_syncs(shop: ShopProject, capfd: pytest.CaptureFixture[str]) -> None:
    """It reads their feeds, counts their dead letters and compacts their files."""
    workspace = shop.workspace
    plan = workspace.plan(None)
    models = dataclasses.replace(plan, syncs=())
    assert 0 == execute_plan(workspace, models, open_service=shop.open_engine)
    capfd.readouterr()
    assert 1 == run_maintenance(shop.workspace, as_json=True, open_service=shop.open_engine)
    results = {line["task"]: line for line in map(orjson.loads, capfd.readouterr().out.splitlines())}
    bad = sorted(name for name, line in results.items() if not line["ok"])
    assert ["dead_letters", "feeds", "state_files", "tables"] == bad
    # the watermark of its sync is unknown, so all versions stay
    assert results["tables"]["did"].startswith("sync.ads: ")
    assert "sync.ads.sqlite" in results["feeds"]["did"]
    assert 1 == results["feeds"]["syncs"]
    assert "unknown for sync.ads" in results["dead_letters"]["did"]
    assert results["state_files"]["files"] > 1
