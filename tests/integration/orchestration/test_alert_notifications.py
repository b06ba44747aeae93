"""Alerts to a real webhook on loopback: one message when something begins to fail, and one when it is over."""

import dataclasses
from collections.abc import Callable, Iterator
from pathlib import Path

import dagster as dg
import orjson
import pytest
from support.apis.webhook_receiver import WEBHOOK_SECRET, WebhookReceiver, running_webhook_receiver, set_webhook
from support.processes.killed_dagster_push import run_killed_push
from support.projects.shop_project import ShopProject, write_contacts

from ondatra_dagster.app.alert_service import AlertService
from ondatra_dagster.cli.commands.maintain import run_maintenance
from ondatra_dagster.cli.commands.run import execute_plan
from ondatra_dagster.operations.alert_store import AlertStore, SubjectType
from ondatra_dagster.orchestration.definitions import definitions_of
from ondatra_dagster.orchestration.sensors import alert_sensor
from ondatra_dagster.storage.file_lock import FileLock
from ondatra_dagster.sync.run_history_store import RunResult
from ondatra_dagster.sync.send_guards import pause_sync, resume_sync
from ondatra_dagster.testing.demo_api.demo_server import DemoApi

HOUR = 3600


@pytest.fixture
def receiver() -> Iterator[WebhookReceiver]:
    with running_webhook_receiver() as received:
        yield received


@pytest.fixture
def shop(
    shop: ShopProject, receiver: WebhookReceiver, dagster_home: Path, monkeypatch: pytest.MonkeyPatch
) -> ShopProject:
    """Return the shop with a webhook whose URL contains a secret."""
    monkeypatch.setenv("DAGSTER_HOME", str(dagster_home))
    settings(shop, receiver.url)
    return shop


def settings(shop: ShopProject, url: str, **more: str) -> None:
    set_webhook(shop.root, url, **more)


def go(shop: ShopProject) -> int:
    """Return the exit code of `ondatra run`."""
    workspace = shop.workspace
    return execute_plan(workspace, workspace.plan(None), open_service=shop.open_engine)


def change(shop: ShopProject, name: str) -> None:
    write_contacts(shop.root, a1=f"{name}@example.com", b2="bob@example.com")


def book(shop: ShopProject) -> AlertStore:
    return AlertStore(shop.workspace.settings.state / "alerts.sqlite")


def test_a_failing_sync_fires_once_and_recovers_once(
    shop: ShopProject, api: DemoApi, receiver: WebhookReceiver
) -> None:
    """The number of failures in between doesn't matter, nor does the process that sees them."""
    assert 0 == go(shop)
    assert [] == receiver.received_bodies
    for number in range(3):
        api.fail(status=503, times=100, path="/crm/*")
        change(shop, f"ada{number}")
        assert 1 == go(shop)
    api.recover()
    change(shop, "ann")
    assert 0 == go(shop)
    change(shop, "amy")
    assert 0 == go(shop)
    assert [("sync.crm", "failed", "fired"), ("sync.crm", "failed", "recovered")] == receiver.alerts()
    fired, recovered = receiver.received_bodies
    assert fired["id"] != recovered["id"]
    assert "sync.crm: the API is down" in fired["sentence"]
    assert "sync.crm is no longer failing" == recovered["sentence"]
    assert [body["id"] for body in receiver.received_bodies] == [
        headers["idempotency-key"] for headers in receiver.headers
    ]


def test_a_run_with_nothing_due_does_not_end_a_failure(
    shop: ShopProject, api: DemoApi, receiver: WebhookReceiver, materialize: Callable[..., dg.ExecuteInProcessResult]
) -> None:
    """A schedule runs more often than rows are retried, so each run in between would report a recovery."""
    go(shop)
    for number in range(2):
        api.fail(status=503, times=100, path="/crm/*")
        change(shop, f"ada{number}")
        assert 1 == go(shop)
        assert materialize(shop).success  # the row is not due yet
    assert [("sync.crm", "failed", "fired")] == receiver.alerts()
    api.recover()
    change(shop, "ann")
    assert 0 == go(shop)
    assert [("sync.crm", "failed", "recovered")] == receiver.alerts()[1:]


