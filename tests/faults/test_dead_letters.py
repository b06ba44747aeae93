"""One row that never gets through, and an API that is down: what becomes of them as days go by."""

import dataclasses
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support.shop import Shop, write_contacts
from support.terminal import Terminal

from ondatra_dagster.cli.run import run
from ondatra_dagster.testing import Fault, running_fake_api
from ondatra_dagster.testing.fake_api import FakeApi

pytestmark = pytest.mark.faults

DAY = 86_400.0
GOOD = 100
# each contact is looked up first: so one of them alone can fail
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


class Days:
    """A clock that a test sets; it begins some days ago, so that commands find the past behind them."""

    def __init__(self) -> None:
        self.now = time.time() - 20 * DAY

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def days() -> Days:
    return Days()


@pytest.fixture
def shop(tmp_path: Path, api: FakeApi, monkeypatch: pytest.MonkeyPatch) -> Shop:
    shop = Shop.at(tmp_path, url=api.url, files={"lib/crm_push.star": PUSH.format(url=api.url)})
    good = {f"good{number}": f"good{number}@example.com" for number in range(GOOD)}
    write_contacts(shop.root, **good, stuck="stuck@example.com")
    monkeypatch.chdir(shop.root)
    return shop


def runs(shop: Shop, days: Days) -> Callable[[], int]:
    """`ondatra run` at the test's time."""

    def run_now() -> int:
        workspace = dataclasses.replace(shop.workspace, clock=days)
        return run(workspace, workspace.plan(), as_json=False, opened=shop.opened)

    return run_now


def test_a_row_that_always_fails_dies_after_its_attempts_is_listed_and_can_be_replayed(
    shop: Shop, api: FakeApi, days: Days, capfd: pytest.CaptureFixture[str]
) -> None:
    """Elsewhere it is retried for ever, or takes the hundred beside it along."""
    ondatra, run_now = Terminal(capfd), runs(shop, days)
    api.faults.paths["/crm/contacts/stuck"] = Fault(times=None, status=400, message="no such region")
    assert 0 == run_now()
    assert GOOD == len(api.state)
    waits = []
    while (queue := shop.workspace.queue("sync.crm")) and queue.next_due_at:
        waits.append(queue.next_due_at - days.now)
        days.now = queue.next_due_at - 1
        calls = len(api.calls)
        assert (0, calls) == (run_now(), len(api.calls))  # not before it is due
        days.now += 2
        code = run_now()
        assert calls + 1 == len(api.calls)
    assert 7 == len(waits)  # eight attempts, and a wait between each two
    assert 1 == code  # that it was given up is told
    for wait, minutes in zip(waits, (1, 5, 15, 60, 180, 360, 720), strict=True):
        assert 0.8 * minutes <= wait / 60 <= 1.2 * minutes + 0.1
    assert 0 == run_now()  # once

    (letter,) = ondatra("dead", "sync.crm", "--json").objects
    assert ("stuck", 8) == (letter["key"], letter["attempts"])
    assert "no such region" in str(letter["error"])
    row = {"id": "stuck", "email": "stuck@example.com"}
    assert [{"change_type": "insert", "row": row}] == letter["sends"]

    api.faults.paths.clear()
    assert 0 == ondatra("replay", "sync.crm").code
    assert "/crm/contacts/stuck" in api.state
    assert [] == ondatra("dead", "sync.crm", "--json").objects


def test_an_outage_of_days_uses_up_no_attempt(shop: Shop, api: FakeApi, days: Days) -> None:
    """A weekend without the API mustn't leave a hundred dead letters for Monday."""
    run_now = runs(shop, days)
    api.faults.always = Fault(times=None, status=503)
    for _ in range(20):
        assert 1 == run_now()
        days.now += DAY / 4
    queue = shop.workspace.queue("sync.crm")
    assert queue
    assert (GOOD + 1, 0) == (queue.depth, queue.dead)
    api.faults.always = None
    assert 0 == run_now()
    assert GOOD + 1 == len(api.state)
