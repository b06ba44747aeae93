"""Alerts through a real webhook on loopback: once when something begins to fail, once when it is over."""

import dataclasses
from collections.abc import Callable, Iterator
from pathlib import Path

import dagster as dg
import orjson
import pytest
from support.alert_receiver import SECRET, Received, alert_receiver, set_webhook
from support.killed_push import killed_push
from support.shop import Shop, write_contacts

from ondatra_dagster.cli.maintain import maintain
from ondatra_dagster.cli.run import run
from ondatra_dagster.operations.alert_book import AlertBook, SubjectType
from ondatra_dagster.orchestration.alerting import Alerts
from ondatra_dagster.orchestration.definitions import definitions_of
from ondatra_dagster.orchestration.sensors import alert_sensor
from ondatra_dagster.store.lock import FileLock
from ondatra_dagster.sync.hold import pause, resume
from ondatra_dagster.testing.demo_api.server import DemoApi
from ondatra_dagster.tracking.history import Result

HOUR = 3600


@pytest.fixture
def receiver() -> Iterator[Received]:
    with alert_receiver() as received:
        yield received


@pytest.fixture
def shop(shop: Shop, receiver: Received) -> Shop:
    """The shop, with a webhook whose address holds a secret."""
    settings(shop, receiver.url)
    return shop


def settings(shop: Shop, url: str, **more: str) -> None:
    set_webhook(shop.root, url, **more)


def go(shop: Shop) -> int:
    """`ondatra run`."""
    workspace = shop.workspace
    return run(workspace, workspace.plan(None), as_json=False, opened=shop.opened)


def change(shop: Shop, name: str) -> None:
    write_contacts(shop.root, a1=f"{name}@example.com", b2="bob@example.com")


def book(shop: Shop) -> AlertBook:
    return AlertBook(shop.workspace.settings.state / "alerts.sqlite")


def test_a_failing_sync_fires_once_and_recovers_once(shop: Shop, api: DemoApi, receiver: Received) -> None:
    """However often it fails in between, and in whatever process."""
    assert 0 == go(shop)
    assert [] == receiver.bodies
    for number in range(3):
        api.fail(status=503, times=100, path="/crm/*")
        change(shop, f"ada{number}")
        assert 1 == go(shop)
    api.recover()
    change(shop, "ann")
    assert 0 == go(shop)
    change(shop, "amy")
    assert 0 == go(shop)
    assert [("sync.crm", "failed", "fired"), ("sync.crm", "failed", "recovered")] == receiver.told()
    fired, recovered = receiver.bodies
    assert fired["id"] != recovered["id"]
    assert "sync.crm: the API is down" in fired["sentence"]
    assert "sync.crm is no longer failing" == recovered["sentence"]
    assert [body["id"] for body in receiver.bodies] == [each["idempotency-key"] for each in receiver.headers]


def test_a_turn_with_nothing_due_ends_no_failure(
    shop: Shop,
    api: DemoApi,
    receiver: Received,
    materialize: Callable[..., dg.ExecuteInProcessResult],
) -> None:
    """A schedule comes more often than rows are tried again: each turn between would tell of a recovery."""
    go(shop)
    for number in range(2):
        api.fail(status=503, times=100, path="/crm/*")
        change(shop, f"ada{number}")
        assert 1 == go(shop)
        assert materialize(shop).success  # the row waits for its minute
    assert [("sync.crm", "failed", "fired")] == receiver.told()
    api.recover()
    change(shop, "ann")
    assert 0 == go(shop)
    assert [("sync.crm", "failed", "recovered")] == receiver.told()[1:]


def test_an_interrupted_run_fires_nothing_and_ends_no_failure(
    shop: Shop,
    api: DemoApi,
    receiver: Received,
    materialize: Callable[..., dg.ExecuteInProcessResult],
) -> None:
    """Whoever ended it knows; whether the sync is well again is for a run that comes to its end to say."""
    go(shop)
    api.fail(status=503, times=100, path="/crm/*")
    change(shop, "ada1")
    assert 1 == go(shop)
    history = shop.workspace.history
    failed = history.runs("sync.crm", limit=1)[0]
    history.finish(dataclasses.replace(failed, run_id=f"{failed.run_id}z", result=Result.INTERRUPTED))
    assert materialize(shop).success  # the row waits for its minute
    Alerts(shop.workspace).look()
    assert [("sync.crm", "failed", "fired")] == receiver.told()


