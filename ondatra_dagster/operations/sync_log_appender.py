"""The appender of the table `ondatra.sync_log`, which has each published record once as a row.

Each commit of this table contains the log's position. So the commits of a crashed run show which records it has
appended, and the next run continues from there. Spark isn't needed to find out whether records are missing.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from typing import Protocol

from ondatra_dagster.count_time_and_size_format import format_count
from ondatra_dagster.deltalog.log_reader import read_commit_user_metadata, read_table_state
from ondatra_dagster.errors import WarehouseError
from ondatra_dagster.operations.maintenance_task_runner import TaskResult
from ondatra_dagster.planning.find_table_and_columns import SYNC_LOG_TABLE, table_path
from ondatra_dagster.project.settings.read_settings_and_defaults import Settings
from ondatra_dagster.records.record_store import RecordStore
from ondatra_dagster.records.sync_log_feed import (
    RecordRowGroup,
    SyncLogPosition,
    SyncLogRows,
    concatenate_log_rows,
    list_missing_row_groups,
    read_log_rows,
)

COMMIT_BYTES = 64_000_000  # bytes of records in memory at once; more records are appended in several commits
SYNC_LOG_TASK = "sync_log"


class LogTable(Protocol):
    """The Delta table of the sync log. One process at a time writes the table."""

    def lock(self) -> AbstractContextManager[None]:
        """Hold the table's lock; raise BusyError with the name of the process that holds it."""

    def append(self, rows: SyncLogRows, *, note: str, number: int) -> None:
        """Append the rows in one commit with this note; do nothing if a commit with this number exists."""


class SyncLogAppender:
    """The appender of one project's sync log."""

    def __init__(self, settings: Settings, tracking: RecordStore, *, commit_bytes: int = COMMIT_BYTES) -> None:
        self._address = table_path(settings, SYNC_LOG_TABLE)
        self._tracking = tracking
        self._commit_bytes = commit_bytes

    def append(self, table: LogTable) -> int:
        """Append all published records that the log doesn't have yet; return the number of appended records."""
        appended_count = 0
        with table.lock():
            position = self.position()
            for row_groups in group_into_commits(list_missing_row_groups(self._tracking, position), self._commit_bytes):
                position = position.advance(row_groups)
                rows = concatenate_log_rows([read_log_rows(self._tracking, row_group) for row_group in row_groups])
                table.append(rows, note=position.dump(), number=position.commit_count)
                appended_count += sum(row_group.row_count for row_group in row_groups)
        return appended_count

    def append_missing(self, open_table: Callable[[], LogTable]) -> TaskResult:
        """Append the missing records as a maintenance task. If no record is missing, the table isn't opened."""
        has_missing_records = any(True for _ in list_missing_row_groups(self._tracking, self.position()))
        appended_count = self.append(open_table()) if has_missing_records else 0
        return TaskResult(
            task=SYNC_LOG_TASK,
            message=f"{format_count(appended_count, 'record')} appended to {SYNC_LOG_TABLE}",
            counts={"records": appended_count},
        )

    def position(self) -> SyncLogPosition:
        """Return the position in the newest commit that has one; commits of other programs don't have a position."""
        for note in read_commit_user_metadata(self._address):
            if position := SyncLogPosition.load(note):
                return position
        if read_table_state(self._address) is not None:
            raise WarehouseError(
                f"the commits of {SYNC_LOG_TABLE} no longer say what it contains, so nothing can be appended; move"
                f" {self._address} away, and it is rebuilt from the kept records"
            )
        return SyncLogPosition()


def is_logged(log: SyncLogAppender, sync_id: str) -> bool:
    """Return whether the sync log has records of the sync; True if that is unknown."""
    try:
        return bool(log.position().first_open_run(sync_id))
    except WarehouseError:
        return True


def group_into_commits(pieces: Iterable[RecordRowGroup], most_bytes: int) -> Iterator[list[RecordRowGroup]]:
    """Yield lists of row groups that fit in memory together; each list is appended in one commit."""
    row_groups: list[RecordRowGroup] = []
    byte_count = 0
    for row_group in pieces:
        if row_groups and byte_count + row_group.byte_size > most_bytes:
            yield row_groups
            row_groups, byte_count = [], 0
        row_groups.append(row_group)
        byte_count += row_group.byte_size
    if row_groups:
        yield row_groups
