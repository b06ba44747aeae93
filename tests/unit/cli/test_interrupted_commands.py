"""Ctrl-C and SIGTERM: no new call, one sentence, and a history that says what the run did until then.

These are processes with rows that wait, so they need no JVM; tests/faults has those with one.
"""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.held_api import HeldApi, held_api
from support.interrupted import Command
from support.shop import PUSH, Shop, write_contacts
from support.terminal import Terminal

from ondatra_dagster.cli.process import INTERRUPTED
from ondatra_dagster.tracking.history import PastRun

ROWS = 12
ANSWERED = 5
# the signal comes while a call is on its way; its answer may be read before the signal is noticed
MAY_BE_BEGUN = (ANSWERED + 1, ANSWERED + 2)
CODES = {signal.SIGINT: 130, signal.SIGTERM: 143}


@pytest.fixture
def held() -> Iterator[HeldApi]:
    with held_api(ANSWERED) as api:
        yield api


@pytest.fixture
def waiting(
    held: HeldApi, tmp_path: Path, dagster_home: Path, monkeypatch: pytest.MonkeyPatch, ondatra: Terminal
) -> Shop:
    """A shop with rows in its queue, each a batch of its own."""
    monkeypatch.setenv("DAGSTER_HOME", str(dagster_home))
    push = PUSH.format(url=held.url).replace('"retry": 0', '"retry": 0, "push": {"batch_size": 1}')
    shop = Shop.at(tmp_path / "shop", url=held.url, files={"lib/crm_push.star": push})
    write_contacts(shop.root, **{f"c{n}": f"{n}@example.com" for n in range(ROWS)})
    monkeypatch.chdir(shop.root)
    assert 0 == ondatra("pause", "sync.crm").code
    ondatra.run(shop)
    assert 0 == ondatra("resume", "sync.crm").code
    assert [] == held.calls
    return shop


def newest(shop: Shop) -> PastRun:
    return shop.workspace.history.runs("sync.crm", limit=1)[0]


def counts(run: PastRun) -> dict[str, object]:
    grid = run.counts["grid"]
    assert isinstance(grid, dict)
    return {name: grid[name]["insert"] for name in ("planned", "attempted", "succeeded", "failed")}


@pytest.mark.parametrize("number", CODES)
def test_a_run_that_sends_ends_with_its_counts(
    waiting: Shop, held: HeldApi, number: signal.Signals, ondatra: Terminal
) -> None:
    """The call on its way comes back and counts; the next run sends the others, and none twice."""
    command = Command("run", cwd=waiting.root)
    held.wait_for(ANSWERED + 1)
    command.interrupt(number)
    command.interrupt(number)  # whoever is impatient changes nothing
    held.answer_one()
    code, said = command.end()
    held.let_go()
    assert (CODES[number], [INTERRUPTED]) == (code, said.splitlines()[-1:]), said
    assert "Traceback" not in said
    begun = len(held.calls)
    assert begun in MAY_BE_BEGUN
    done = {"planned": ROWS, "attempted": ANSWERED + 1, "succeeded": ANSWERED + 1, "failed": 0}
    assert ("interrupted", done) == (newest(waiting).result, counts(newest(waiting)))
    assert "interrupted" in ondatra("history").out
    assert 0 == ondatra("run").code
    assert ROWS + begun - ANSWERED - 1 == len(held.calls)
    assert ROWS == len({call.idempotency_key for call in held.calls})


def test_an_api_that_does_not_answer_is_not_waited_for(waiting: Shop, held: HeldApi) -> None:
    """Nobody knows what became of that call, so it is made again under the same key."""
    command = Command("replay", "sync.crm", cwd=waiting.root)
    held.wait_for(ANSWERED + 1)
    command.interrupt()
    code, said = command.end()
    assert (130, [INTERRUPTED]) == (code, said.splitlines()[-1:]), said
    assert ("interrupted", ANSWERED) == (newest(waiting).result, counts(newest(waiting))["succeeded"])
    held.let_go()
    again = Command("run", cwd=waiting.root)
    assert 0 == again.end()[0]
    assert ROWS + 1 == len(held.calls)
    assert ROWS == len({call.idempotency_key for call in held.calls})


def test_a_dagster_run_that_is_told_to_end_is_no_crash(waiting: Shop, held: HeldApi) -> None:
    """As Kubernetes or systemd end a run worker: Dagster has its own handlers there."""
    (waiting.root / "defs.py").write_text(
        "import pathlib\nfrom ondatra_dagster.orchestration.definitions import build_definitions\n"
        "defs = build_definitions(pathlib.Path(__file__).parent)\n"
    )
    words = ("asset", "materialize", "--select", "key:push/sync/crm", "-f", "defs.py")
    command = Command(*words, cwd=waiting.root, module="dagster")
    held.wait_for(ANSWERED + 1)
    command.interrupt(signal.SIGTERM)
    held.answer_one()
    code, said = command.end()
    held.let_go()
    assert code, said
    run = newest(waiting)
    assert ("interrupted", ANSWERED + 1) == (run.result, counts(run)["succeeded"])
    assert len(held.calls) in MAY_BE_BEGUN
    assert not (waiting.root / ".ondatra" / "logs" / "errors.log").exists()


def test_a_command_that_reads_its_project_ends_with_a_sentence(shop: Shop) -> None:
    """A file of it may be slow to come, as on a network's disk."""
    settings = shop.root / "pyproject.toml"
    settings.unlink()
    os.mkfifo(settings)
    command = Command("run", cwd=shop.root)
    with settings.open("w"):  # returns when the file is being read
        command.interrupt()
        assert (130, INTERRUPTED + "\n") == command.end()


BLOCKED = """
import sys
class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == "click":
            open({fifo!r}).read()
sys.meta_path.insert(0, Finder())
"""


def test_a_command_that_is_being_loaded_ends_with_a_sentence(tmp_path: Path) -> None:
    """Half of a second passes before a command has all its modules."""
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    (tmp_path / "sitecustomize.py").write_text(BLOCKED.format(fifo=str(fifo)))
    command = Command("status", cwd=tmp_path, variables={"PYTHONPATH": str(tmp_path)})
    with fifo.open("w"):  # returns when the import waits
        command.interrupt()
    assert (130, INTERRUPTED + "\n") == command.end()
