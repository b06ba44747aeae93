"""The folders that ondatra writes into: they hold customers' rows, so they are their owner's only."""

import contextlib
import os
from pathlib import Path
from typing import IO, Any

from ondatra_dagster.storage.file_errors import explain_file_errors

FOLDER_MODE = 0o700
FILE_MODE = 0o600
OTHERS_MASK = 0o077


def make_state_folder_private(state: Path) -> None:
    """Make the project's state folder where it isn't there, and take it back where others may read it.

    Dagster makes it as any folder when it is the first to write there. Every door that writes calls this
    before it does.
    """
    with explain_file_errors(state):
        state.mkdir(mode=FOLDER_MODE, parents=True, exist_ok=True)
    if state.stat().st_mode & OTHERS_MASK:
        with contextlib.suppress(OSError):  # another user's, or a read-only disk
            state.chmod(FOLDER_MODE)


def make_private_folder(folder: Path) -> None:
    """Make a folder and those above it that aren't there, each for its owner only."""
    if not folder.is_dir():
        make_private_folder(folder.parent)
        folder.mkdir(mode=FOLDER_MODE, exist_ok=True)


def open_private_file(path: str | Path, mode: str, encoding: str | None = None) -> IO[Any]:
    """Open a file to write it. It is for its owner only if it is made by this, whatever the umask."""
    return open(path, mode, encoding=encoding, opener=_open_private_descriptor)


def _open_private_descriptor(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_CLOEXEC, FILE_MODE)
