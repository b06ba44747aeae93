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

BROKEN_PIPE_ERRORS = (errno.EPIPE, errno.EIO)  # the reader of a pipe has ended, or the terminal is closed


class _PipeSafeOutput(io.FileIO):
    """A file descriptor that becomes /dev/null when its reader has closed it."""

    def write(self, data: Any, /) -> int:
        try:
            return super().write(data)
        except OSError as error:
            if error.errno not in BROKEN_PIPE_ERRORS:
                raise
        _open_null(self.fileno())
        return memoryview(data).nbytes


def protect_streams() -> None:
    """Make writes to stdout and stderr succeed without a reader, for this process, Dagster and child processes."""
    for number in range(3):
        if not _is_open(number):
            # otherwise the next opened file gets this number, and with it the output
            _open_null(number)
    sys.stdin = sys.stdin or open(os.devnull, encoding="utf-8")  # noqa: PTH123, SIM115 - for the process's life
    sys.stdout = _protected_stream(sys.stdout, 1)
    sys.stderr = _protected_stream(sys.stderr, 2)


def _protected_stream(stream: TextIO | None, number: int) -> TextIO:
    """Return the same stream over a descriptor whose reader may close it."""
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
    """Run the command `ondatra`. Signals are recorded already while its modules are loaded."""
    with interruption.record_signals():
        from ondatra_dagster.cli.main import main as run

        run()


def run_process(command: Callable[[], int]) -> NoReturn:
    """End the process with the command's exit code; with 130 or 143 after Ctrl-C or SIGTERM."""

    protect_streams()
    exit_codes: queue.SimpleQueue[int | None] = queue.SimpleQueue()  # None: a signal was received
    with interruption.record_signals(), interruption.on_interruption(lambda: exit_codes.put(None)):
        threading.Thread(target=_run_command, args=(command, exit_codes), name="command", daemon=True).start()
        code = exit_codes.get()
        # mostly the grace period is zero: the command has nothing to clean up, and isn't waited for
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

    Threads may still wait for an API, and Python would wait for some of them.
    """
    from ondatra_dagster.cli.output import print_message

    print_message(INTERRUPTED_MESSAGE)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(interruption.exit_code())


if __name__ == "__main__":
    main()
