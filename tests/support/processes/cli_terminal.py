"""The command line in tests: commands in this process or at a pseudo-terminal, with their output."""

import contextlib
import dataclasses
import os
import subprocess
import sys
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import BinaryIO

import orjson
import pytest
from support.projects.shop_project import ShopProject

from ondatra_dagster.cli.commands.run import RunCommandOptions, execute_plan, plan_run
from ondatra_dagster.cli.main import run_verb

ROOT = Path(__file__).parents[3]


@dataclasses.dataclass
class CommandResult:
    """The exit code and the output of a command."""

    exit_code: int
    stdout: str
    stderr: str

    @property
    def json_lines(self) -> list[dict[str, object]]:
        """Return the output as JSON, line by line."""
        return [orjson.loads(line) for line in self.stdout.splitlines()]


def _read_screen(screen: BinaryIO) -> Iterator[bytes]:
    with contextlib.suppress(OSError):  # Linux raises EIO once the terminal's other end is closed
        while text := os.read(screen.fileno(), 10_000):
            yield text


@dataclasses.dataclass
class CommandLine:
    capture: pytest.CaptureFixture[str]

    def __call__(self, *words: str, shop: ShopProject | None = None) -> CommandResult:
        """Run a command; with a shop, it opens the shop's tables instead of Spark's."""
        self.capture.readouterr()
        return self._read_result(run_verb(words, open_service=shop.open_engine if shop else None))

    def run_on_terminal(self, *words: str, columns: int) -> list[str]:
        """Run a command without Spark at a real terminal of that width; return the lines that it shows."""
        screen, end = os.openpty()
        with subprocess.Popen(
            [sys.executable, "-m", "ondatra_dagster.cli.main", *words],
            env={**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": str(columns)},
            stdout=end,
            stderr=end,
        ):
            os.close(end)
            with os.fdopen(screen, "rb") as shown:
                return b"".join(_read_screen(shown)).decode().splitlines()

    def run_project(
        self,
        shop: ShopProject,
        *,
        as_json: bool = False,
        is_full: bool = False,
        is_dry: bool = False,
        allow_deletes: Collection[str] = (),
    ) -> CommandResult:
        """Do what `ondatra run` does, without a JVM."""
        self.capture.readouterr()
        workspace = shop.workspace
        plan = plan_run(workspace, is_full=is_full, is_dry=is_dry)
        options = RunCommandOptions(as_json=as_json, allow_deletes=allow_deletes, is_dry=is_dry)
        code = execute_plan(workspace, plan, options, open_service=shop.open_engine)
        return self._read_result(code)

    def _read_result(self, code: int) -> CommandResult:
        captured = self.capture.readouterr()
        return CommandResult(code, captured.out, captured.err)
