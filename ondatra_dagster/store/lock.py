"""A lock that one process holds on a name. The operating system keeps it: it ends with its owner.

The file says who holds it, for the message to those who wait.
"""

import fcntl
import os
import time
from collections.abc import Callable
from pathlib import Path

from ondatra_dagster.errors import BusyError
from ondatra_dagster.store.private_folder import make_private

POLL_SECONDS = 0.2
LOOK_SECONDS = 0.001  # who only looks whether the lock is held is gone by then


class FileLock:
    """Held from `with` to its end, or from acquire() to release()."""

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
        """Take the lock; BusyError tells who holds it when it isn't free in time."""
        make_private(self._path.parent)
        descriptor = os.open(self._path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        try:
            self._wait_for(descriptor)
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, f"process {os.getpid()} ({self._purpose})".encode(), 0)
        except BaseException:
            os.close(descriptor)
            raise
        self._descriptor = descriptor

    def _wait_for(self, descriptor: int) -> None:
        give_up_at = self._clock() + self._wait_seconds
        told = False
        while not _try_lock(descriptor):
            if _is_only_looked_at(descriptor):
                self._sleep(LOOK_SECONDS)
                continue
            holder = os.pread(descriptor, 200, 0).decode(errors="replace") or "another process"
            if self._clock() >= give_up_at:
                raise BusyError(f"{self._path.stem} is held by {holder}; wait for it to end, then try again")
            if self._on_wait and not told:
                self._on_wait(f"waiting for {holder}, which holds {self._path.stem}")
                told = True
            self._sleep(POLL_SECONDS)

    def take_away(self) -> None:
        """Remove the file before it is let go of: what is left then is of those who died."""
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


def is_left_behind(path: Path) -> bool:
    """Whether a lock that is taken away when its holder ends well is still there, and nobody holds it."""
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        # without a name it was taken away since it was opened
        return _try_lock(descriptor) and os.fstat(descriptor).st_nlink > 0
    finally:
        os.close(descriptor)


def is_held(path: Path) -> bool:
    """Whether a process holds the lock. The number in the file tells nothing: another may have it by now.

    The look takes a lock that lookers share; who wants the lock itself knows them by that, and tries again.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        return not _try_lock(descriptor, fcntl.LOCK_SH)
    finally:
        os.close(descriptor)


def _is_only_looked_at(descriptor: int) -> bool:
    """Whether nobody holds the lock that couldn't be had."""
    if not _try_lock(descriptor, fcntl.LOCK_SH):
        return False
    fcntl.flock(descriptor, fcntl.LOCK_UN)
    return True


def _try_lock(descriptor: int, how: int = fcntl.LOCK_EX) -> bool:
    try:
        fcntl.flock(descriptor, how | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
