"""Where a user of the command line types, and what they are told."""

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
    """How a command ended, and what it said."""

    exit_code: int
    stdout: str
    stderr: str

    @property
    def json_lines(self) -> list[dict[str, object]]:
        """What was said to programs."""
        return [orjson.loads(line) for line in self.stdout.splitlines()]


def _read_screen(screen: BinaryIO) -> Iterator[bytes]:
    with contextlib.suppress(OSError):  # Linux's word for the end of a terminal that nobody writes to
        while text := os.read(screen.fileno(), 10_000):
            yield text


@dataclasses.dataclass
class CommandLine:
    capture: pytest.CaptureFixture[str]

    def __call__(self, *words: str, shop: ShopProject | None = None) -> CommandResult:
        """Type a command; in a shop its tables are opened in the place of Spark's."""
        self.capture.readouterr()
        return self._read_result(run_verb(words, opened=shop.open_engine if shop else None))

    def run_on_terminal(self, *words: str, columns: int) -> list[str]:
        """Type a command that needs no Spark at a real terminal, so wide; the lines that it shows there."""
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
        """`ondatra run`, but for the JVM."""
        self.capture.readouterr()
        workspace = shop.workspace
        plan = plan_run(workspace, is_full=is_full, is_dry=is_dry)
        options = RunCommandOptions(as_json=as_json, allow_deletes=allow_deletes, is_dry=is_dry)
        code = execute_plan(workspace, plan, options, opened=shop.open_engine)
        return self._read_result(code)

    def _read_result(self, code: int) -> CommandResult:
        captured = self.capture.readouterr()
        return CommandResult(code, captured.out, captured.err)
