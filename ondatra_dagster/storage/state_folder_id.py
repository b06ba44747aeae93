"""The id of a state folder. It distinguishes machines, and copies of a folder, that deliver the same sync."""

import contextlib
import os
import uuid
from pathlib import Path
from typing import NamedTuple

import orjson

from ondatra_dagster.storage.file_errors import explain_file_errors
from ondatra_dagster.storage.file_lock import FileLock

STATE_ID_FILE = "state_id.json"
WAIT_SECONDS = 60


class StateId(NamedTuple):
    """The id of a state folder, and of the folder that it was copied from, if it is a copy."""

    id: str
    copy_of: str = ""


UNKNOWN_STATE_ID = StateId("")


def ensure_state_id(state: Path) -> StateId:
    """Return the folder's id; create one for a new folder, and for a copy of another folder.

    The id's file also contains its own inode number. In a copied folder, or one restored from a backup, the file
    has another inode, so the folder gets a new id. If a folder is moved within its file system, the file keeps its
    inode, so the folder keeps its id.
    """
    if state_id := read_state_id(state):
        return state_id
    lock = FileLock(state / "locks" / f"{STATE_ID_FILE}.lock", purpose="names it", wait_seconds=WAIT_SECONDS)
    with lock:
        return read_state_id(state) or _write_new_id(state)


def read_state_id(state: Path) -> StateId | None:
    """Return the folder's id; None if it has no id, or only the id of the folder that it was copied from."""
    fields, inode = _read_state_id_file(state / STATE_ID_FILE)
    if not fields.get("id") or fields.get("inode") != inode:
        return None
    return StateId(str(fields["id"]), str(fields.get("copy_of", "")))


def _write_new_id(state: Path) -> StateId:
    fields, _ = _read_state_id_file(state / STATE_ID_FILE)
    state_id = StateId(uuid.uuid4().hex[:12], str(fields.get("id", "")))
    new_file = state / f".{STATE_ID_FILE}.new"
    with explain_file_errors(state / STATE_ID_FILE):
        new_file.unlink(missing_ok=True)
        descriptor = os.open(new_file, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(orjson.dumps({**state_id._asdict(), "inode": os.fstat(descriptor).st_ino}))
            file.flush()
            os.fsync(descriptor)
        new_file.replace(state / STATE_ID_FILE)
    return state_id


def _read_state_id_file(path: Path) -> tuple[dict[str, object], int]:
    """Return the fields of the id's file and its inode.

    A missing or damaged file has no fields, so the folder gets a new id.
    """
    is_missing_or_damaged = contextlib.suppress(FileNotFoundError, orjson.JSONDecodeError)
    with explain_file_errors(path), is_missing_or_damaged, path.open("rb") as file:
        inode = os.fstat(file.fileno()).st_ino
        fields = orjson.loads(file.read())
        return (fields, inode) if isinstance(fields, dict) else ({}, inode)
    return {}, 0
