"""`ondatra …` in a process group of its own, which a test interrupts as a terminal does."""

import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).parents[2]
END_SECONDS = 15  # what the contract allows, after the signal


class Command:
    """A process that a signal is sent to with all of its group."""

    def __init__(
        self,
        *words: str,
        cwd: Path,
        module: str = "ondatra_dagster.cli.process",
        variables: Mapping[str, str] | None = None,
    ) -> None:
        path = os.pathsep.join(filter(None, [(variables or {}).get("PYTHONPATH"), str(ROOT)]))
        self.process = subprocess.Popen(
            [sys.executable, "-m", module, *words],
            cwd=cwd,
            env={**os.environ, **(variables or {}), "PYTHONPATH": path},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            process_group=0,
            # a shell in the background may have had it ignored
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
        )

    def interrupt(self, number: int = signal.SIGINT) -> None:
        os.killpg(self.process.pid, number)

    def end(self) -> tuple[int, str]:
        """Its exit code, and what it said on stderr."""
        _, said = self.process.communicate(timeout=END_SECONDS)
        return self.process.returncode, said
