"""A lock that one process holds on a name. The operating system releases it when its holder ends.

The lock's file names the holder, for the message to waiting processes.
"""

import contextlib
import fcntl
import os
import time
from collections.abc import Callable
from pathlib import Path

from ondatra_dagster.errors import BusyError
from ondatra_dagster.storage.file_errors import explain_file_errors
from ondatra_dagster.storage.private_files import make_private_folder

POLL_SECONDS = 0.2
PROBE_SECONDS = 0.001  # the wait while another process only checks whether the lock is held


class FileLock:
    """A lock that is held during a `with` block, or from acquire() to release()."""

    def __init__(
        self,
        path: Path,
        *,
        purpose: str,
        wait_seconds: float = 0,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
        on_wait: Callable[[str], None] | None = None,
    ) -> None:
        self._path = path
        self._purpose = purpose
        self._wait_seconds = wait_seconds
        self._clock = clock
        self._sleep = sleep
        self._on_wait = on_wait
        self._descriptor: int | None = None

    def acquire(self) -> None:
        """Take the lock; raise BusyError with the name of its holder if the lock isn't free in time.

        Raise StateError if the file can't be opened.
        """
        with explain_file_errors(self._path):
            descriptor = open_lock(self._path)
            try:
                self._wait_for_lock(descriptor)
                self._write_holder(descriptor)
            except BaseException:
                os.close(descriptor)
                raise
            self._descriptor = descriptor

    def _write_holder(self, descriptor: int) -> None:
        """Write the holder's name. On a full disk the lock is held without a name, so that the user can free space."""
        with contextlib.suppress(OSError):
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, f"process {os.getpid()} ({self._purpose})".encode(), 0)

    def _wait_for_lock(self, descriptor: int) -> None:
        give_up_at = self._clock() + self._wait_seconds
        has_reported = False
        while not _try_lock(descriptor):
            if _is_only_probed(descriptor):
                self._sleep(PROBE_SECONDS)
                continue
            holder = os.pread(descriptor, 200, 0).decode(errors="replace") or "another process"
            if self._clock() >= give_up_at:
                raise BusyError(f"{self._path.stem} is held by {holder}; wait for it to end, then try again")
            if self._on_wait and not has_reported:
                self._on_wait(f"waiting for {holder}, which holds {self._path.stem}")
                has_reported = True
            self._sleep(POLL_SECONDS)

    def remove_file(self) -> None:
        """Remove the lock's file before the lock is released. So a file that is left shows that its holder died."""
        with explain_file_errors(self._path):
            self._path.unlink(missing_ok=True)

    def release(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def __enter__(self) -> "FileLock":
        self.acquire()
        return self

    def __exit__(self, *_: object) -> None:
        self.release()


def is_abandoned(path: Path) -> bool:
    """Return whether the file is left from a holder that died. A holder that ends normally removes it."""
    descriptor = _open_existing(path, os.O_RDWR)
    if descriptor is None:
        return False
    try:
        # if the file has no link, its holder removed it after it was opened here
        return _try_lock(descriptor) and os.fstat(descriptor).st_nlink > 0
    finally:
        os.close(descriptor)


def is_locked(path: Path) -> bool:
    """Return whether a process holds the lock. The process id in the file proves nothing, because it may be reused.

    The check takes the lock as a shared lock. So a process that wants the lock itself recognises the check, and
    tries again.
    """
    descriptor = _open_existing(path, os.O_RDONLY)
    if descriptor is None:
        return False
    try:
        return not _try_lock(descriptor, fcntl.LOCK_SH)
    finally:
        os.close(descriptor)


def open_lock(path: Path) -> int:
    """Open the lock file at `path`, readable by its owner only; create it if it is missing."""
    make_private_folder(path.parent)
    return os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)


def _open_existing(path: Path, flags: int) -> int | None:
    with explain_file_errors(path), contextlib.suppress(FileNotFoundError):
        return os.open(path, flags | os.O_CLOEXEC)
    return None


def _is_only_probed(descriptor: int) -> bool:
    """Return whether the lock is held only by processes that check it with is_locked()."""
    if not _try_lock(descriptor, fcntl.LOCK_SH):
        return False
    fcntl.flock(descriptor, fcntl.LOCK_UN)
    return True


def _try_lock(descriptor: int, lock_type: int = fcntl.LOCK_EX) -> bool:
    try:
        fcntl.flock(descriptor, lock_type | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
