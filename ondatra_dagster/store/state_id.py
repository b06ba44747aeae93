"""The id of a state folder: it tells machines, and copies of a folder, that deliver one sync apart."""

import contextlib
import os
import uuid
from pathlib import Path
from typing import NamedTuple

import orjson

from ondatra_dagster.store.file_errors import explained
from ondatra_dagster.store.lock import FileLock

FILE = "state_id.json"
WAIT_SECONDS = 60


class StateId(NamedTuple):
    """The id of a state folder, and of the folder that it was copied from, if it is a copy."""

    id: str
    copy_of: str = ""


UNKNOWN = StateId("")


def take_state_id(state: Path) -> StateId:
    """Return the folder's id, a new one for a new folder and for a copy of another one.

    A copy, or a folder that was put back from a backup, has other inodes than the original. A folder that was
    moved within its file system keeps them, and its id.
    """
    if known := known_state_id(state):
        return known
    lock = FileLock(state / "locks" / f"{FILE}.lock", purpose="names it", wait_seconds=WAIT_SECONDS)
    with lock:
        return known_state_id(state) or _name(state)


def known_state_id(state: Path) -> StateId | None:
    """Return the folder's id; None when it has none, or that of the folder that it was copied from."""
    fields, inode = _read(state / FILE)
    if not fields.get("id") or fields.get("inode") != inode:
        return None
    return StateId(str(fields["id"]), str(fields.get("copy_of", "")))


def _name(state: Path) -> StateId:
    fields, _ = _read(state / FILE)
    named = StateId(uuid.uuid4().hex[:12], str(fields.get("id", "")))
    new = state / f".{FILE}.new"
    with explained(state / FILE):
        new.unlink(missing_ok=True)
        descriptor = os.open(new, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(orjson.dumps({**named._asdict(), "inode": os.fstat(descriptor).st_ino}))
            file.flush()
            os.fsync(descriptor)
        new.replace(state / FILE)
    return named


def _read(path: Path) -> tuple[dict[str, object], int]:
    """Return what the file says, and its inode; nothing when it is damaged: the folder gets a new id."""
    try:
        with explained(path), contextlib.suppress(FileNotFoundError), path.open("rb") as file:
            inode = os.fstat(file.fileno()).st_ino
            fields = orjson.loads(file.read())
            return (fields, inode) if isinstance(fields, dict) else ({}, inode)
    except orjson.JSONDecodeError:
        pass
    return {}, 0