def test_a_webhook_that_is_down_hears_of_it_at_the_next_look(
    shop: Shop, api: DemoApi, receiver: Received, said: Callable[[], str]
) -> None:
    """In order, and with ids by which it can tell what came twice."""
    go(shop)
    receiver.status = 500
    api.fail(status=503, times=100, path="/crm/*")
    change(shop, "zoe")
    assert 1 == go(shop)
    assert 1 == len(book(shop).outgoing())
    api.recover()
    change(shop, "ann")
    assert 0 == go(shop)
    assert [] == receiver.bodies
    receiver.status = 200
    done = Alerts(shop.workspace).look()
    assert (2, 0, 0) == (done.counts["sent"], done.counts["waiting"], done.counts["alerting"])
    assert ["fired", "recovered"] == [state for _, _, state in receiver.told()]
    assert 0 == Alerts(shop.workspace).look().counts["sent"]
    assert SECRET not in said()
    left = (shop.workspace.settings.state / "alerts.sqlite").read_bytes()
    assert SECRET.encode() not in left
    assert {f"/hooks/{SECRET}"} == set(receiver.paths)


def test_a_run_that_was_killed_fires_at_the_next_look(shop: Shop, api: DemoApi, receiver: Received) -> None:
    """Nobody was left to say so; it is over when a run has ended well."""
    killed_push(shop.root, api.url)
    settings(shop, receiver.url)
    sent = [Alerts(shop.workspace).look().counts["sent"] for _ in range(2)]
    assert ([1, 0], [("sync.crm", "failed", "fired")]) == (sent, receiver.told())
    assert "sync.crm: its process was killed" in receiver.bodies[0]["sentence"]
    for _ in range(2):
        assert 0 == go(shop)
        Alerts(shop.workspace).look()
    assert [("sync.crm", "failed", "recovered")] == receiver.told()[1:]


def test_a_run_that_goes_on_is_no_crash(shop: Shop, api: DemoApi, receiver: Received) -> None:
    """The sensor looks while runs go on."""
    killed_push(shop.root, api.url)
    settings(shop, receiver.url)
    with FileLock(shop.workspace.sync("sync.crm").lock, purpose="delivers"):
        Alerts(shop.workspace).look()
    assert [] == receiver.told()


def test_neither_secret_nor_rows_are_in_what_is_told(shop: Shop, api: DemoApi, receiver: Received) -> None:
    """The receiver may be a chat room."""
    settings(shop, receiver.url, token_env="BEARER")
    api.fail(status=422, times=100, path="/crm/*")
    assert 1 == go(shop)
    told = orjson.dumps(receiver.bodies).decode()
    assert SECRET not in told + repr(shop.workspace.settings)
    assert "ada@example.com" not in told
    assert "Bearer bearer-0001" == receiver.headers[0]["authorization"]
    assert all(body["link"].startswith("http://127.0.0.1:3000/runs/") for body in receiver.bodies)
    assert {("sync.crm", "failed", "fired"), ("sync.crm", "rejects", "fired")} == set(receiver.told())
    (rejects,) = [body for body in receiver.bodies if body["rule"] == "rejects"]
    assert {"rejected": 2, "attempted": 2, "limit": 0.1} == rejects["numbers"]


def test_a_model_that_fails_fires_and_recovers(shop: Shop, receiver: Received) -> None:
    """Nothing below it runs, so nobody else says a word."""
    shop.tables.broken.add("raw.contacts")
    for _ in range(2):
        assert 1 == go(shop)
    shop.tables.broken.clear()
    assert 0 == go(shop)
    assert [("raw.contacts", "failed", "fired"), ("raw.contacts", "failed", "recovered")] == receiver.told()
    assert "can't be computed; look at it" in receiver.bodies[0]["sentence"]


