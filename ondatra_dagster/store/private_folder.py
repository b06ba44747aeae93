"""The folders that ondatra writes into: they hold customers' rows, so they are their owner's only."""

import contextlib
import os
from pathlib import Path
from typing import IO, Any

from ondatra_dagster.store.file_errors import explained

OWNERS_ONLY = 0o700
OWNERS_FILE = 0o600
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


def make_private(folder: Path) -> None:
    """Make a folder and those above it that aren't there, each for its owner only."""
    if not folder.is_dir():
        make_private(folder.parent)
        folder.mkdir(mode=OWNERS_ONLY, exist_ok=True)


def open_private(path: str | Path, mode: str, encoding: str | None = None) -> IO[Any]:
    """Open a file to write it. It is for its owner only if it is made by this, whatever the umask."""
    return open(path, mode, encoding=encoding, opener=_open_owners)


def _open_owners(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_CLOEXEC, OWNERS_FILE)
