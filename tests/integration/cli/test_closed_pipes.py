"""The commands in a pipe such as `ondatra … | head`: a reader that stops causes no failure and no other exit code."""

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
    """Return the write end of a pipe whose reader has closed it."""
    read, write = os.pipe()
    os.close(read)
    return write


def run_verb(shop: ShopProject, *words: str) -> int:
    """Return the exit code of a command whose output has no reader."""
    outputs = [closed(), closed()]
    command = [sys.executable, "-m", "ondatra_dagster.cli.exit_codes_signals_and_pipes", *words]
    variables = {**os.environ, "PYTHONPATH": str(ROOT)}
    process = subprocess.Popen(command, cwd=shop.root, env=variables, stdout=outputs[0], stderr=outputs[1])
    for output in outputs:
        os.close(output)
    return process.wait(60)


def has_errors(shop: ShopProject) -> bool:
    return (shop.root / ".ondatra" / "logs" / "errors.log").exists()


def test_a_command_without_a_reader_has_its_usual_exit_code(shop: ShopProject, ondatra: CommandLine) -> None:
    """It doesn't write a traceback either."""
    run_shop(shop)
    codes = {words: ondatra(*words).exit_code for words in COMMANDS}
    assert codes == {words: run_verb(shop, *words) for words in COMMANDS}
    assert not has_errors(shop)


@pytest.mark.parametrize("words", [("run",), ("run", "--json"), ("run", "--dry-run")], ids=" ".join)
def test_a_run_without_a_reader_succeeds(shop: ShopProject, ondatra: CommandLine, words: tuple[str, ...]) -> None:
    """The output comes from Dagster's steps, which must not fail because of it."""
    assert 0 == ondatra("pause", "sync.crm").exit_code
    run_shop(shop)
    assert 0 == ondatra("resume", "sync.crm").exit_code
    assert 0 == run_verb(shop, *words)
    assert not has_errors(shop)
    assert ("--dry-run" in words) == (shop.workspace.try_read_queue("sync.crm").status.depth > 0)  # type: ignore[union-attr]


def test_a_run_without_standard_streams_succeeds(shop: ShopProject, ondatra: CommandLine) -> None:
    """A service may be started like this. Files that the run opens must not get the streams' numbers."""
    assert 0 == ondatra("pause", "sync.crm").exit_code
    run_shop(shop)
    assert 0 == ondatra("resume", "sync.crm").exit_code
    words = f"exec {shlex.quote(sys.executable)} -m ondatra_dagster.cli.exit_codes_signals_and_pipes run <&- >&- 2>&-"
    variables = {**os.environ, "PYTHONPATH": str(ROOT)}
    assert 0 == subprocess.run(["/bin/sh", "-c", words], cwd=shop.root, env=variables, check=False).returncode
    assert not has_errors(shop)
