"""The effect of Ctrl-C at a terminal while Spark starts, works or ends: one message, and no JVM is left."""

from pathlib import Path

import pytest
from support.processes.interruptible_command import TerminalCommand
from support.processes.killable_command import KillableCommand, wait_for_exit
from support.projects.shop_project import write_contacts, write_shop_files

from ondatra_dagster.cli.exit_codes_signals_and_pipes import INTERRUPTED_MESSAGE
from ondatra_dagster.testing.demo_api import DemoApi

ENDLESS = (
    "SELECT count(*) AS n FROM range(0, 1000000000, 1, 2) a CROSS JOIN range(1000000) b WHERE hash(a.id, b.id) = 7\n"
)


@pytest.fixture
def root(api: DemoApi, tmp_path: Path) -> Path:
    root = write_shop_files(tmp_path / "shop", url=api.url)
    write_contacts(root, a1="ada@example.com")
    return root


def interrupted_at(command: TerminalCommand) -> str:
    """Press Ctrl-C, check how the command ends, and return the screen."""
    jvm = command.wait_for_jvm()
    command.press_ctrl_c()
    code, output = command.wait()
    assert 130 == code, output
    assert output.replace("\x1b[2K", "").rstrip().endswith(INTERRUPTED_MESSAGE), output
    assert not any(word in output for word in ("Traceback", "ERROR", "py4j", "KeyError", "failed")), output
    wait_for_exit(jvm)
    return output


def test_ctrl_c_interrupts_a_run_while_spark_starts_works_and_ends(root: Path) -> None:
    """The next run then delivers all that is missing."""
    interrupted_at(TerminalCommand("run", cwd=root))
    endless = root / "models" / "raw" / "endless.sql"
    endless.write_text(ENDLESS)
    command = TerminalCommand("run", "raw.endless", cwd=root)
    command.wait_for_text("Spark has done")
    interrupted_at(command)
    endless.unlink()
    command = TerminalCommand("run", cwd=root)
    command.wait_for_text("delivered")
    interrupted_at(command)
    assert not (root / ".ondatra" / "logs" / "errors.log").exists()
    again = KillableCommand(root)
    assert 0 == again.wait(), again.output
