"""`ondatra … | head`: whoever stops reading fails nothing, and the exit code is as without the pipe."""

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from support.processes.cli_terminal import CommandLine
from support.projects.shop_project import ShopProject
from support.projects.shop_with_history import run_shop

ROOT = Path(__file__).parents[3]
COMMANDS = (
    ("history",),
    ("records", "sync.crm", "--json"),
    ("dead", "sync.crm"),
    ("query", "raw.contacts", "--json"),
    ("status",),
    ("--help",),
)


def closed() -> int:
    """The end of a pipe whose reader has gone."""
    read, write = os.pipe()
    os.close(read)
    return write


def run_verb(shop: ShopProject, *words: str) -> int:
    """The exit code of a command that writes where nobody reads."""
    outputs = [closed(), closed()]
    command = [sys.executable, "-m", "ondatra_dagster.cli.exit_codes_signals_and_pipes", *words]
    variables = {**os.environ, "PYTHONPATH": str(ROOT)}
    process = subprocess.Popen(command, cwd=shop.root, env=variables, stdout=outputs[0], stderr=outputs[1])
    for output in outputs:
        os.close(output)
    return process.wait(60)


def has_errors(shop: ShopProject) -> bool:
    return (shop.root / ".ondatra" / "logs" / "errors.log").exists()


def test_a_command_that_nobody_reads_ends_as_any(shop: ShopProject, ondatra: CommandLine) -> None:
    """No trace is left either."""
    run_shop(shop)
    codes = {words: ondatra(*words).exit_code for words in COMMANDS}
    assert codes == {words: run_verb(shop, *words) for words in COMMANDS}
    assert not has_errors(shop)


@pytest.mark.parametrize("words", [("run",), ("run", "--json"), ("run", "--dry-run")], ids=" ".join)
def test_a_run_that_nobody_reads_goes_well(shop: ShopProject, ondatra: CommandLine, words: tuple[str, ...]) -> None:
    """What is said comes through Dagster's steps, which must not fail for it."""
    assert 0 == ondatra("pause", "sync.crm").exit_code
    run_shop(shop)
    assert 0 == ondatra("resume", "sync.crm").exit_code
    assert 0 == run_verb(shop, *words)
    assert not has_errors(shop)
    assert ("--dry-run" in words) == (shop.workspace.try_read_queue("sync.crm").status.depth > 0)  # type: ignore[union-attr]


def test_a_run_without_streams_goes_well(shop: ShopProject, ondatra: CommandLine) -> None:
    """As a service may be started; files that are opened must not take their places."""
    assert 0 == ondatra("pause", "sync.crm").exit_code
    run_shop(shop)
    assert 0 == ondatra("resume", "sync.crm").exit_code
    words = f"exec {shlex.quote(sys.executable)} -m ondatra_dagster.cli.exit_codes_signals_and_pipes run <&- >&- 2>&-"
    variables = {**os.environ, "PYTHONPATH": str(ROOT)}
    assert 0 == subprocess.run(["/bin/sh", "-c", words], cwd=shop.root, env=variables, check=False).returncode
    assert not has_errors(shop)
