"""Alerts that recover without a run: the edit was undone, so the plan has nothing left to do."""

import dataclasses
from collections.abc import Callable, Iterator
from pathlib import Path

import dagster as dg
import pytest
from support.apis.webhook_receiver import WebhookReceiver, running_webhook_receiver, set_webhook
from support.projects.shop_project import ShopProject, write_contacts

from ondatra_dagster.app.alert_service import AlertService
from ondatra_dagster.cli.commands.maintain import run_maintenance
from ondatra_dagster.cli.commands.run import RunCommandOptions, execute_plan, plan_run
from ondatra_dagster.operations.alert_store import AlertStore
from ondatra_dagster.orchestration.sensors import alert_sensor
from ondatra_dagster.project.model_selection import select_models
from ondatra_dagster.testing.demo_api.demo_server import DemoApi

FIRED = ("raw.contacts", "failed", "fired")
RECOVERED = ("raw.contacts", "failed", "recovered")


@pytest.fixture
def receiver() -> Iterator[WebhookReceiver]:
    with running_webhook_receiver() as received:
        yield received


@pytest.fixture
def shop(
    shop: ShopProject, receiver: WebhookReceiver, dagster_home: Path, monkeypatch: pytest.MonkeyPatch
) -> ShopProject:
    """Return the shop with a webhook, after its first run."""
    monkeypatch.setenv("DAGSTER_HOME", str(dagster_home))
    set_webhook(shop.root, receiver.url)
    assert 0 == go(shop)
    return shop


def go(shop: ShopProject, *selection: str, is_dry: bool = False) -> int:
    """Return the exit code of `ondatra run`, for all models or for a selection."""
    workspace = shop.workspace
    chosen = select_models(workspace.project, selection) if selection else None
    plan = plan_run(workspace, chosen, is_dry=is_dry)
    return execute_plan(workspace, plan, RunCommandOptions(is_dry=is_dry), open_service=shop.open_engine)


def misspell(shop: ShopProject, model: str = "raw/contacts") -> Path:
    """Edit a model so that it can't be computed."""
    path = shop.root / "models" / f"{model}.sql"
    path.write_text(path.read_text().replace("SELECT", "SELECT /* wrong */ 1 AS wrong,"))
    shop.tables.failing_models.add(model.replace("/", "."))
    return path


def undo(shop: ShopProject, path: Path) -> None:
    path.write_text(path.read_text().replace("SELECT /* wrong */ 1 AS wrong,", "SELECT"))
    shop.tables.failing_models.clear()


def alerting(shop: ShopProject) -> list[tuple[str, str]]:
    book = AlertStore(shop.workspace.settings.state / "alerts.sqlite")
    return [(alert.subject, alert.rule) for alert in book.read_active_alerts()]


def test_an_undone_edit_ends_the_failure_in_a_run_with_nothing_to_do(
    shop: ShopProject, receiver: WebhookReceiver
) -> None:
    """The table matches its definition again, so the failure is over. The webhook receives this once."""
    edited = misspell(shop)
    for _ in range(2):
        assert 1 == go(shop)
    undo(shop, edited)
    for _ in range(2):
        assert 0 == go(shop)
    assert [FIRED, RECOVERED] == receiver.alerts()
    assert [] == alerting(shop)
    recovered = receiver.received_bodies[1]
    assert "raw.contacts is no longer failing: its table matches its definition and inputs" == (recovered["sentence"])
    assert (None, None) == (recovered["run"], recovered["link"])


def test_an_undone_edit_ends_the_failure_in_a_run_of_another_model(
    shop: ShopProject, receiver: WebhookReceiver
) -> None:
    """The failed model isn't in that run, because it has nothing to do."""
    other = shop.root / "models" / "raw" / "other.sql"
    edited = misspell(shop)
    assert 1 == go(shop)
    undo(shop, edited)
    other.write_text("SELECT * FROM csv.`data/contacts.csv` WITH ('header' = 'true')\n")
    assert 0 == go(shop, "raw.other")
    assert [FIRED, RECOVERED] == receiver.alerts()


def test_a_run_of_another_model_does_not_end_a_lasting_failure(shop: ShopProject, receiver: WebhookReceiver) -> None:
    """The wrong edit is still in the file, so neither the run nor maintenance ends the alert."""
    misspell(shop)
    assert 1 == go(shop)
    (shop.root / "models" / "raw" / "other.sql").write_text(
        "SELECT * FROM csv.`data/contacts.csv` WITH ('header' = 'true')\n"
    )
    assert 0 == go(shop, "raw.other")
    assert 0 == run_maintenance(shop.workspace, as_json=False, open_service=shop.open_engine)
    assert [FIRED] == receiver.alerts()


def test_a_restored_input_file_ends_the_failure(shop: ShopProject, receiver: WebhookReceiver) -> None:
    """The file is the same as when the table was written."""
    data = shop.root / "data" / "contacts.csv"
    data.rename(data.with_name("away"))
    shop.tables.failing_models.add("raw.contacts")
    assert 1 == go(shop)
    data.with_name("away").rename(data)
    shop.tables.failing_models.clear()
    assert 0 == go(shop)
    assert [FIRED, RECOVERED] == receiver.alerts()


