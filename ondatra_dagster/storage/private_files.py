"""The folders and files that ondatra writes. They hold customers' rows, so only their owner may read them."""

import contextlib
import os
from pathlib import Path
from typing import IO, Any

from ondatra_dagster.storage.file_errors import explain_file_errors

FOLDER_MODE = 0o700
FILE_MODE = 0o600
OTHERS_MASK = 0o077


def make_state_folder_private(state: Path) -> None:
    """Create the project's state folder if it is missing; make it private if others may read it.

    If Dagster writes there first, it creates an ordinary folder. So every entry point calls this function before it
    writes.
    """
    with explain_file_errors(state):
        state.mkdir(mode=FOLDER_MODE, parents=True, exist_ok=True)
    if state.stat().st_mode & OTHERS_MASK:
        with contextlib.suppress(OSError):  # the folder is another user's, or the disk is read-only
            state.chmod(FOLDER_MODE)


def make_private_folder(folder: Path) -> None:
    """Create a folder and its missing parents, each for its owner only."""
    if not folder.is_dir():
        make_private_folder(folder.parent)
        folder.mkdir(mode=FOLDER_MODE, exist_ok=True)


def open_private_file(path: str | Path, mode: str, encoding: str | None = None) -> IO[Any]:
    """Open a file to write it. If this call creates the file, only its owner may read it, whatever the umask."""
    return open(path, mode, encoding=encoding, opener=_open_private_descriptor)


def _open_private_descriptor(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_CLOEXEC, FILE_MODE)
