"""The report of an unexpected error: a sentence for the user, and a trace in a file for the developer."""

import contextlib
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from ondatra_dagster.errors import StateError
from ondatra_dagster.log_line_escaping import format_traceback
from ondatra_dagster.storage.file_errors import disk_error
from ondatra_dagster.storage.private_files import make_private_folder, make_state_folder_private, open_private_file


def store_trace(error: Exception, state: Path | None) -> str:
    """Return the error as a sentence, and store its trace in the project's logs.

    Without a project, or if its disk is full or read-only, the trace is written to a temporary file. A disk
    error is only explained, without a trace.
    """
    if fault := disk_error(error, state or Path.cwd()):
        return str(fault)
    return f"{type(error).__name__}: {error}; {_write_trace(error, state)}"


def _write_trace(error: Exception, state: Path | None) -> str:
    """Write the trace to the first file that can be written, and return a phrase that names this file."""
    reason = ""
    for open_log in ([_open_log(state)] if state else []) + [_open_temporary_file()]:
        try:
            with open_log as file:
                file.write(format_traceback(error))
        except (OSError, StateError) as problem:
            reason = str(problem)
        else:
            return f"the whole trace is in {file.name}"
    return f"its trace couldn't be written ({reason})"


@contextlib.contextmanager
def _open_log(state: Path) -> Iterator[IO[str]]:
    make_state_folder_private(state)
    path = state / "logs" / "errors.log"
    make_private_folder(path.parent)
    with open_private_file(path, "a", "utf-8") as file:
        yield file


@contextlib.contextmanager
def _open_temporary_file() -> Iterator[IO[str]]:
    """Open a temporary file that outlives the process and that only its owner can read."""
    with tempfile.NamedTemporaryFile("w", prefix="ondatra-", suffix=".log", delete=False, encoding="utf-8") as file:
        yield file
