"""The times that a user waits for: the start of the command, and a run that finds nothing to do.

The project is the one that `ondatra init` creates. The project's first run isn't timed. It needs Java and Delta's jars.
"""

import dataclasses
import os
import re
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

ONDATRA = (sys.executable, "-m", "ondatra_dagster.cli.main")


class CannotRunError(Exception):
    """The error for a command that failed. The command's output is on stderr."""


@dataclasses.dataclass(frozen=True, slots=True)
class RunProject:
    """A project that has been run, and has nothing to do."""

    root: Path

    @classmethod
    def create(cls, root: Path, api_url: str) -> "RunProject":
        project = cls.create_without_run(root)
        library = root / "lib" / "crm_push.star"
        text = re.sub(r"http://127\.0\.0\.1:\d+", api_url, library.read_text(encoding="utf-8"))
        library.write_text(text, encoding="utf-8")
        cls._run_command("run", cwd=root)
        return project

    @classmethod
    def create_without_run(cls, root: Path) -> "RunProject":
        """Return a new project whose first run is still to be made."""
        project = cls(root)
        project._run_command("init", str(root), cwd=root.parent)
        return project

    def command_seconds(self, *arguments: str) -> float:
        """Return how many seconds the command takes."""
        start_time = time.perf_counter()
        self._run_command(*arguments, cwd=self.root)
        return time.perf_counter() - start_time

    @staticmethod
    def _run_command(*arguments: str, cwd: Path) -> None:
        environ = {**os.environ, "DEMO_API_KEY": "bench", "PYTHONPATH": str(Path(__file__).parents[1])}
        process = subprocess.run(
            [*ONDATRA, *arguments], cwd=cwd, env=environ, capture_output=True, text=True, check=False
        )
        if process.returncode:
            print(process.stderr or process.stdout, file=sys.stderr)
            raise CannotRunError(f"not measured: `ondatra {arguments[0]}` failed")


def python_seconds(code: str) -> float:
    """Return how many seconds a Python process takes for only this code."""
    command: Sequence[str] = [sys.executable, "-c", code]
    start_time = time.perf_counter()
    subprocess.run(command, check=True)
    return time.perf_counter() - start_time