def test_values_that_spark_quotes_are_left_out(shop: Shop, receiver: Received) -> None:
    """A cast that fails names the value."""
    alerts = Alerts(shop.workspace)
    alerts.failed(
        SubjectType.MODEL,
        "raw.contacts",
        "contacts.sql:3: the value 'ada@example.com' can't be cast",
    )
    alerts.send()
    (body,) = receiver.bodies
    assert "raw.contacts: contacts.sql:3: the value '…' can't be cast" == body["sentence"]


def test_a_sync_that_is_silent_for_too_long_is_told_of(
    shop: Shop, api: DemoApi, receiver: Received, instance: dg.DagsterInstance
) -> None:
    """By the sensor, which starts no run; quiet days with nothing to send are no silence."""
    assert 0 == go(shop)
    workspace = shop.workspace
    later = workspace.clock() + 30 * HOUR
    at = dataclasses.replace(workspace, clock=lambda: later)
    assert 0 == Alerts(at).look().counts["alerting"]
    api.fail(status=503, times=100, path="/crm/*")
    change(shop, "zoe")
    go(shop)
    receiver.bodies.clear()
    with dg.build_sensor_context(instance=instance) as context:
        for _ in range(2):
            (skipped,) = [alert_sensor(at)(context)]
            assert isinstance(skipped, dg.SkipReason)
    assert [("sync.crm", "no_success", "fired")] == receiver.told()
    assert 30.0 == receiver.bodies[0]["numbers"]["hours"]
    assert ["failed", "no_success"] == [each.rule for each in book(shop).standing()]
    api.recover()
    change(shop, "ann")
    assert 0 == go(shop)
    assert {("sync.crm", "no_success", "recovered"), ("sync.crm", "failed", "recovered")} == set(
        receiver.told()[1:]
    )


def test_what_somebody_holds_is_no_silence(shop: Shop, receiver: Received) -> None:
    """Who pauses a sync knows."""
    go(shop)
    change(shop, "zoe")
    workspace = shop.workspace
    pause(workspace.syncs["sync.crm"])
    go(shop)
    later = workspace.clock() + 300 * HOUR
    assert 0 == Alerts(dataclasses.replace(workspace, clock=lambda: later)).look().counts["alerting"]


def test_a_run_of_another_size_than_usual_is_told_of(shop: Shop, receiver: Received) -> None:
    """An upstream that lost most of its rows fails nothing by itself."""
    settings(shop, receiver.url, deviation="50%")
    write_contacts(shop.root, **{f"c{n}": "x@example.com" for n in range(10)})
    go(shop)
    for number in range(4):
        write_contacts(shop.root, **{f"c{n}": f"x{number}@example.com" for n in range(10)})
        assert 0 == go(shop)
    assert [] == receiver.bodies
    write_contacts(shop.root, **{f"c{n}": f"{'x3' if n else 'new'}@example.com" for n in range(10)})
    assert 0 == go(shop)
    write_contacts(shop.root, **{f"c{n}": "last@example.com" for n in range(10)})
    assert 0 == go(shop)
    assert [("sync.crm", "deviation", "fired"), ("sync.crm", "deviation", "recovered")] == receiver.told()
    numbers = receiver.bodies[0]["numbers"]
    assert (1, 10, 4) == (numbers["units"], numbers["mean"], numbers["runs"])
    told = "sync.crm: 1 row attempted, 10 on average in the 4 runs before: they differ by more than 50%"
    assert told == receiver.bodies[0]["sentence"]  # whether it arrived is another matter


def test_runs_that_were_held_or_refused_are_of_no_size(shop: Shop, api: DemoApi, receiver: Received) -> None:
    """What wasn't sent for a pause, a guard or another address is no upstream that lost its rows."""
    settings(shop, receiver.url, deviation="50%")
    for number in range(5):
        write_contacts(shop.root, **{f"c{n}": f"x{number}@example.com" for n in range(10)})
        assert 0 == go(shop)
    pause(shop.workspace.syncs["sync.crm"])
    write_contacts(shop.root, **{f"c{n}": "paused@example.com" for n in range(10)})
    assert 0 == go(shop)
    resume(shop.workspace.syncs["sync.crm"])
    assert 0 == go(shop)
    assert [] == receiver.told()
    library = shop.root / "lib" / "crm_push.star"
    ours = library.read_text()
    library.write_text(ours.replace(api.url, "http://127.0.0.1:9"))
    write_contacts(shop.root, **{f"c{n}": "refused@example.com" for n in range(10)})
    assert {1} == {go(shop) for _ in range(8)}
    library.write_text(ours)
    assert 0 == go(shop)
    assert {"failed"} == {rule for _, rule, _ in receiver.told()}