def test_an_interrupted_run_neither_fires_nor_ends_an_alert(
    shop: ShopProject, api: DemoApi, receiver: WebhookReceiver, materialize: Callable[..., dg.ExecuteInProcessResult]
) -> None:
    """The user who ended the run knows about it. Only a completed run shows whether the sync works again."""
    go(shop)
    api.fail(status=503, times=100, path="/crm/*")
    change(shop, "ada1")
    assert 1 == go(shop)
    history = shop.workspace.history
    failed = history.list_runs("sync.crm", limit=1)[0]
    history.finish_run(dataclasses.replace(failed, run_id=f"{failed.run_id}z", result=RunResult.INTERRUPTED))
    assert materialize(shop).success  # the row is not due yet
    AlertService(shop.workspace).check_and_send()
    assert [("sync.crm", "failed", "fired")] == receiver.alerts()


def test_a_webhook_that_was_down_gets_its_alerts_at_the_next_check(
    shop: ShopProject, api: DemoApi, receiver: WebhookReceiver, captured_output: Callable[[], str]
) -> None:
    """The alerts arrive in order, with ids by which the receiver recognizes duplicates."""
    go(shop)
    receiver.status = 500
    api.fail(status=503, times=100, path="/crm/*")
    change(shop, "zoe")
    assert 1 == go(shop)
    assert 1 == len(book(shop).read_unsent())
    api.recover()
    change(shop, "ann")
    assert 0 == go(shop)
    assert [] == receiver.received_bodies
    receiver.status = 200
    result = AlertService(shop.workspace).check_and_send()
    assert (2, 0, 0) == (result.counts["sent"], result.counts["waiting"], result.counts["alerting"])
    assert ["fired", "recovered"] == [state for _, _, state in receiver.alerts()]
    assert 0 == AlertService(shop.workspace).check_and_send().counts["sent"]
    assert WEBHOOK_SECRET not in captured_output()
    content = (shop.workspace.settings.state / "alerts.sqlite").read_bytes()
    assert WEBHOOK_SECRET.encode() not in content
    assert {f"/hooks/{WEBHOOK_SECRET}"} == set(receiver.paths)


def test_a_killed_run_fires_at_the_next_check(shop: ShopProject, api: DemoApi, receiver: WebhookReceiver) -> None:
    """The killed process couldn't send the alert. The alert recovers when a run has succeeded."""
    run_killed_push(shop.root, api.url)
    settings(shop, receiver.url)
    sent_counts = [AlertService(shop.workspace).check_and_send().counts["sent"] for _ in range(2)]
    assert ([1, 0], [("sync.crm", "failed", "fired")]) == (sent_counts, receiver.alerts())
    assert "sync.crm: its process was killed" in receiver.received_bodies[0]["sentence"]
    for _ in range(2):
        assert 0 == go(shop)
        AlertService(shop.workspace).check_and_send()
    assert [("sync.crm", "failed", "recovered")] == receiver.alerts()[1:]


def test_a_run_in_progress_is_not_reported_as_a_crash(
    shop: ShopProject, api: DemoApi, receiver: WebhookReceiver
) -> None:
    """The sensor also checks while runs are in progress."""
    run_killed_push(shop.root, api.url)
    settings(shop, receiver.url)
    with FileLock(shop.workspace.sync("sync.crm").lock_file, purpose="delivers"):
        AlertService(shop.workspace).check_and_send()
    assert [] == receiver.alerts()


def test_alerts_contain_neither_secrets_nor_rows(shop: ShopProject, api: DemoApi, receiver: WebhookReceiver) -> None:
    """The receiver may be a chat room."""
    settings(shop, receiver.url, token_env="BEARER")
    api.fail(status=422, times=100, path="/crm/*")
    assert 1 == go(shop)
    bodies = orjson.dumps(receiver.received_bodies).decode()
    assert WEBHOOK_SECRET not in bodies + repr(shop.workspace.settings)
    assert "ada@example.com" not in bodies
    assert "Bearer bearer-0001" == receiver.headers[0]["authorization"]
    assert all(body["link"].startswith("http://127.0.0.1:3000/runs/") for body in receiver.received_bodies)
    assert {("sync.crm", "failed", "fired"), ("sync.crm", "rejects", "fired")} == set(receiver.alerts())
    (rejects,) = [body for body in receiver.received_bodies if body["rule"] == "rejects"]
    assert {"rejected": 2, "attempted": 2, "limit": 0.1} == rejects["numbers"]


def test_a_model_that_fails_fires_and_recovers(shop: ShopProject, receiver: WebhookReceiver) -> None:
    """Nothing below the model runs, so no other alert reports the failure."""
    shop.tables.failing_models.add("raw.contacts")
    for _ in range(2):
        assert 1 == go(shop)
    shop.tables.failing_models.clear()
    assert 0 == go(shop)
    assert [("raw.contacts", "failed", "fired"), ("raw.contacts", "failed", "recovered")] == receiver.alerts()
    assert "can't be computed; look at it" in receiver.received_bodies[0]["sentence"]