def test_a_deleted_model_ends_its_failure(shop: ShopProject, receiver: WebhookReceiver) -> None:
    """No run computes the model any more, so no run could end the alert."""
    added = shop.root / "models" / "raw" / "added.sql"
    added.write_text("SELECT * FROM csv.`data/contacts.csv` WITH ('header' = 'true')\n")
    shop.tables.failing_models.add("raw.added")
    assert 1 == go(shop)
    added.unlink()
    assert 0 == go(shop)
    assert [("raw.added", "failed", "fired"), ("raw.added", "failed", "recovered")] == receiver.alerts()
    assert "raw.added is no longer watched: the project no longer has it" == receiver.received_bodies[1]["sentence"]


def test_a_failed_full_refresh_does_not_recover_in_its_own_run(shop: ShopProject, receiver: WebhookReceiver) -> None:
    """Without the refresh the model has nothing to do. Only the next run may end the alert because of that."""
    shop.tables.failing_models.add("raw.contacts")
    workspace = shop.workspace
    assert 1 == execute_plan(workspace, workspace.plan(is_full=True), open_service=shop.open_engine)
    assert [FIRED] == receiver.alerts()
    assert 0 == go(shop)
    assert [FIRED, RECOVERED] == receiver.alerts()


def test_a_process_with_an_older_project_does_not_end_a_newer_failure(
    shop: ShopProject, receiver: WebhookReceiver
) -> None:
    """A run of several hours doesn't know of an edit that failed in another process in the meantime."""
    edited = misspell(shop)
    assert 1 == go(shop)
    undo(shop, edited)
    slow = AlertService(shop.workspace)
    misspell(shop)
    assert 1 == go(shop)
    slow.resolve_alerts()
    slow.send()
    assert [FIRED] == receiver.alerts()


@pytest.mark.parametrize("is_undone", [False, True])
def test_the_alert_sensor_uses_the_current_model_files(
    shop: ShopProject, receiver: WebhookReceiver, dagster_instance: dg.DagsterInstance, is_undone: bool
) -> None:
    """The models in the memory of `dagster dev` may be older than the edit."""
    workspace = shop.workspace
    edited = misspell(shop)
    assert 1 == go(shop)
    if is_undone:
        undo(shop, edited)
    with dg.build_sensor_context(instance=dagster_instance) as context:
        assert isinstance(alert_sensor(workspace)(context), dg.SkipReason)
    assert [FIRED, RECOVERED][: 1 + is_undone] == receiver.alerts()


def test_a_dry_run_neither_fires_nor_ends_an_alert(shop: ShopProject, receiver: WebhookReceiver) -> None:
    """A dry run writes nothing, and users don't want alerts about it."""
    edited = misspell(shop)
    assert 1 == go(shop, is_dry=True)
    assert [] == receiver.alerts()
    assert 1 == go(shop)
    undo(shop, edited)
    assert 0 == go(shop, is_dry=True)
    assert [FIRED] == receiver.alerts()


def test_a_sync_with_waiting_rows_still_fails_after_its_function_is_fixed(
    shop: ShopProject, receiver: WebhookReceiver
) -> None:
    """No row is due in the next run. Only a delivery of rows shows that the fixed function works."""
    library = shop.root / "lib" / "crm_push.star"
    ours = library.read_text()
    library.write_text(ours.replace("def push(rows):", "def push(rows):\n    rows[0]['nothing']"))
    write_contacts(shop.root, a1="zoe@example.com", b2="bob@example.com")
    assert 1 == go(shop)
    library.write_text(ours)
    assert 0 == go(shop)
    assert [("sync.crm", "failed", "fired")] == receiver.alerts()
    shop.clock_offset += 300
    assert 0 == go(shop)
    assert ("sync.crm", "failed", "recovered") == receiver.alerts()[-1]
    assert "sync.crm is no longer failing" == receiver.received_bodies[-1]["sentence"]


def test_a_restored_queue_file_ends_the_failure(shop: ShopProject, receiver: WebhookReceiver) -> None:
    """No row waits in the queue, so no run of the sync would end the alert."""
    queue = shop.workspace.syncs["sync.crm"].queue_file
    queue_content = queue.read_bytes()
    for name in ("-wal", "-shm"):
        queue.with_name(queue.name + name).unlink(missing_ok=True)
    queue.write_bytes(b"no database" * 500)
    assert 1 == go(shop)
    queue.write_bytes(queue_content)
    assert 0 == go(shop)
    assert [("sync.crm", "failed", "fired"), ("sync.crm", "failed", "recovered")] == receiver.alerts()
    assert "sync.crm is no longer failing: it has nothing to do" == receiver.received_bodies[1]["sentence"]


