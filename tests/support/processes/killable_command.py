"""An `ondatra run` process that a test can kill. Its JVM isn't killed and has to notice the end itself."""

import contextlib
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

ROUND_SECONDS = 180


class KillableCommand:
    """A process of `ondatra run`, or of another verb."""

    def __init__(self, root: Path, verb: str = "run") -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "ondatra_dagster.cli.main", verb],
            cwd=root,
            stderr=subprocess.PIPE,
            text=True,
            bufsize=1,
        )
        self.output = ""

    def wait_until(self, is_reached: Callable[["KillableCommand"], bool]) -> None:
        assert self._process.stderr
        give_up_at = time.monotonic() + ROUND_SECONDS
        while not is_reached(self):
            assert time.monotonic() < give_up_at, self.output
            if select.select([self._process.stderr], [], [], 0.005)[0]:
                line = self._process.stderr.readline()
                assert line, f"the run ended before it could be killed:\n{self.output}"
                self.output += line

    def kill(self) -> None:
        """Kill the Python process, as a crash does. Its JVM isn't killed and has to notice the end itself."""
        self._process.send_signal(signal.SIGKILL)
        self._process.wait()
        assert self._process.stderr
        self._process.stderr.close()

    def wait(self) -> int:
        _, rest = self._process.communicate(timeout=ROUND_SECONDS)
        self.output += rest
        return self._process.returncode

    @property
    def jvm_pid(self) -> str | None:
        """Return the process id of its JVM; None while it has none."""
        return find_child_jvm(self._process.pid)


def find_child_jvm(pid: int) -> str | None:
    """Return the process id of the JVM that any thread of a process has started, or None."""
    tasks = Path(f"/proc/{pid}/task").glob("*/children")
    children = [child for task in tasks for child in _read_proc_file(task).split()]
    return next((child for child in children if b"java" in _read_command_line(child)), None)


def _read_proc_file(file: Path) -> str:
    try:
        return file.read_text()
    except FileNotFoundError:
        return ""  # that thread has ended


def _read_command_line(pid: str) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return b""


def wait_for_exit(pid: str) -> None:
    """Wait until the process has ended."""
    with contextlib.suppress(ProcessLookupError):
        descriptor = os.pidfd_open(int(pid))
        try:
            select.select([descriptor], [], [], ROUND_SECONDS)
        finally:
            os.close(descriptor)
