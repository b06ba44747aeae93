"""Alerts that end without a run: the edit was undone, so the plan has nothing to do any more."""

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
    """The shop with a webhook, after its first run."""
    monkeypatch.setenv("DAGSTER_HOME", str(dagster_home))
    set_webhook(shop.root, receiver.url)
    assert 0 == go(shop)
    return shop


def go(shop: ShopProject, *selection: str, is_dry: bool = False) -> int:
    """`ondatra run`, for all or for a selection."""
    workspace = shop.workspace
    chosen = select_models(workspace.project, selection) if selection else None
    plan = plan_run(workspace, chosen, is_dry=is_dry)
    return execute_plan(workspace, plan, RunCommandOptions(is_dry=is_dry), opened=shop.open_engine)


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
    return [(each.subject, each.rule) for each in book.read_active_alerts()]


def test_an_undone_edit_ends_the_failure_in_a_run_with_nothing_to_do(
    shop: ShopProject, receiver: WebhookReceiver
) -> None:
    """The table is what the definition asks for, so the failure is over; it is told once."""
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


def test_an_undone_edit_ends_the_failure_in_a_run_of_something_else(
    shop: ShopProject, receiver: WebhookReceiver
) -> None:
    """The model isn't in that run, for it has nothing to do."""
    other = shop.root / "models" / "raw" / "other.sql"
    edited = misspell(shop)
    assert 1 == go(shop)
    undo(shop, edited)
    other.write_text("SELECT * FROM csv.`data/contacts.csv` WITH ('header' = 'true')\n")
    assert 0 == go(shop, "raw.other")
    assert [FIRED, RECOVERED] == receiver.alerts()


def test_a_run_of_something_else_ends_no_failure_that_lasts(shop: ShopProject, receiver: WebhookReceiver) -> None:
    """The edit is still there, whoever runs what."""
    misspell(shop)
    assert 1 == go(shop)
    (shop.root / "models" / "raw" / "other.sql").write_text(
        "SELECT * FROM csv.`data/contacts.csv` WITH ('header' = 'true')\n"
    )
    assert 0 == go(shop, "raw.other")
    assert 0 == run_maintenance(shop.workspace, as_json=False, opened=shop.open_engine)
    assert [FIRED] == receiver.alerts()


def test_an_input_that_is_back_ends_the_failure(shop: ShopProject, receiver: WebhookReceiver) -> None:
    """The same file, as it was when the table was made."""
    data = shop.root / "data" / "contacts.csv"
    data.rename(data.with_name("away"))
    shop.tables.failing_models.add("raw.contacts")
    assert 1 == go(shop)
    data.with_name("away").rename(data)
    shop.tables.failing_models.clear()
    assert 0 == go(shop)
    assert [FIRED, RECOVERED] == receiver.alerts()


def test_a_deleted_model_ends_its_failure(shop: ShopProject, receiver: WebhookReceiver) -> None:
    """Nobody will ever compute it."""
    added = shop.root / "models" / "raw" / "added.sql"
    added.write_text("SELECT * FROM csv.`data/contacts.csv` WITH ('header' = 'true')\n")
    shop.tables.failing_models.add("raw.added")
    assert 1 == go(shop)
    added.unlink()
    assert 0 == go(shop)
    assert [("raw.added", "failed", "fired"), ("raw.added", "failed", "recovered")] == receiver.alerts()
    assert "raw.added is no longer watched: the project no longer has it" == receiver.received_bodies[1]["sentence"]


def test_a_full_refresh_that_failed_is_not_over_in_the_run_that_failed(
    shop: ShopProject, receiver: WebhookReceiver
) -> None:
    """Without the refresh there is nothing to do, which the next run says and this one doesn't."""
    shop.tables.failing_models.add("raw.contacts")
    workspace = shop.workspace
    assert 1 == execute_plan(workspace, workspace.plan(is_full=True), opened=shop.open_engine)
    assert [FIRED] == receiver.alerts()
    assert 0 == go(shop)
    assert [FIRED, RECOVERED] == receiver.alerts()


