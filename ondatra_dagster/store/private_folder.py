"""The folders that ondatra writes into: they hold customers' rows, so they are their owner's only."""

import contextlib
from pathlib import Path

from ondatra_dagster.store.file_errors import explained

OWNERS_ONLY = 0o700
OTHERS = 0o077


def keep_private(state: Path) -> None:
    """Make the project's state folder where it isn't there, and take it back where others may read it.

    Dagster makes it as any folder when it is the first to write there. Every door that writes calls this
    before it does.
    """
    with explained(state):
        state.mkdir(mode=OWNERS_ONLY, parents=True, exist_ok=True)
    if state.stat().st_mode & OTHERS:
        with contextlib.suppress(OSError):  # another user's, or a read-only disk
            state.chmod(OWNERS_ONLY)