def test_values_that_spark_quotes_are_left_out_of_alerts(shop: ShopProject, receiver: WebhookReceiver) -> None:
    """Spark's message about a failed cast contains the value."""
    alerts = AlertService(shop.workspace)
    alerts.on_failure(SubjectType.MODEL, "raw.contacts", "contacts.sql:3: the value 'ada@example.com' can't be cast")
    alerts.send()
    (body,) = receiver.received_bodies
    assert "raw.contacts: contacts.sql:3: the value '…' can't be cast" == body["sentence"]


def test_a_sync_without_success_for_too_long_fires(
    shop: ShopProject, api: DemoApi, receiver: WebhookReceiver, dagster_instance: dg.DagsterInstance
) -> None:
    """The sensor sends the alert and starts no run. Days with nothing to send don't count."""
    assert 0 == go(shop)
    workspace = shop.workspace
    later = workspace.clock() + 30 * HOUR
    at = dataclasses.replace(workspace, clock=lambda: later)
    assert 0 == AlertService(at).check_and_send().counts["alerting"]
    api.fail(status=503, times=100, path="/crm/*")
    change(shop, "zoe")
    go(shop)
    receiver.received_bodies.clear()
    with dg.build_sensor_context(instance=dagster_instance) as context:
        for _ in range(2):
            (skipped,) = [alert_sensor(at)(context)]
            assert isinstance(skipped, dg.SkipReason)
    assert [("sync.crm", "no_success", "fired")] == receiver.alerts()
    assert 30.0 == receiver.received_bodies[0]["numbers"]["hours"]
    assert ["failed", "no_success"] == [alert.rule for alert in book(shop).read_active_alerts()]
    api.recover()
    change(shop, "ann")
    assert 0 == go(shop)
    assert {("sync.crm", "no_success", "recovered"), ("sync.crm", "failed", "recovered")} == set(receiver.alerts()[1:])


def test_a_paused_sync_does_not_fire_for_a_lack_of_success(shop: ShopProject, receiver: WebhookReceiver) -> None:
    """The user who paused the sync knows that it sends nothing."""
    go(shop)
    change(shop, "zoe")
    workspace = shop.workspace
    pause_sync(workspace.syncs["sync.crm"])
    go(shop)
    later = workspace.clock() + 300 * HOUR
    assert 0 == AlertService(dataclasses.replace(workspace, clock=lambda: later)).check_and_send().counts["alerting"]


def test_a_run_of_an_unusual_size_fires(shop: ShopProject, receiver: WebhookReceiver) -> None:
    """An upstream that lost most of its rows doesn't fail a run by itself."""
    settings(shop, receiver.url, deviation="50%")
    write_contacts(shop.root, **{f"c{n}": "x@example.com" for n in range(10)})
    go(shop)
    for number in range(4):
        write_contacts(shop.root, **{f"c{n}": f"x{number}@example.com" for n in range(10)})
        assert 0 == go(shop)
    assert [] == receiver.received_bodies
    write_contacts(shop.root, **{f"c{n}": f"{'x3' if n else 'new'}@example.com" for n in range(10)})
    assert 0 == go(shop)
    write_contacts(shop.root, **{f"c{n}": "last@example.com" for n in range(10)})
    assert 0 == go(shop)
    assert [("sync.crm", "deviation", "fired"), ("sync.crm", "deviation", "recovered")] == receiver.alerts()
    numbers = receiver.received_bodies[0]["numbers"]
    assert (1, 10, 4) == (numbers["units"], numbers["mean"], numbers["runs"])
    sentence = "sync.crm: 1 row attempted, 10 on average in the 4 runs before: they differ by more than 50%"
    assert sentence == receiver.received_bodies[0]["sentence"]  # the sentence doesn't say whether the row arrived


def test_runs_that_were_paused_or_refused_have_no_unusual_size(
    shop: ShopProject, api: DemoApi, receiver: WebhookReceiver
) -> None:
    """A pause, a guard or another address can stop rows. The upstream has lost none of them."""
    settings(shop, receiver.url, deviation="50%")
    for number in range(5):
        write_contacts(shop.root, **{f"c{n}": f"x{number}@example.com" for n in range(10)})
        assert 0 == go(shop)
    pause_sync(shop.workspace.syncs["sync.crm"])
    write_contacts(shop.root, **{f"c{n}": "paused@example.com" for n in range(10)})
    assert 0 == go(shop)
    resume_sync(shop.workspace.syncs["sync.crm"])
    assert 0 == go(shop)
    assert [] == receiver.alerts()
    library = shop.root / "lib" / "crm_push.star"
    ours = library.read_text()
    library.write_text(ours.replace(api.url, "http://127.0.0.1:9"))
    write_contacts(shop.root, **{f"c{n}": "refused@example.com" for n in range(10)})
    assert {1} == {go(shop) for _ in range(8)}
    library.write_text(ours)
    assert 0 == go(shop)
    assert {"failed"} == {rule for _, rule, _ in receiver.alerts()}