def test_rows_that_are_too_old_keep_a_sync_failing(shop: ShopProject, api: DemoApi, receiver: WebhookReceiver) -> None:
    """A sync that failed because of @max_lag doesn't recover in a run in which none of its rows is due."""
    api.fail(status=400, times=1, path="/crm/*")
    write_contacts(shop.root, a1="zoe@example.com", b2="ben@example.com")
    assert 0 == go(shop)  # one of the two arrived
    model = shop.root / "models" / "sync" / "crm.sql"
    model.write_text("-- @max_lag: 30s\n" + model.read_text())
    shop.clock_offset += 40
    engine_alerts = AlertService(shop.workspace)
    with shop.open_engine(shop.workspace) as engine:
        from ondatra_dagster.sync.run_context import RunOptions

        result = engine.push(engine.workspace.syncs["sync.crm"], RunOptions(trigger="test"))
    assert result.errors
    assert engine_alerts.read_active_alerts()
    assert 0 == go(shop)
    assert [("sync.crm", "failed", "fired")] == receiver.alerts()


def test_the_recovery_after_an_undone_edit_is_sent_once(shop: ShopProject, receiver: WebhookReceiver) -> None:
    """One transaction ends the alert and stores its message. A webhook that is down gets the message later."""
    edited = misspell(shop)
    assert 1 == go(shop)
    undo(shop, edited)
    receiver.status = 500
    assert 0 == go(shop)
    assert [] == alerting(shop)
    receiver.status = 200
    for _ in range(2):
        assert 0 == go(shop)
    assert [FIRED, RECOVERED] == receiver.alerts()


def test_a_models_alert_names_its_run(
    shop: ShopProject, receiver: WebhookReceiver, materialize: Callable[..., dg.ExecuteInProcessResult]
) -> None:
    """The operator who gets the alert opens the log with one click."""
    edited = misspell(shop)
    result = materialize(shop)
    assert not result.success
    undo(shop, edited)
    write_contacts(shop.root, a1="zoe@example.com", b2="bob@example.com")
    again = materialize(shop)
    assert again.success
    assert [result.run_id, again.run_id] == [body["run"] for body in receiver.received_bodies]
    assert [f"http://127.0.0.1:3000/runs/{run_id}" for run_id in (result.run_id, again.run_id)] == [
        body["link"] for body in receiver.received_bodies
    ]


def test_an_alert_of_an_unexpected_error_does_not_name_an_earlier_run(
    shop: ShopProject, receiver: WebhookReceiver
) -> None:
    """The newest run in the history may be a week old."""
    queue = shop.workspace.syncs["sync.crm"].queue_file
    queue.write_bytes(b"no database" * 500)
    assert 1 == go(shop)
    (body,) = receiver.received_bodies
    assert body["run"] is None
    newest = shop.workspace.history.list_runs("sync.crm", limit=1)[0]
    assert newest.dagster_run_id not in body["link"]


def test_a_clock_of_another_day_does_not_change_alerts(shop: ShopProject, receiver: WebhookReceiver) -> None:
    """The count of an alert, and not a time, shows whether its problem was found again."""
    edited = misspell(shop)
    assert 1 == go(shop)
    undo(shop, edited)
    behind = dataclasses.replace(shop.workspace, clock=lambda: 1_000_000.0)
    alerts = AlertService(behind)
    alerts.resolve_alerts()
    alerts.send()
    assert [FIRED, RECOVERED] == receiver.alerts()


def test_a_new_cause_is_sent_once_and_status_shows_the_newest(
    shop: ShopProject, api: DemoApi, receiver: WebhookReceiver
) -> None:
    """The sync fails for three reasons, one after the other, before it works."""
    library = shop.root / "lib" / "crm_push.star"
    ours = library.read_text()
    write_contacts(shop.root, a1="zoe@example.com", b2="ben@example.com")
    without_token = ours.replace("DEMO_API_KEY", "CRM_TOKEN")
    refused = ours.replace('"error: ") + answer.text', '"error: HTTP " + str(answer.status_code) + ": ") + answer.text')
    broken = ours.replace("def push(rows):", "def push(rows):\n    rows[0]['nothing']")
    for text in (without_token, refused, refused, broken, broken):
        library.write_text(text)
        if text == refused:
            api.fail(status=401, times=100, path="/crm/*")
        assert 1 == go(shop)
        shop.clock_offset += 7200
    assert ["fired", "changed", "changed"] == [state for _, _, state in receiver.alerts()]
    needs, http, star = [body["sentence"] for body in receiver.received_bodies]
    assert "needs CRM_TOKEN" in needs
    assert http.startswith("sync.crm is still failing, now because: nothing was delivered of 2 attempted rows")
    assert http.endswith("(HTTP 401)")
    assert "(lib/crm_push.star:" in star
    (alert,) = AlertStore(shop.workspace.settings.state / "alerts.sqlite").read_active_alerts()
    sentence = 'nothing was delivered of 2 attempted rows: lib/crm_push.star:8: Key `"nothing"` was not found'
    assert sentence == alert.sentence
    assert 5 == alert.occurrences
    library.write_text(ours)
    api.recover()
    assert 0 == go(shop)
    assert "recovered" == receiver.received_bodies[-1]["state"]
