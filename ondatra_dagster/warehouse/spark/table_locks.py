"""The locks for writing to tables: one writer per table, and none while the JVM of a killed run may still commit.

A session has two lock files. This process holds one, and its JVM inherits and holds the other. The operating system
releases each lock when its holder ends. So a JVM whose process has ended is recognized by its lock, not by its process
ID.
"""

import contextlib
import fcntl
import logging
import os
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

from ondatra_dagster import interruption
from ondatra_dagster.errors import BusyError
from ondatra_dagster.storage.file_errors import explain_file_errors
from ondatra_dagster.storage.file_lock import FileLock, is_locked, open_lock

WAIT_SECONDS = 600
ORPHAN_WAIT_SECONDS = 60
POLL_SECONDS = 0.1

logger = logging.getLogger(__name__)


class SessionLocks:
    """The two locks of a session that this process started. `folder` holds the lock files of all sessions."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._name = uuid.uuid4().hex
        self._python_descriptor = open_locked_file(folder / f"{self._name}.python")
        self.jvm_descriptor = open_locked_file(folder / f"{self._name}.jvm")

    def close_jvm_descriptor(self) -> None:
        """Close this process's copy of the file descriptor for the JVM's lock, so that only the JVM holds the lock."""
        os.close(self.jvm_descriptor)

    def release(self) -> None:
        """Release the locks and remove their files. Call this after the session and its JVM have ended."""
        os.close(self._python_descriptor)
        for kind in ("python", "jvm"):
            (self._folder / f"{self._name}.{kind}").unlink(missing_ok=True)


def wait_for_orphans(folder: Path) -> None:
    """Wait until all JVMs have ended whose process has already ended, because such a JVM may still commit.

    Raises BusyError after a minute.
    """
    give_up_at = time.monotonic() + ORPHAN_WAIT_SECONDS
    for jvm_lock in folder.glob("*.jvm"):
        if is_locked(jvm_lock.with_suffix(".python")):
            continue  # this run is alive: its locks on tables keep this process from these tables
        while is_locked(jvm_lock):
            if time.monotonic() > give_up_at:
                raise BusyError(f"the Java process of a killed run is still running (it holds {jvm_lock}); end it")
            interruption.sleep(POLL_SECONDS)
        for lock_file in (jvm_lock, jvm_lock.with_suffix(".python")):
            lock_file.unlink(missing_ok=True)


@contextlib.contextmanager
def lock_table(locks: Path, table: str, *, run_id: str, wait_seconds: float = WAIT_SECONDS) -> Iterator[None]:
    """Lock the table for one write.

    Raises BusyError, which names the process that holds the lock, after `wait_seconds` (by default ten minutes).
    """
    lock = FileLock(
        locks / f"{table}.lock",
        purpose=f"run {run_id}",
        wait_seconds=wait_seconds,
        sleep=interruption.sleep,
        on_wait=logger.warning,
    )
    with lock:
        wait_for_orphans(locks / "sessions")
        yield


def open_locked_file(path: Path) -> int:
    with explain_file_errors(path):
        descriptor = open_lock(path)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    return descriptor
