"""Standard streams that nobody has to read: `ondatra … | head` fails nothing."""

import errno
import io
import os
import sys
from typing import Any, TextIO

GONE = (errno.EPIPE, errno.EIO)  # the reader of a pipe has ended, the terminal is closed


class _Output(io.FileIO):
    """A file descriptor that becomes /dev/null when its reader has gone."""

    def write(self, data: Any, /) -> int:
        try:
            return super().write(data)
        except OSError as error:
            if error.errno not in GONE:
                raise
        _open_null(self.fileno())
        return memoryview(data).nbytes


def keep_streams_open() -> None:
    """Let writes to stdout and stderr succeed, whoever reads them: ours, Dagster's, a child's."""
    for number in range(3):
        if not _is_open(number):
            _open_null(number)  # else the next file that is opened gets the number, and what is printed
    sys.stdin = sys.stdin or open(os.devnull, encoding="utf-8")  # noqa: PTH123, SIM115 - for the process's life
    sys.stdout = _kept(sys.stdout, 1)
    sys.stderr = _kept(sys.stderr, 2)


def _kept(stream: TextIO | None, number: int) -> TextIO:
    """The same stream over a descriptor whose reader may go."""
    if stream:
        stream.flush()
    return io.TextIOWrapper(
        io.BufferedWriter(_Output(number, "wb", closefd=False)),
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
