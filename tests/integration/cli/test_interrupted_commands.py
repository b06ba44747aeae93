"""Interruptions by Ctrl-C and SIGTERM: no new call, one message, and a history of what the run did until then.

These processes only send rows that wait, so they need no JVM; tests/faults has those with one.
"""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.apis.blocking_api import BlockingApi, running_blocking_api
from support.processes.cli_terminal import CommandLine
from support.processes.interruptible_command import InterruptibleCommand
from support.projects.shop_project import SHOP_PUSH, ShopProject, write_contacts
from support.projects.shop_with_history import run_shop

from ondatra_dagster.cli.exit_codes_signals_and_pipes import INTERRUPTED_MESSAGE
from ondatra_dagster.sync.run_history_store import PastRun

ROWS = 12
ANSWERED = 5
# the signal comes during a call, whose answer may be read before the signal is noticed
MAY_BE_BEGUN = (ANSWERED + 1, ANSWERED + 2)
CODES = {signal.SIGINT: 130, signal.SIGTERM: 143}


@pytest.fixture
def blocking_api() -> Iterator[BlockingApi]:
    with running_blocking_api(ANSWERED) as api:
        yield api


@pytest.fixture
def shop_with_waiting_rows(
    blocking_api: BlockingApi, tmp_path: Path, dagster_home: Path, monkeypatch: pytest.MonkeyPatch, ondatra: CommandLine
) -> ShopProject:
    """Return a shop with rows in its queue, each in a separate batch."""
    monkeypatch.setenv("DAGSTER_HOME", str(dagster_home))
    push = SHOP_PUSH.format(url=blocking_api.url).replace('"retry": 0', '"retry": 0, "push": {"batch_size": 1}')
    shop = ShopProject.create(tmp_path / "shop", url=blocking_api.url, files={"lib/crm_push.star": push})
    write_contacts(shop.root, **{f"c{n}": f"{n}@example.com" for n in range(ROWS)})
    monkeypatch.chdir(shop.root)
    assert 0 == ondatra("pause", "sync.crm").exit_code
    run_shop(shop)
    assert 0 == ondatra("resume", "sync.crm").exit_code
    assert [] == blocking_api.calls
    return shop


def newest(shop: ShopProject) -> PastRun:
    return shop.workspace.history.list_runs("sync.crm", limit=1)[0]


def counts(run: PastRun) -> dict[str, object]:
    grid = run.counts["grid"]
    assert isinstance(grid, dict)
    return {name: grid[name]["insert"] for name in ("planned", "attempted", "succeeded", "failed")}


@pytest.mark.parametrize("number", CODES)
def test_an_interrupted_run_ends_with_its_counts(
    shop_with_waiting_rows: ShopProject, blocking_api: BlockingApi, number: signal.Signals, ondatra: CommandLine
) -> None:
    """The call in progress is answered and counts. The next run sends the other rows, and none twice."""
    command = InterruptibleCommand("run", cwd=shop_with_waiting_rows.root)
    blocking_api.wait_for_calls(ANSWERED + 1)
    command.interrupt(number)
    command.interrupt(number)  # a second signal changes nothing
    blocking_api.answer_one()
    code, output = command.wait()
    blocking_api.answer_all()
    assert (CODES[number], [INTERRUPTED_MESSAGE]) == (code, output.splitlines()[-1:]), output
    assert "Traceback" not in output
    begun = len(blocking_api.calls)
    assert begun in MAY_BE_BEGUN
    expected_counts = {"planned": ROWS, "attempted": ANSWERED + 1, "succeeded": ANSWERED + 1, "failed": 0}
    assert ("interrupted", expected_counts) == (
        newest(shop_with_waiting_rows).result,
        counts(newest(shop_with_waiting_rows)),
    )
    assert "interrupted" in ondatra("history").stdout
    assert 0 == ondatra("run").exit_code
    assert ROWS + begun - ANSWERED - 1 == len(blocking_api.calls)
    assert ROWS == len({call.idempotency_key for call in blocking_api.calls})


def test_an_interrupted_run_does_not_wait_for_an_api_without_an_answer(
    shop_with_waiting_rows: ShopProject, blocking_api: BlockingApi
) -> None:
    """The result of that call is unknown, so it is made again with the same key."""
    command = InterruptibleCommand("replay", "sync.crm", cwd=shop_with_waiting_rows.root)
    blocking_api.wait_for_calls(ANSWERED + 1)
    command.interrupt()
    code, output = command.wait()
    assert (130, [INTERRUPTED_MESSAGE]) == (code, output.splitlines()[-1:]), output
    assert ("interrupted", ANSWERED) == (
        newest(shop_with_waiting_rows).result,
        counts(newest(shop_with_waiting_rows))["succeeded"],
    )
    blocking_api.answer_all()
    again = InterruptibleCommand("run", cwd=shop_with_waiting_rows.root)
    assert 0 == again.wait()[0]
    assert ROWS + 1 == len(blocking_api.calls)
    assert ROWS == len({call.idempotency_key for call in blocking_api.calls})


def test_a_dagster_run_that_is_ended_by_sigterm_is_not_a_crash(
    shop_with_waiting_rows: ShopProject, blocking_api: BlockingApi
) -> None:
    """Kubernetes and systemd end a run worker in this way. Dagster has its own signal handlers there."""
    (shop_with_waiting_rows.root / "defs.py").write_text(
        "import pathlib\nfrom ondatra_dagster import build_definitions\n"
        "defs = build_definitions(pathlib.Path(__file__).parent)\n"
    )
    words = ("asset", "materialize", "--select", "key:push/sync/crm", "-f", "defs.py")
    command = InterruptibleCommand(*words, cwd=shop_with_waiting_rows.root, module="dagster")
    blocking_api.wait_for_calls(ANSWERED + 1)
    command.interrupt(signal.SIGTERM)
    blocking_api.answer_one()
    code, output = command.wait()
    blocking_api.answer_all()
    assert code, output
    run = newest(shop_with_waiting_rows)
    assert ("interrupted", ANSWERED + 1) == (run.result, counts(run)["succeeded"])
    assert len(blocking_api.calls) in MAY_BE_BEGUN
    assert not (shop_with_waiting_rows.root / ".ondatra" / "logs" / "errors.log").exists()


def test_a_command_interrupted_while_it_reads_the_project_prints_a_message(shop: ShopProject) -> None:
    """A file of the project may take long to read, for example from a network disk."""
    settings = shop.root / "pyproject.toml"
    settings.unlink()
    os.mkfifo(settings)
    command = InterruptibleCommand("run", cwd=shop.root)
    with settings.open("w"):  # returns when the file is being read
        command.interrupt()
        assert (130, INTERRUPTED_MESSAGE + "\n") == command.wait()


BLOCKED = """
import sys
class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == "click":
            open({fifo!r}).read()
sys.meta_path.insert(0, Finder())
"""


def test_a_command_interrupted_while_it_is_being_loaded_prints_a_message(tmp_path: Path) -> None:
    """A command needs half a second to load all its modules."""
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    (tmp_path / "sitecustomize.py").write_text(BLOCKED.format(fifo=str(fifo)))
    command = InterruptibleCommand("status", cwd=tmp_path, variables={"PYTHONPATH": str(tmp_path)})
    with fifo.open("w"):  # returns when the import waits
        command.interrupt()
    assert (130, INTERRUPTED_MESSAGE + "\n") == command.wait()
