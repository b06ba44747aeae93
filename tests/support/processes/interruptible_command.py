"""An `ondatra …` process in its own process group, which a test interrupts as a terminal does."""

import contextlib
import fcntl
import os
import select
import signal
import subprocess
import sys
import termios
import time
from collections.abc import Mapping
from pathlib import Path

from support.processes.killable_command import find_child_jvm

ROOT = Path(__file__).parents[3]
END_SECONDS = 15  # the contract's limit, counted from the signal


class InterruptibleCommand:
    """A process whose whole group gets a signal."""

    def __init__(
        self,
        *words: str,
        cwd: Path,
        module: str = "ondatra_dagster.cli.exit_codes_signals_and_pipes",
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
            # a background shell may have set it to be ignored
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
        )

    def interrupt(self, number: int = signal.SIGINT) -> None:
        os.killpg(self.process.pid, number)

    def wait(self) -> tuple[int, str]:
        """Return the exit code and stderr."""
        _, output = self.process.communicate(timeout=END_SECONDS)
        return self.process.returncode, output


CTRL_C = b"\x03"
EVENT_SECONDS = 120


class TerminalCommand:
    """An `ondatra …` process at its own terminal, whose keys a test presses."""

    def __init__(self, *words: str, cwd: Path) -> None:
        self._screen, end = os.openpty()
        self.process = subprocess.Popen(
            [sys.executable, "-m", "ondatra_dagster.cli.exit_codes_signals_and_pipes", *words],
            cwd=cwd,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            stdin=end,
            stdout=end,
            stderr=end,
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
        )
        os.close(end)
        self.output = ""

    @property
    def jvm_pid(self) -> str | None:
        """Return the process id of its JVM; None while it has none."""
        return find_child_jvm(self.process.pid)

    def wait_for_text(self, text: str) -> None:
        give_up_at = time.monotonic() + EVENT_SECONDS
        while text not in self.output:
            assert time.monotonic() < give_up_at, self.output
            assert self._read_screen(), f"the command ended first:\n{self.output}"

    def wait_for_jvm(self) -> str:
        give_up_at = time.monotonic() + EVENT_SECONDS
        while (jvm := self.jvm_pid) is None:
            assert time.monotonic() < give_up_at, self.output
            assert self._read_screen(), f"the command ended first:\n{self.output}"
        return jvm

    def press_ctrl_c(self) -> None:
        os.write(self._screen, CTRL_C)

    def wait(self) -> tuple[int, str]:
        """Return the exit code and all output."""
        code = self.process.wait(END_SECONDS)
        while self._read_screen(seconds=0.1):
            pass
        os.close(self._screen)
        return code, self.output

    def _read_screen(self, seconds: float = 0.005) -> bool:
        """Read the available output; return False when the process has ended and nothing is left to read."""
        if not select.select([self._screen], [], [], seconds)[0]:
            return self.process.poll() is None
        with contextlib.suppress(OSError):  # Linux raises EIO once the terminal's other end is closed
            text = os.read(self._screen, 10_000).decode(errors="replace")
            self.output += text
            return bool(text)
        return False
