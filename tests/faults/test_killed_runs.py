"""`ondatra run` killed with its JVM at work: the next run completes it, nothing is lost, one call may double.

Each round starts two JVMs, so this belongs to `make soak`.
"""

import collections
import json
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support.shop import lay_down, write_contacts

from ondatra_dagster.testing.demo_api import DemoApi, running_demo_api

pytestmark = pytest.mark.soak

ROUND_SECONDS = 180


class Run:
    """One `ondatra run` in a process group of its own."""

    def __init__(self, root: Path) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "ondatra_dagster.cli.main", "run"],
            cwd=root,
            stderr=subprocess.PIPE,
            text=True,
            bufsize=1,
        )
        self.said = ""

    def wait_until(self, happened: Callable[["Run"], bool]) -> None:
        assert self._process.stderr
        give_up_at = time.monotonic() + ROUND_SECONDS
        while not happened(self):
            assert time.monotonic() < give_up_at, self.said
            if select.select([self._process.stderr], [], [], 0.005)[0]:
                line = self._process.stderr.readline()
                assert line, f"the run ended before it could be killed:\n{self.said}"
                self.said += line

    def kill(self) -> None:
        """End the Python process as a crash would; its JVM is left to notice by itself."""
        self._process.send_signal(signal.SIGKILL)
        self._process.wait()
        assert self._process.stderr
        self._process.stderr.close()

    def end(self) -> int:
        _, rest = self._process.communicate(timeout=ROUND_SECONDS)
        self.said += rest
        return self._process.returncode

    @property
    def has_a_jvm(self) -> bool:
        children = Path(f"/proc/{self._process.pid}/task/{self._process.pid}/children").read_text()
        return any(b"java" in _command(child) for child in children.split())


def _command(pid: str) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except FileNotFoundError:
        return b""


@pytest.fixture
def api() -> Iterator[DemoApi]:
    with running_demo_api() as api:
        yield api


def calls(api: DemoApi, count: int) -> Callable[[Run], bool]:
    seen = len(api.calls)
    return lambda run: len(api.calls) >= seen + count


def said(text: str) -> Callable[[Run], bool]:
    return lambda run: text in run.said


MOMENTS: dict[str, Callable[[DemoApi], Callable[[Run], bool]]] = {
    "as its JVM comes up": lambda api: lambda run: run.has_a_jvm,
    "after the first table": lambda api: said("raw.contacts"),
    "after the table that is pushed": lambda api: said("sync.crm  "),
    "in the first call": lambda api: calls(api, 1),
    "among the calls": lambda api: calls(api, 40),
}


def test_a_run_killed_at_five_moments_is_completed_by_the_next(api: DemoApi, tmp_path: Path) -> None:
    """What a laptop that goes to sleep, or a node that is taken away, does to a run."""
    root = lay_down(tmp_path / "a shop", url=api.url)
    for kills, (moment, event) in enumerate(MOMENTS.items(), start=1):
        emails = {f"c{n}": f"{kills}.{n}@example.com" for n in range(100)}
        write_contacts(root, **emails)
        run = Run(root)
        run.wait_until(event(api))
        run.kill()
        again = Run(root)
        assert 0 == again.end(), f"{moment}: {again.said}"
        assert emails == {key: row["email"] for key, row in api.contacts().items()}, moment
        sent = collections.Counter((call.method, json.dumps(call.body)) for call in api.calls)
        assert sent.total() - len(sent) <= kills, moment


def test_the_queue_folder_deleted_after_a_kill_loses_nothing(api: DemoApi, tmp_path: Path) -> None:
    """What was recorded isn't sent again, what wasn't is."""
    root = lay_down(tmp_path / "shop", url=api.url)
    emails = {f"c{n}": f"{n}@example.com" for n in range(100)}
    write_contacts(root, **emails)
    assert 0 == Run(root).end()
    for file in (root / ".ondatra" / "queue").iterdir():
        file.unlink()
    before = len(api.calls)
    write_contacts(root, **{**emails, "c7": "seven@example.com"})
    assert 0 == Run(root).end()
    assert [("PATCH", "/crm/contacts/c7")] == [(call.method, call.path) for call in api.calls[before:]]
