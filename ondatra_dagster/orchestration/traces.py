"""Faults that nobody foresaw: a sentence for who meets them, and the trace in a file for who mends them."""

from pathlib import Path

from ondatra_dagster.log_lines import traceback_lines
from ondatra_dagster.store.private_folder import keep_private, make_private, open_private


def keep_trace(error: Exception, state: Path) -> str:
    """The fault as a sentence; its trace goes into the project's logs."""
    keep_private(state)
    path = state / "logs" / "errors.log"
    make_private(path.parent)
    with open_private(path, "a", "utf-8") as file:
        file.write(traceback_lines(error))
    return f"{type(error).__name__}: {error}; the whole trace is in {path}"
