"""`ondatra run` as a process that a test can kill: its JVM is left to notice by itself."""

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


class Run:
    """One `ondatra run`, or another verb, in a process of its own."""

    def __init__(self, root: Path, verb: str = "run") -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "ondatra_dagster.cli.main", verb],
            cwd=root,
            stderr=subprocess.PIPE,
            text=True,
            bufsize=1,
        )
        self.said = ""

    def wait_until(self, happened: Callable[["Run"], bool]) -> None:
        assert self._process.stderr
        give_up_at = time.monotonic() + ROUND_SECONDS
        while not happened(self):
            assert time.monotonic() < give_up_at, self.said
            if select.select([self._process.stderr], [], [], 0.005)[0]:
                line = self._process.stderr.readline()
                assert line, f"the run ended before it could be killed:\n{self.said}"
                self.said += line

    def kill(self) -> None:
        """End the Python process as a crash would; its JVM is left to notice by itself."""
        self._process.send_signal(signal.SIGKILL)
        self._process.wait()
        assert self._process.stderr
        self._process.stderr.close()

    def end(self) -> int:
        _, rest = self._process.communicate(timeout=ROUND_SECONDS)
        self.said += rest
        return self._process.returncode

    @property
    def jvm(self) -> str | None:
        """The process id of its JVM; None as long as it has none."""
        return child_jvm(self._process.pid)


def child_jvm(pid: int) -> str | None:
    """The JVM that a process has started, in whichever of its threads."""
    tasks = Path(f"/proc/{pid}/task").glob("*/children")
    children = [child for task in tasks for child in _text(task).split()]
    return next((child for child in children if b"java" in _command(child)), None)


def _text(file: Path) -> str:
    try:
        return file.read_text()
    except FileNotFoundError:
        return ""  # that thread has ended


def _command(pid: str) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return b""


def wait_for_the_end_of(pid: str) -> None:
    """Until no such process is left."""
    with contextlib.suppress(ProcessLookupError):
        descriptor = os.pidfd_open(int(pid))
        try:
            select.select([descriptor], [], [], ROUND_SECONDS)
        finally:
            os.close(descriptor)
