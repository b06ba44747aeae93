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
from support.shop import Shop

from ondatra_dagster.cli.main import code_of
from ondatra_dagster.cli.run import make_plan, run

ROOT = Path(__file__).parents[2]


@dataclasses.dataclass
class Said:
    """How a command ended, and what it said."""

    code: int
    out: str
    err: str

    @property
    def objects(self) -> list[dict[str, object]]:
        """What was said to programs."""
        return [orjson.loads(line) for line in self.out.splitlines()]


def _all_of(screen: BinaryIO) -> Iterator[bytes]:
    with contextlib.suppress(OSError):  # Linux's word for the end of a terminal that nobody writes to
        while text := os.read(screen.fileno(), 10_000):
            yield text


@dataclasses.dataclass
class Terminal:
    capture: pytest.CaptureFixture[str]

    def __call__(self, *words: str, shop: Shop | None = None) -> Said:
        """Type a command; in a shop its tables are opened in the place of Spark's."""
        self.capture.readouterr()
        return self._said(code_of(words, opened=shop.opened if shop else None))

    def on_a_screen(self, *words: str, columns: int) -> list[str]:
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
                return b"".join(_all_of(shown)).decode().splitlines()

    def run(
        self,
        shop: Shop,
        *,
        as_json: bool = False,
        is_full: bool = False,
        is_dry: bool = False,
        allow_deletes: Collection[str] = (),
    ) -> Said:
        """`ondatra run`, but for the JVM."""
        self.capture.readouterr()
        workspace = shop.workspace
        plan = make_plan(workspace, is_full=is_full, is_dry=is_dry)
        code = run(
            workspace,
            plan,
            as_json=as_json,
            opened=shop.opened,
            allow_deletes=allow_deletes,
            is_dry=is_dry,
        )
        return self._said(code)

    def _said(self, code: int) -> Said:
        captured = self.capture.readouterr()
        return Said(code, captured.out, captured.err)
