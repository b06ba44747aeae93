"""The duties that keep the files below .ondatra in bounds: SQLite's, and logs.

A SQLite file is left alone while another process holds it.
"""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from ondatra_dagster.delivery.queue.states import lock_of
from ondatra_dagster.errors import BusyError, StateError
from ondatra_dagster.operations.maintain import Done
from ondatra_dagster.store.database import compact
from ondatra_dagster.store.lock import FileLock
from ondatra_dagster.wording import count, size_of

DATABASES, LOGS = "state_files", "logs"
LOCKED_BESIDE = ("rates.sqlite",)  # the locks of all others are below locks/
LONGEST_LOG_BYTES = 10_000_000


class StateFile(NamedTuple):
    path: Path
    lock: Path  # who holds it writes the file

    @property
    def name(self) -> str:
        return self.path.stem


def state_files(state: Path) -> Iterator[StateFile]:
    """Every SQLite file of ours that is there."""
    for path in sorted([*state.glob("*.sqlite"), *state.glob("queue/*.sqlite")]):
        yield StateFile(path, _lock(state, path))


def _lock(state: Path, path: Path) -> Path:
    if path.parent != state:
        return lock_of(path)
    is_beside = path.name in LOCKED_BESIDE
    return path.with_suffix(".lock") if is_beside else state / "locks" / f"{path.name}.lock"


def compact_files(files: Iterable[StateFile]) -> Done:
    """Empty their write-ahead logs, and give back what they no longer use; one that can't stops no other."""
    freed, done, busy, failed = 0, 0, [], []
    for file in files:
        try:
            with FileLock(file.lock, purpose="makes files smaller"):
                freed += compact(file.path)
                done += 1
        except BusyError:
            busy.append(file.name)
        except StateError as error:
            failed.append(f"; {error}")
    left = f"; at work, and left for the next time: {', '.join(busy)}" if busy else ""
    return Done(
        duty=DATABASES,
        did=f"{count(done, 'SQLite file')} looked after, {size_of(freed)} freed{left}{''.join(failed)}",
        counts={"files": done, "bytes": freed, "busy": len(busy)},
        is_good=not failed,
    )


def turn_logs(folder: Path) -> Done:
    """Begin a log anew that has become long; the one of before is kept once, as NAME.1."""
    freed, turned = 0, []
    for log in sorted(folder.glob("*.log")):
        if log.stat().st_size < LONGEST_LOG_BYTES:
            continue
        before = log.with_name(f"{log.name}.1")
        freed += before.stat().st_size if before.exists() else 0
        log.replace(before)
        turned.append(log.name)
    told = f"{', '.join(turned)} begun anew, {size_of(freed)} freed" if turned else "none is long"
    return Done(duty=LOGS, did=told, counts={"turned": len(turned), "bytes": freed})
