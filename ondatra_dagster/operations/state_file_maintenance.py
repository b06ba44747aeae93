"""The maintenance tasks that check and compact the SQLite files in .ondatra, and rotate long logs.

A SQLite file that another process has locked is skipped.
"""

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from ondatra_dagster.count_time_and_size_format import format_count, format_size
from ondatra_dagster.delivery.queue.queue_database import DAMAGE_ADVICE as QUEUE_DAMAGED
from ondatra_dagster.delivery.queue.queue_database import queue_lock_path
from ondatra_dagster.errors import BusyError, StateError
from ondatra_dagster.operations.maintenance_task_runner import TaskResult
from ondatra_dagster.storage.file_errors import RESTORE_FROM_BACKUP, explain_file_errors
from ondatra_dagster.storage.file_lock import FileLock
from ondatra_dagster.storage.sqlite_database import check_integrity, compact_database

STATE_FILE_TASK, LOG_TASK = "state_files", "logs"
LOCKED_NEXT_TO_FILE = ("rates.sqlite",)  # the lock of these files is in the same folder; other locks are in locks/
MAX_LOG_BYTES = 10_000_000


class StateFile(NamedTuple):
    path: Path
    lock: Path  # the lock file; a process that writes the SQLite file holds the lock
    damage_advice: str = RESTORE_FROM_BACKUP


def list_state_files(state: Path, remedies: Mapping[str, str]) -> Iterator[StateFile]:
    """Yield every SQLite file in the state folder; `remedies` has the advice for damaged files, by file name."""
    for path in sorted(state.glob("*.sqlite")):
        is_locked_next_to_file = path.name in LOCKED_NEXT_TO_FILE
        lock = path.with_suffix(".lock") if is_locked_next_to_file else state / "locks" / f"{path.name}.lock"
        yield StateFile(path, lock, remedies.get(path.name, RESTORE_FROM_BACKUP))
    for path in sorted(state.glob("queue/*.sqlite")):
        yield StateFile(path, queue_lock_path(path), QUEUE_DAMAGED)


def compact_files(files: Iterable[StateFile]) -> TaskResult:
    """Check the SQLite files, empty their write-ahead logs, and free unused space in them.

    A file that fails doesn't stop the others. A damaged file isn't changed. Its indexes aren't rebuilt,
    because a difference between an index and its table doesn't show which of the two is damaged.
    """
    freed_bytes, file_count, busy_files, error_texts = 0, 0, [], []
    for file in files:
        try:
            with FileLock(file.lock, purpose="makes files smaller"):
                check_integrity(file.path, file.damage_advice)
                freed_bytes += compact_database(file.path, file.damage_advice)
                file_count += 1
        except BusyError:
            busy_files.append(file.path.stem)
        except StateError as error:
            error_texts.append(f"; {error}")
    busy_note = f"; in use, so skipped this time: {', '.join(busy_files)}" if busy_files else ""
    return TaskResult(
        task=STATE_FILE_TASK,
        message=f"{format_count(file_count, 'SQLite file')} compacted, {format_size(freed_bytes)} freed"
        f"{busy_note}{''.join(error_texts)}",
        counts={"files": file_count, "bytes": freed_bytes, "busy": len(busy_files)},
        is_successful=not error_texts,
    )


def rotate_logs(folder: Path) -> TaskResult:
    """Rename each log that has become long, so that a new log begins.

    The old log is kept as NAME.1 until the next rotation replaces it.
    """
    freed_bytes, rotated_logs = 0, []
    for log in sorted(folder.glob("*.log")):
        with explain_file_errors(log):
            if log.stat().st_size < MAX_LOG_BYTES:
                continue
            old_log = log.with_name(f"{log.name}.1")
            freed_bytes += old_log.stat().st_size if old_log.exists() else 0
            log.replace(old_log)
        rotated_logs.append(log.name)
    message = (
        f"{', '.join(rotated_logs)} rotated, {format_size(freed_bytes)} freed" if rotated_logs else "no log is long"
    )
    return TaskResult(task=LOG_TASK, message=message, counts={"turned": len(rotated_logs), "bytes": freed_bytes})
