"""A row that always fails, and an API that is down, over several days."""

import dataclasses
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support.processes.cli_terminal import CommandLine
from support.projects.shop_project import ShopProject, write_contacts

from ondatra_dagster.cli.commands.run import execute_plan
from ondatra_dagster.testing import Fault, running_fake_api
from ondatra_dagster.testing.fake_api import FakeApi

pytestmark = pytest.mark.faults

DAY = 86_400.0
GOOD = 100
# each contact is looked up first, so that a single one can fail
PUSH = """
API = {{"base_url": "{url}", "retry": 0, "push": {{"batch_size": 20}}}}

def push(rows):
    return {{str(row["__ondatra_rowid"]) + ":" + row["__ondatra_change_type"]: send(row) for row in rows}}

def send(row):
    there = http.get("/crm/contacts/" + row["id"])
    if there.status_code != 404:
        return "error: " + there.text
    answer = http.post("/crm/contacts", json=row)
    return "ok" if answer.ok else "error: " + answer.text
"""


@pytest.fixture
def api() -> Iterator[FakeApi]:
    with running_fake_api() as api:
        yield api


class SettableClock:
    """A clock that a test sets. It begins 20 days ago, so that all its times are in the past for commands."""

    def __init__(self) -> None:
        self.now = time.time() - 20 * DAY

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def settable_clock() -> SettableClock:
    return SettableClock()


@pytest.fixture
def shop(tmp_path: Path, api: FakeApi, monkeypatch: pytest.MonkeyPatch) -> ShopProject:
    shop = ShopProject.create(tmp_path, url=api.url, files={"lib/crm_push.star": PUSH.format(url=api.url)})
    good = {f"good{number}": f"good{number}@example.com" for number in range(GOOD)}
    write_contacts(shop.root, **good, stuck="stuck@example.com")
    monkeypatch.chdir(shop.root)
    return shop


def runs(shop: ShopProject, settable_clock: SettableClock) -> Callable[[], int]:
    """Return a function for `ondatra run` at the test's time."""

    def run_now() -> int:
        workspace = dataclasses.replace(shop.workspace, clock=settable_clock)
        return execute_plan(workspace, workspace.plan(), open_service=shop.open_engine)

    return run_now


def test_a_row_that_always_fails_becomes_a_dead_letter_and_can_be_replayed(
    shop: ShopProject, api: FakeApi, settable_clock: SettableClock, capfd: pytest.CaptureFixture[str]
) -> None:
    """Other tools retry such a row forever, or stop the hundred rows next to it."""
    ondatra, run_now = CommandLine(capfd), runs(shop, settable_clock)
    api.faults.paths["/crm/contacts/stuck"] = Fault(times=None, status=400, message="no such region")
    assert 0 == run_now()
    assert GOOD == len(api.state)
    waits = []
    while (queue := shop.workspace.queue("sync.crm")) and queue.next_due_at:
        waits.append(queue.next_due_at - settable_clock.now)
        settable_clock.now = queue.next_due_at - 1
        calls = len(api.calls)
        assert (0, calls) == (run_now(), len(api.calls))  # not before it is due
        settable_clock.now += 2
        code = run_now()
        assert calls + 1 == len(api.calls)
    assert 7 == len(waits)  # eight attempts, and a wait between each two
    assert 1 == code  # the run reports the dead letter
    for wait, minutes in zip(waits, (1, 5, 15, 60, 180, 360, 720), strict=True):
        assert 0.8 * minutes <= wait / 60 <= 1.2 * minutes + 0.1
    assert 0 == run_now()  # only once

    (letter,) = ondatra("dead", "sync.crm", "--json").json_lines
    assert ("stuck", 8) == (letter["key"], letter["attempts"])
    assert "no such region" in str(letter["error"])
    row = {"id": "stuck", "email": "stuck@example.com"}
    assert [{"change_type": "insert", "row": row}] == letter["sends"]

    api.faults.paths.clear()
    assert 0 == ondatra("replay", "sync.crm").exit_code
    assert "/crm/contacts/stuck" in api.state
    assert [] == ondatra("dead", "sync.crm", "--json").json_lines


def test_an_outage_of_several_days_uses_up_no_attempt(
    shop: ShopProject, api: FakeApi, settable_clock: SettableClock
) -> None:
    """A weekend without the API must not leave a hundred dead letters for Monday."""
    run_now = runs(shop, settable_clock)
    api.faults.always = Fault(times=None, status=503)
    for _ in range(20):
        assert 1 == run_now()
        settable_clock.now += DAY / 4
    queue = shop.workspace.queue("sync.crm")
    assert queue
    assert (GOOD + 1, 0) == (queue.depth, queue.dead_units)
    api.faults.always = None
    assert 0 == run_now()
    assert GOOD + 1 == len(api.state)