@pytest.mark.parametrize("gone", ["the sink", "the rule"])
def test_alerts_of_a_removed_sink_or_rule_recover(
    shop: ShopProject, api: DemoApi, receiver: WebhookReceiver, gone: str
) -> None:
    """A sync without its sink never runs again, and a rule that is off is never checked.

    No run would end their alerts.
    """
    settings(shop, receiver.url, no_success_hours="1")
    api.fail(status=503, times=100, path="/crm/*")
    assert 1 == go(shop)
    workspace = shop.workspace
    later = workspace.clock() + 30 * HOUR
    assert 2 == AlertService(dataclasses.replace(workspace, clock=lambda: later)).check_and_send().counts["alerting"]
    if gone == "the sink":
        model = shop.root / "models" / "sync" / "crm.sql"
        model.write_text(model.read_text().replace("-- @sink: crm_push\n", ""))
    else:
        settings(shop, receiver.url, no_success_hours="off")
    over = {"failed", "no_success"} if gone == "the sink" else {"no_success"}
    active_count = 2 - len(over)
    for _ in range(2):
        assert 0 == run_maintenance(shop.workspace, as_json=False, open_service=shop.open_engine)
    assert active_count == len(book(shop).read_active_alerts())
    assert over == {rule for _, rule, state in receiver.alerts() if state == "recovered"}


def test_a_sensor_with_an_older_project_does_not_end_alerts_of_newer_syncs(
    shop: ShopProject, api: DemoApi, receiver: WebhookReceiver
) -> None:
    """`dagster dev` keeps the models that it started with, while a shell runs newer ones."""
    model = shop.root / "models" / "sync" / "crm.sql"
    ours = model.read_text()
    model.write_text(ours.replace("-- @sink: crm_push\n", ""))
    before = shop.workspace
    model.write_text(ours)
    api.fail(status=503, times=100, path="/crm/*")
    assert 1 == go(shop)
    AlertService(before).check_and_send()
    assert [("sync.crm", "failed", "fired")] == receiver.alerts()


def test_without_a_webhook_no_alert_is_shown(shop: ShopProject, api: DemoApi) -> None:
    """Without a webhook no process checks whether the alert still holds."""
    api.fail(status=503, times=100, path="/crm/*")
    assert 1 == go(shop)
    assert ["failed"] == [alert.rule for alert in AlertService(shop.workspace).read_active_alerts()]
    (shop.root / "pyproject.toml").write_text("[tool.ondatra]\n")
    assert [] == AlertService(shop.workspace).read_active_alerts()


def test_without_a_webhook_no_alert_is_stored(
    shop: ShopProject, api: DemoApi, capfd: pytest.CaptureFixture[str]
) -> None:
    """There is no sensor for alerts either."""
    (shop.root / "pyproject.toml").write_text("[tool.ondatra]\n")
    api.fail(status=503, times=100, path="/crm/*")
    assert 1 == go(shop)
    assert not (shop.workspace.settings.state / "alerts.sqlite").exists()
    assert "ondatra_alerts" not in {sensor.name for sensor in definitions_of(shop.workspace).sensors or ()}
    assert 0 == run_maintenance(shop.workspace, as_json=False, open_service=shop.open_engine)
    assert "alerts: none are sent: alerts.webhook isn't set" in capfd.readouterr().err


def test_a_missing_webhook_variable_is_a_warning_at_load(
    shop: ShopProject, receiver: WebhookReceiver, tmp_path: Path
) -> None:
    """The run continues, and its alert isn't sent."""
    (shop.root / ".env").write_text("DEMO_API_KEY=shop-demo-key-0001\n")
    (warning,) = shop.workspace.warnings
    assert "pyproject.toml:2: the variable HOOK_TOKEN is not set; set it in .env or the environment" == str(warning)
    shop.tables.failing_models.add("raw.contacts")
    assert 1 == go(shop)
    assert [] == receiver.received_bodies
    assert 1 == len(book(shop).read_unsent())
