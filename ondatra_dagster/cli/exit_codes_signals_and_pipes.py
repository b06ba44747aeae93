"""The process of a command: its exit code, its signals, and output streams that survive a closed pipe."""

import contextlib
import errno
import io
import os
import queue
import sys
import threading
from collections.abc import Callable
from typing import Any, NoReturn, TextIO

from ondatra_dagster import interruption

BROKEN_PIPE_ERRORS = (errno.EPIPE, errno.EIO)  # the pipe has no reader any more, or the terminal is closed


class _PipeSafeOutput(io.FileIO):
    """A file descriptor that becomes /dev/null when its reader closes it."""

    def write(self, data: Any, /) -> int:
        try:
            return super().write(data)
        except OSError as error:
            if error.errno not in BROKEN_PIPE_ERRORS:
                raise
        _open_null(self.fileno())
        return memoryview(data).nbytes


def protect_streams() -> None:
    """Make writes to stdout and stderr succeed even without a reader, in this process, Dagster and child processes."""
    for number in range(3):
        if not _is_open(number):
            # without this, the next file that is opened would get this number and the output
            _open_null(number)
    sys.stdin = sys.stdin or open(os.devnull, encoding="utf-8")  # noqa: PTH123, SIM115 - for the process's life
    sys.stdout = _protected_stream(sys.stdout, 1)
    sys.stderr = _protected_stream(sys.stderr, 2)


def _protected_stream(stream: TextIO | None, number: int) -> TextIO:
    """Return a stream like `stream` over the descriptor with this number, whose reader may close it."""
    if stream:
        stream.flush()
    return io.TextIOWrapper(
        io.BufferedWriter(_PipeSafeOutput(number, "wb", closefd=False)),
        encoding=stream.encoding if stream else "utf-8",
        errors=stream.errors if stream else "backslashreplace",
        line_buffering=stream.line_buffering if isinstance(stream, io.TextIOWrapper) else True,
    )


def _is_open(number: int) -> bool:
    try:
        os.fstat(number)
    except OSError:
        return False
    return True


def _open_null(number: int) -> None:
    null = os.open(os.devnull, os.O_RDWR)
    if null != number:
        os.dup2(null, number)
        os.close(null)


INTERRUPTED_MESSAGE = "interrupted; run it again to continue"
FAILURE_CODE = 1


def main() -> None:
    """Run the command `ondatra`. Signals are recorded even while the command's modules are loaded."""
    with interruption.record_signals():
        from ondatra_dagster.cli.main import main as run

        run()


def run_process(command: Callable[[], int]) -> NoReturn:
    """Run the command and end the process with its exit code, or with 130 or 143 after Ctrl-C or SIGTERM."""

    protect_streams()
    exit_codes: queue.SimpleQueue[int | None] = queue.SimpleQueue()  # receives the exit code, or None for a signal
    with interruption.record_signals(), interruption.on_interruption(lambda: exit_codes.put(None)):
        threading.Thread(target=_run_command, args=(command, exit_codes), name="command", daemon=True).start()
        code = exit_codes.get()
        # the grace period is mostly zero: then the command has nothing to clean up, and nothing waits for it
        if code is None:
            with contextlib.suppress(queue.Empty):
                code = exit_codes.get(timeout=interruption.grace_seconds())
        if interruption.received_signal() is None:
            sys.exit(code)
        _end_interrupted()


def _run_command(command: Callable[[], int], exit_codes: "queue.SimpleQueue[int | None]") -> None:
    code = FAILURE_CODE
    try:
        code = command()
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else FAILURE_CODE
    finally:
        exit_codes.put(code)


def _end_interrupted() -> NoReturn:
    """Print that the process was interrupted, and end it at once.

    Python would otherwise wait for threads, some of which may still wait for an API.
    """
    from ondatra_dagster.cli.output import print_message

    print_message(INTERRUPTED_MESSAGE)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(interruption.exit_code())


if __name__ == "__main__":
    main()
