"""Dagster's own command line in a project, as a user types it."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import dagster as dg
import pytest
from support.shop import Shop, write_contacts

from ondatra_dagster.sync.hold import pause, resume
from ondatra_dagster.testing.demo_api.server import DemoApi

ROOT = Path(__file__).parents[3]
FILES = ("ondatra_project/__init__.py", "ondatra_project/definitions.py", "dagster.yaml")
EXECUTE = ("job", "execute", "-m", "ondatra_project.definitions", "-j", "__ASSET_JOB")


def dagster(folder: Path, *words: str) -> int:
    """The exit code of a command; DAGSTER_HOME isn't needed."""
    environ = {name: value for name, value in os.environ.items() if name != "DAGSTER_HOME"}
    return subprocess.run(
        [sys.executable, "-m", "dagster", *words],
        cwd=folder,
        env={**environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        check=False,
        timeout=120,
    ).returncode


@pytest.mark.parametrize(("email", "code", "held"), [("ada@example.com", 0, {"a1"}), ("nonsense", 1, set())])
def test_a_job_that_is_executed_does_what_a_run_does(
    materialize: Callable[..., dg.ExecuteInProcessResult],
    shop: Shop,
    api: DemoApi,
    email: str,
    code: int,
    held: set[str],
) -> None:
    """The same plan and queue: with nothing new no Spark starts, what waits goes out, and failures count."""
    for name in FILES:
        (shop.root / name).parent.mkdir(exist_ok=True)
        (shop.root / name).write_text((ROOT / name).read_text())
    write_contacts(shop.root, a1=email)
    (sync,) = shop.workspace.syncs.values()
    pause(sync)
    assert materialize(shop).success
    assert () == api.calls
    resume(sync)
    assert code == dagster(shop.root, *EXECUTE)
    assert held == set(api.contacts())
    assert ["Dagster", "Dagster"] == [run.trigger for run in shop.workspace.history.runs()]
    assert not (shop.root / ".ondatra" / "logs" / "spark.log").exists()
