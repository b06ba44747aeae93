"""The engine: Spark that runs share. A killed run or a killed engine costs no row, and no result."""

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.processes.killable_command import KillableCommand, wait_for_exit
from support.projects.shop_project import write_contacts, write_shop_files

from ondatra_dagster.storage.file_lock import is_locked
from ondatra_dagster.testing.demo_api import DemoApi

pytestmark = pytest.mark.soak

WAIT_SECONDS = 180
WARM = "Spark is warm"


@pytest.fixture
def root(api: DemoApi, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Yield a project of one sync whose runs use an engine, and end the engines."""
    monkeypatch.setenv("ONDATRA_ENGINE", "on")
    monkeypatch.setenv("ONDATRA_SPARK_MASTER", "local[2]")
    root = write_shop_files(tmp_path / "a shop", url=api.url)
    write_contacts(root, a1="ada@example.com")
    yield root
    if root.exists():
        ondatra(root, "engine", "stop")


def ondatra(root: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run a command to its end. It returns at the end of the command, although an engine that it started goes on."""
    command = [sys.executable, "-m", "ondatra_dagster.cli.main", *words]
    return subprocess.run(command, cwd=root, capture_output=True, text=True, check=False, timeout=WAIT_SECONDS)


def run(root: Path) -> str:
    """Run the project, which succeeds, and return its messages."""
    completed = ondatra(root, "run")
    assert completed.returncode == 0, completed.stdout + completed.stderr
    return completed.stderr


def engines(root: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in ondatra(root, "engine", "--json").stdout.splitlines()]


def emails(api: DemoApi) -> dict[str, object]:
    return {key: contact["email"] for key, contact in api.contacts().items()}


def test_runs_share_an_engine_and_send_the_same_rows(root: Path, api: DemoApi, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second run finds Spark running. A run with other settings starts another engine."""
    assert WARM not in run(root)
    write_contacts(root, a1="ada@example.org", b2="bo@example.com")
    assert WARM in run(root)
    assert {"a1": "ada@example.org", "b2": "bo@example.com"} == emails(api)
    (engine,) = engines(root)
    assert engine["open_leases"] + engine["ended_leases"] == 2
    write_contacts(root, a1="ada@example.net")
    monkeypatch.setenv("ONDATRA_SPARK_CONF", '{"spark.sql.files.maxPartitionBytes": "1000000"}')
    assert WARM not in run(root)
    assert {engine["process"]} < {each["process"] for each in engines(root)}
    assert ondatra(root, "engine", "stop").returncode == 0
    assert [] == engines(root)


def test_what_the_engine_remembers_is_never_older_than_the_disk(root: Path, api: DemoApi) -> None:
    """The warehouse is deleted between two runs, and the tables are created again at the same paths."""
    run(root)
    shutil.rmtree(root / ".ondatra" / "warehouse")
    write_contacts(root, a1="ada@example.org", b2="bo@example.com")
    assert WARM in ondatra(root, "run").stderr
    assert ondatra(root, "resync", "sync.crm").returncode == 0
    run(root)
    assert {"a1": "ada@example.org", "b2": "bo@example.com"} == emails(api)


def test_a_killed_engine_is_replaced(root: Path, api: DemoApi) -> None:
    run(root)
    (engine,) = engines(root)
    os.kill(engine["process"], signal.SIGKILL)
    wait_for_exit(str(engine["process"]))
    write_contacts(root, a1="ada@example.org")
    assert WARM not in run(root)
    assert {"a1": "ada@example.org"} == emails(api)
    assert engine["process"] not in {each["process"] for each in engines(root)}


def test_an_engine_that_hangs_costs_a_sentence_and_can_be_stopped(root: Path, api: DemoApi) -> None:
    run(root)
    (engine,) = engines(root)
    os.kill(engine["process"], signal.SIGSTOP)
    write_contacts(root, a1="ada@example.org")
    assert "doesn't answer" in run(root)
    assert {"a1": "ada@example.org"} == emails(api)
    assert ondatra(root, "engine", "stop").returncode == 0
    wait_for_exit(str(engine["process"]))


def test_the_work_of_a_killed_run_ends_before_the_next_run_writes(root: Path, api: DemoApi) -> None:
    """The engine cancels the work. Without that, it would go on for minutes and then replace the next run's rows."""
    run(root)
    model = root / "models" / "raw" / "slow.sql"
    model.write_text(
        "-- @kind: table\nselect sum(a.id * b.id) as total from range(400000) a cross join range(400000) b\n"
    )
    killed = KillableCommand(root)
    killed.wait_until(lambda command: is_locked(root / ".ondatra" / "locks" / "raw.slow.lock"))
    killed.kill()
    model.write_text("-- @kind: table\nselect 7 as total\n")
    assert WARM in run(root)
    (line,) = ondatra(root, "query", "raw.slow", "--json").stdout.splitlines()
    assert {"total": 7} == json.loads(line)


def test_an_engine_ends_with_its_state_folder(root: Path) -> None:
    run(root)
    (engine,) = engines(root)
    shutil.rmtree(root)
    wait_for_exit(str(engine["process"]))
