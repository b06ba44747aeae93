"""Two processes that push one sync at the same time: two shells, or a shell and a click in Dagster."""

import os
import shutil
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.projects.shop_project import ShopProject, write_contacts

from ondatra_dagster.cli.commands.run import execute_plan
from ondatra_dagster.delivery.queue.dead_letter_reading_and_replay import retry_waiting_now
from ondatra_dagster.testing import Answer, Fault, Request, State, running_fake_api
from ondatra_dagster.testing.fake_api import FakeApi

pytestmark = pytest.mark.faults

ROOT = Path(__file__).parents[2]
CLI = ["ondatra_dagster.cli.main", "run"]
UI = ["dagster", "asset", "materialize", "-m", "ondatra_project.definitions", "--select", "push/sync/crm"]
ROWS = 12


class CallBlocker:
    """An answer function that holds every call until it is released."""

    def __init__(self) -> None:
        self.call_received = threading.Event()
        self.released = threading.Event()
        self.is_blocking = False

    def __call__(self, _request: Request, _state: State) -> Answer | None:
        if self.is_blocking:
            self.call_received.set()
            assert self.released.wait(120)
        return None


@pytest.fixture
def call_blocker() -> CallBlocker:
    return CallBlocker()


@pytest.fixture
def api(call_blocker: CallBlocker) -> Iterator[FakeApi]:
    with running_fake_api(answer=call_blocker, id_fields=("customer_id",)) as api:
        yield api


@pytest.fixture
def shop(tmp_path: Path, api: FakeApi) -> ShopProject:
    """Return a shop with rows that are due, which can be sent without Spark."""
    shop = ShopProject.create(tmp_path / "shop", url=api.url)
    shutil.copytree(ROOT / "ondatra_dagster/template/ondatra_project", shop.root / "ondatra_project")
    write_contacts(shop.root, **{f"c{number}": f"c{number}@example.com" for number in range(ROWS)})
    api.faults.always = Fault(times=None, status=400)
    workspace = shop.workspace
    execute_plan(workspace, workspace.plan(), open_service=shop.open_engine)
    (sync,) = workspace.syncs.values()
    with sync.open_queue() as queue:
        assert ROWS == retry_waiting_now(queue)
    api.faults.always = None
    api.calls.clear()
    return shop


def started(shop: ShopProject, words: list[str]) -> subprocess.Popen[str]:
    home = shop.root / ".ondatra" / "dagster"
    home.mkdir(exist_ok=True)
    return subprocess.Popen(
        [sys.executable, "-m", *words],
        cwd=shop.root,
        env={**os.environ, "PYTHONPATH": f"{shop.root}{os.pathsep}{ROOT}", "DAGSTER_HOME": str(home)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


@pytest.mark.parametrize(("first", "second"), [(CLI, CLI), (CLI, UI), (UI, CLI)], ids=["shells", "click", "shell"])
def test_each_row_is_sent_once_and_the_second_process_says_so(
    shop: ShopProject, api: FakeApi, call_blocker: CallBlocker, first: list[str], second: list[str]
) -> None:
    """Repeated calls would be repeated invoices, and a failure would be a false alarm."""
    call_blocker.is_blocking = True
    sender = started(shop, first)
    try:
        assert call_blocker.call_received.wait(120)
        other = started(shop, second)
        output, _ = other.communicate(timeout=120)
        assert 0 == other.returncode, output
        if second is CLI:
            assert f"sync.crm is held by process {sender.pid}" in output
    finally:
        call_blocker.released.set()
        output, _ = sender.communicate(timeout=120)
    assert 0 == sender.returncode, output
    call_counts = Counter((call.method, str(call.body)) for call in api.calls)
    assert (ROWS, {1}) == (len(call_counts), set(call_counts.values()))
    queue = shop.workspace.queue("sync.crm")
    assert queue
    assert (0, 0) == (queue.depth, queue.dead_units)