def test_a_process_that_read_the_project_before_a_failure_ends_it_not(
    shop: ShopProject, receiver: WebhookReceiver
) -> None:
    """A run of hours knows nothing of an edit that failed meanwhile, in another process."""
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
def test_the_sensor_goes_by_the_files_as_they_are(
    shop: ShopProject, receiver: WebhookReceiver, dagster_instance: dg.DagsterInstance, is_undone: bool
) -> None:
    """`dagster dev` has models in its memory that may be older than the edit."""
    workspace = shop.workspace
    edited = misspell(shop)
    assert 1 == go(shop)
    if is_undone:
        undo(shop, edited)
    with dg.build_sensor_context(instance=dagster_instance) as context:
        assert isinstance(alert_sensor(workspace)(context), dg.SkipReason)
    assert [FIRED, RECOVERED][: 1 + is_undone] == receiver.alerts()


def test_a_dry_run_neither_fires_nor_ends_an_alert(shop: ShopProject, receiver: WebhookReceiver) -> None:
    """It isn't what users asked to be told of, and nothing was written."""
    edited = misspell(shop)
    assert 1 == go(shop, is_dry=True)
    assert [] == receiver.alerts()
    assert 1 == go(shop)
    undo(shop, edited)
    assert 0 == go(shop, is_dry=True)
    assert [FIRED] == receiver.alerts()


def test_rows_that_wait_keep_a_sync_failing_after_its_function_was_mended(
    shop: ShopProject, receiver: WebhookReceiver
) -> None:
    """Nothing is due in the next run: that the mended function works is known once rows were delivered."""
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


def test_a_queue_file_that_is_back_ends_the_failure(shop: ShopProject, receiver: WebhookReceiver) -> None:
    """With nothing in it that waits, no run of the sync would come to tell."""
    queue = shop.workspace.syncs["sync.crm"].queue_file
    kept = queue.read_bytes()
    for name in ("-wal", "-shm"):
        queue.with_name(queue.name + name).unlink(missing_ok=True)
    queue.write_bytes(b"no database" * 500)
    assert 1 == go(shop)
    queue.write_bytes(kept)
    assert 0 == go(shop)
    assert [("sync.crm", "failed", "fired"), ("sync.crm", "failed", "recovered")] == receiver.alerts()
    assert "sync.crm is no longer failing: it has nothing to do" == receiver.received_bodies[1]["sentence"]


def test_rows_that_are_too_old_keep_a_sync_failing(shop: ShopProject, api: DemoApi, receiver: WebhookReceiver) -> None:
    """A sync whose turn fails for @max_lag doesn't recover between its turns."""
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


def test_an_undone_edit_is_told_once_over_processes(shop: ShopProject, receiver: WebhookReceiver) -> None:
    """The end and the message on it are one transaction; a webhook that is down gets it later."""
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


def test_a_model_s_alert_names_its_run(
    shop: ShopProject, receiver: WebhookReceiver, materialize: Callable[..., dg.ExecuteInProcessResult]
) -> None:
    """So that whoever is paged gets to the log with one click."""
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


def test_an_alert_of_an_unforeseen_end_tells_of_its_own_run(shop: ShopProject, receiver: WebhookReceiver) -> None:
    """Not of the newest that the history has, which may be of last week."""
    queue = shop.workspace.syncs["sync.crm"].queue_file
    queue.write_bytes(b"no database" * 500)
    assert 1 == go(shop)
    (body,) = receiver.received_bodies
    assert body["run"] is None
    newest = shop.workspace.history.list_runs("sync.crm", limit=1)[0]
    assert newest.dagster_run_id not in body["link"]


def test_a_clock_of_another_day_changes_nothing(shop: ShopProject, receiver: WebhookReceiver) -> None:
    """What was found since is told by a count, not by times."""
    edited = misspell(shop)
    assert 1 == go(shop)
    undo(shop, edited)
    behind = dataclasses.replace(shop.workspace, clock=lambda: 1_000_000.0)
    alerts = AlertService(behind)
    alerts.resolve_alerts()
    alerts.send()
    assert [FIRED, RECOVERED] == receiver.alerts()


def test_a_change_of_cause_is_told_once_and_status_shows_the_newest(
    shop: ShopProject, api: DemoApi, receiver: WebhookReceiver
) -> None:
    """One failure after the other, on the way to a sync that works."""
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
    found = 'nothing was delivered of 2 attempted rows: lib/crm_push.star:8: Key `"nothing"` was not found'
    assert found == alert.sentence
    assert 5 == alert.occurrences
    library.write_text(ours)
    api.recover()
    assert 0 == go(shop)
    assert "recovered" == receiver.received_bodies[-1]["state"]