@pytest.mark.parametrize("gone", ["the sink", "the rule"])
def test_what_is_gone_is_over(shop: Shop, api: DemoApi, receiver: Received, gone: str) -> None:
    """A sync without its sink never runs again, and a rule that is off says nothing: nobody would end it."""
    settings(shop, receiver.url, no_success_hours="1")
    api.fail(status=503, times=100, path="/crm/*")
    assert 1 == go(shop)
    workspace = shop.workspace
    later = workspace.clock() + 30 * HOUR
    assert 2 == Alerts(dataclasses.replace(workspace, clock=lambda: later)).look().counts["alerting"]
    if gone == "the sink":
        model = shop.root / "models" / "sync" / "crm.sql"
        model.write_text(model.read_text().replace("-- @sink: crm_push\n", ""))
    else:
        settings(shop, receiver.url, no_success_hours="off")
    over = {"failed", "no_success"} if gone == "the sink" else {"no_success"}
    left = 2 - len(over)
    for _ in range(2):
        assert 0 == maintain(shop.workspace, as_json=False, opened=shop.opened)
    assert left == len(book(shop).standing())
    assert over == {rule for _, rule, state in receiver.told() if state == "recovered"}


def test_a_sensor_that_read_the_project_long_ago_ends_nothing_as_gone(
    shop: Shop, api: DemoApi, receiver: Received
) -> None:
    """`dagster dev` goes on with the models that it started with, while a shell runs newer ones."""
    model = shop.root / "models" / "sync" / "crm.sql"
    ours = model.read_text()
    model.write_text(ours.replace("-- @sink: crm_push\n", ""))
    before = shop.workspace
    model.write_text(ours)
    api.fail(status=503, times=100, path="/crm/*")
    assert 1 == go(shop)
    Alerts(before).look()
    assert [("sync.crm", "failed", "fired")] == receiver.told()


def test_without_a_webhook_nothing_is_shown_as_alerting(shop: Shop, api: DemoApi) -> None:
    """Nobody looks any more whether it still is."""
    api.fail(status=503, times=100, path="/crm/*")
    assert 1 == go(shop)
    assert ["failed"] == [each.rule for each in Alerts(shop.workspace).standing()]
    (shop.root / "pyproject.toml").write_text("[tool.ondatra]\n")
    assert [] == Alerts(shop.workspace).standing()


def test_without_a_webhook_nothing_is_kept(
    shop: Shop, api: DemoApi, capfd: pytest.CaptureFixture[str]
) -> None:
    """And no sensor looks."""
    (shop.root / "pyproject.toml").write_text("[tool.ondatra]\n")
    api.fail(status=503, times=100, path="/crm/*")
    assert 1 == go(shop)
    assert not (shop.workspace.settings.state / "alerts.sqlite").exists()
    assert "ondatra_alerts" not in {sensor.name for sensor in definitions_of(shop.workspace).sensors or ()}
    assert 0 == maintain(shop.workspace, as_json=False, opened=shop.opened)
    assert "alerts: none are sent: alerts.webhook isn't set" in capfd.readouterr().err


def test_a_variable_that_is_not_set_is_a_warning_at_load(
    shop: Shop, receiver: Received, tmp_path: Path
) -> None:
    """And the run goes on without its alert."""
    (shop.root / ".env").write_text("DEMO_API_KEY=shop-demo-key-0001\n")
    (warning,) = shop.workspace.warnings
    assert "pyproject.toml:2: the variable HOOK_TOKEN is not set; set it in .env or the environment" == str(
        warning
    )
    shop.tables.broken.add("raw.contacts")
    assert 1 == go(shop)
    assert [] == receiver.bodies
    assert 1 == len(book(shop).outgoing())
