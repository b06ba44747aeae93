"""`ondatra … | head`: whoever stops reading fails nothing, and the exit code is as without the pipe."""

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from support.shop import Shop
from support.terminal import Terminal

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


def code_of(shop: Shop, *words: str) -> int:
    """The exit code of a command that writes where nobody reads."""
    outputs = [closed(), closed()]
    command = [sys.executable, "-m", "ondatra_dagster.cli.process", *words]
    variables = {**os.environ, "PYTHONPATH": str(ROOT)}
    process = subprocess.Popen(command, cwd=shop.root, env=variables, stdout=outputs[0], stderr=outputs[1])
    for output in outputs:
        os.close(output)
    return process.wait(60)


def has_errors(shop: Shop) -> bool:
    return (shop.root / ".ondatra" / "logs" / "errors.log").exists()


def test_a_command_that_nobody_reads_ends_as_any(shop: Shop, ondatra: Terminal) -> None:
    """No trace is left either."""
    ondatra.run(shop)
    codes = {words: ondatra(*words).code for words in COMMANDS}
    assert codes == {words: code_of(shop, *words) for words in COMMANDS}
    assert not has_errors(shop)


@pytest.mark.parametrize("words", [("run",), ("run", "--json"), ("run", "--dry-run")], ids=" ".join)
def test_a_run_that_nobody_reads_goes_well(shop: Shop, ondatra: Terminal, words: tuple[str, ...]) -> None:
    """What is said comes through Dagster's steps, which must not fail for it."""
    assert 0 == ondatra("pause", "sync.crm").code
    ondatra.run(shop)
    assert 0 == ondatra("resume", "sync.crm").code
    assert 0 == code_of(shop, *words)
    assert not has_errors(shop)
    assert ("--dry-run" in words) == (shop.workspace.queue_seen("sync.crm").state.depth > 0)  # type: ignore[union-attr]


def test_a_run_without_streams_goes_well(shop: Shop, ondatra: Terminal) -> None:
    """As a service may be started; files that are opened must not take their places."""
    assert 0 == ondatra("pause", "sync.crm").code
    ondatra.run(shop)
    assert 0 == ondatra("resume", "sync.crm").code
    words = f"exec {shlex.quote(sys.executable)} -m ondatra_dagster.cli.process run <&- >&- 2>&-"
    variables = {**os.environ, "PYTHONPATH": str(ROOT)}
    assert 0 == subprocess.run(["/bin/sh", "-c", words], cwd=shop.root, env=variables, check=False).returncode
    assert not has_errors(shop)
