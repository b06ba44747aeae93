"""A lock that one process holds on a name. The operating system keeps it: it ends with its owner.

The file says who holds it, for the message to those who wait.
"""

import fcntl
import os
import re
import time
from collections.abc import Callable
from pathlib import Path

from ondatra_dagster.errors import BusyError

POLL_SECONDS = 0.2
HOLDER = re.compile(rb"process (\d+) ")


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
        self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
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


def last_holder_lives(path: Path) -> bool:
    """Whether the process that took the lock last is still there; it may have let go of it.

    To try the lock would tell more, and would for that moment keep it from who wants it.
    """
    try:
        holder = HOLDER.match(path.read_bytes())
        if holder:
            os.kill(int(holder[1]), 0)  # asks, and does nothing
    except (FileNotFoundError, ProcessLookupError):
        return False
    except PermissionError:  # another user's
        return True
    return holder is not None


def _try_lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
