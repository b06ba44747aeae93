"""The duties that check the SQLite files below .ondatra, and keep them and the logs in bounds.

A SQLite file is left alone while another process holds it.
"""

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from ondatra_dagster.delivery.queue.states import lock_of
from ondatra_dagster.delivery.queue.tables import IF_DAMAGED as QUEUE_DAMAGED
from ondatra_dagster.errors import BusyError, StateError
from ondatra_dagster.operations.maintain import Done
from ondatra_dagster.store.database import check, compact
from ondatra_dagster.store.file_errors import FROM_BACKUP, explained
from ondatra_dagster.store.lock import FileLock
from ondatra_dagster.wording import count, size_of

DATABASES, LOGS = "state_files", "logs"
LOCKED_BESIDE = ("rates.sqlite",)  # the locks of all others are below locks/
LONGEST_LOG_BYTES = 10_000_000


class StateFile(NamedTuple):
    path: Path
    lock: Path  # who holds it writes the file
    if_damaged: str = FROM_BACKUP

    @property
    def name(self) -> str:
        return self.path.stem


def state_files(state: Path, remedies: Mapping[str, str]) -> Iterator[StateFile]:
    """Every SQLite file of ours that is there; `remedies` has those of damaged files by the file's name."""
    for path in sorted(state.glob("*.sqlite")):
        yield StateFile(path, _lock(state, path), remedies.get(path.name, FROM_BACKUP))
    for path in sorted(state.glob("queue/*.sqlite")):
        yield StateFile(path, _lock(state, path), QUEUE_DAMAGED)


def _lock(state: Path, path: Path) -> Path:
    if path.parent != state:
        return lock_of(path)
    is_beside = path.name in LOCKED_BESIDE
    return path.with_suffix(".lock") if is_beside else state / "locks" / f"{path.name}.lock"


def compact_files(files: Iterable[StateFile]) -> Done:
    """Check them, empty their write-ahead logs, and give back what they no longer use.

    One that can't stops no other. A damaged file stays as it is. Its indexes aren't rebuilt: an index that
    disagrees with its table doesn't tell which of the two is damaged.
    """
    freed, done, busy, failed = 0, 0, [], []
    for file in files:
        try:
            with FileLock(file.lock, purpose="makes files smaller"):
                check(file.path, file.if_damaged)
                freed += compact(file.path, file.if_damaged)
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
        with explained(log):
            if log.stat().st_size < LONGEST_LOG_BYTES:
                continue
            before = log.with_name(f"{log.name}.1")
            freed += before.stat().st_size if before.exists() else 0
            log.replace(before)
        turned.append(log.name)
    told = f"{', '.join(turned)} begun anew, {size_of(freed)} freed" if turned else "none is long"
    return Done(duty=LOGS, did=told, counts={"turned": len(turned), "bytes": freed})
