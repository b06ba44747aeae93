"""The maintenance task for Delta tables: OPTIMIZE, VACUUM, and the removal of old commits.

Data that is still read stays, however old; the module oldest_needed_version decides which data that is. The
Delta logs show whether work on a table pays off. Spark starts only if it does, and only one table at a time is
locked.
"""

import collections
import dataclasses
import math
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from typing import Protocol

from ondatra_dagster.count_time_and_size_format import format_count, format_size
from ondatra_dagster.deltalog.active_files import UnsupportedTableError, read_table_snapshot
from ondatra_dagster.deltalog.log_reader import TableState, read_table_state
from ondatra_dagster.deltalog.removable_history import (
    RemovableHistory,
    find_removable_history,
    find_removal_cutoff,
    is_retention_lowered,
    read_commit_metrics,
    remove_log_files,
)
from ondatra_dagster.errors import BusyError, OndatraError
from ondatra_dagster.operations.maintenance_task_runner import TaskResult
from ondatra_dagster.project.settings.storage_access import StorageAddress
from ondatra_dagster.row_changes import Json

TABLE_TASK = "tables"
DAY_SECONDS = 86_400
SMALL_FILE_BYTES = 16_000_000  # opening a smaller file costs as much as reading it
COUNT_NAMES = ("restored", "small_files", "became", "files", "bytes", "log_files")


class MaintainableTable(Protocol):
    """A table of the warehouse with the methods that maintenance calls."""

    def lock(self) -> AbstractContextManager[None]:
        """Hold the table's lock, so that no other process writes the table.

        Raise BusyError with the name of the process that holds the lock.
        """

    def restore_retention(self) -> None:
        """Restore the table's retention setting, which an interrupted VACUUM has left lowered."""

    def optimize(self, *, small_bytes: int) -> None:
        """Combine small files into larger ones."""

    def vacuum(self, *, since: float, upto: int, clock: Callable[[], float]) -> bool:
        """Delete files that commits up to `upto` removed from the table before `since`.

        Return False if the VACUUM was skipped.
        """


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ManagedTable:
    """A table that maintenance covers."""

    name: str
    lock_name: str  # the name under which writers lock the table
    address: StorageAddress
    # returns the oldest version from which a sync or a model still reads; -1: all versions
    oldest_needed_version: Callable[[TableState], int]


OpenManagedTable = Callable[[ManagedTable], MaintainableTable]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Thresholds:
    """The thresholds from which work on a table pays off."""

    small_files: int = 20  # with this many superfluous files, reading is slow
    files: int = 10  # a VACUUM takes seconds, and pays off for so many files, or for so many bytes
    size: int = 64_000_000
    log_files: int = 20  # files of old commits; a commit has two


DEFAULT_THRESHOLDS = Thresholds()


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class TableTasks:
    """The maintenance tasks that pay off for one table now."""

    state: TableState
    removable: RemovableHistory
    needs_retention_restore: bool
    needs_optimize: bool
    needs_vacuum: bool
    needs_log_cleanup: bool

    @property
    def has_any(self) -> bool:
        return self.needs_retention_restore or self.needs_optimize or self.needs_vacuum or self.needs_log_cleanup


class TableMaintenance:
    """A round of maintenance over all tables."""

    def __init__(
        self,
        open_table: OpenManagedTable,
        *,
        days: int | None,
        clock: Callable[[], float],
        worth: Thresholds = DEFAULT_THRESHOLDS,
    ) -> None:
        self._open_table = open_table
        self._clock = clock  # called again later: a round may take hours
        self._thresholds = worth
        self._retention_start = -math.inf if days is None else clock() - days * DAY_SECONDS
        self._details: list[Mapping[str, Json]] = []
        self._busy_tables: list[str] = []
        self._skipped_tables: list[str] = []
        self._errors: list[str] = []

    def maintain_tables(self, tables: Iterable[ManagedTable]) -> TaskResult:
        """Maintain each table, and return the task's result. A locked or failing table doesn't stop the others."""
        for table in tables:
            try:
                self._maintain_table(table)
            except BusyError:
                self._busy_tables.append(table.name)
            except OndatraError as error:
                self._errors.append(f"{table.name}: {error}")
        return self._task_result()

    def _maintain_table(self, table: ManagedTable) -> None:
        if not self._due_tasks(table):
            return
        delta_table = self._open_table(table)
        with delta_table.lock():
            if due_tasks := self._due_tasks(table):  # read again, because no other process can write now
                self._details.append({"table": table.name, **self._run_due_tasks(table, delta_table, due_tasks)})

    def _due_tasks(self, table: ManagedTable) -> TableTasks | None:
        state = read_table_state(table.address)
        if state is None:
            return None
        removable_history = find_removable_history(
            table.address, state, needed_version=table.oldest_needed_version(state), before=self._retention_start
        )
        tasks = TableTasks(
            state=state,
            removable=removable_history,
            needs_retention_restore=is_retention_lowered(state),
            needs_optimize=count_superfluous_files(table.address) >= self._thresholds.small_files,
            needs_vacuum=removable_history.files >= self._thresholds.files
            or removable_history.size >= self._thresholds.size,
            needs_log_cleanup=len(removable_history.log_files) >= self._thresholds.log_files,
        )
        return tasks if tasks.has_any else None

    def _run_due_tasks(
        self, table: ManagedTable, maintainable_table: MaintainableTable, chores: TableTasks
    ) -> dict[str, Json]:
        if chores.needs_retention_restore:
            maintainable_table.restore_retention()
        if chores.needs_optimize:
            maintainable_table.optimize(small_bytes=SMALL_FILE_BYTES)
        if chores.needs_vacuum:
            since = find_removal_cutoff(table.address, chores.removable, before=self._retention_start)
            if not maintainable_table.vacuum(since=since, upto=chores.removable.last_commit, clock=self._clock):
                self._skipped_tables.append(table.name)
        log_bytes = remove_log_files(table.address, chores.removable) if chores.needs_log_cleanup else 0
        commit_metrics = read_commit_metrics(table.address, after=chores.state.log_version)
        operation_metrics = {name: commit_metrics.get(name, {}) for name in ("OPTIMIZE", "VACUUM START", "VACUUM END")}
        return {
            "restored": int(chores.needs_retention_restore),
            "small_files": _metric_number(operation_metrics["OPTIMIZE"], "numRemovedFiles"),
            "became": _metric_number(operation_metrics["OPTIMIZE"], "numAddedFiles"),
            "files": _metric_number(operation_metrics["VACUUM END"], "numDeletedFiles"),
            "bytes": _metric_number(operation_metrics["VACUUM START"], "sizeOfDataToDelete") + log_bytes,
            "log_files": len(chores.removable.log_files) if chores.needs_log_cleanup else 0,
        }

    def _task_result(self) -> TaskResult:
        total: collections.Counter[str] = collections.Counter(dict.fromkeys(COUNT_NAMES, 0))
        for table_details in self._details:
            total.update({name: number for name, number in table_details.items() if isinstance(number, int)})
        sentences = [*_result_sentences(len(self._details), total), *self._errors]
        if self._busy_tables:
            sentences.append(f"in use, so skipped this time: {', '.join(self._busy_tables)}")
        if self._skipped_tables:
            sentences.append(f"skipped this time, because the machine was suspended: {', '.join(self._skipped_tables)}")
        return TaskResult(
            task=TABLE_TASK,
            message="; ".join(sentences) or "no table needs maintenance",
            counts={TABLE_TASK: len(self._details), **total},
            details=tuple(self._details),
            is_successful=not self._errors,
        )


def _result_sentences(tables: int, total: Mapping[str, int]) -> Iterable[str]:
    """Return a sentence for each kind of work that the round has done."""
    counted_sentences = (
        (tables, f"{format_count(tables, 'table')} looked after"),
        (total["small_files"], f"{format_count(total['small_files'], 'small file')} put into {total['became']}"),
        (total["files"], f"{format_count(total['files'], 'file')} that are not needed removed"),
        (total["log_files"], f"{format_count(total['log_files'], 'file')} of old commits removed"),
        (total["bytes"], f"{format_size(total['bytes'])} freed"),
        (total["restored"], f"the retention of {format_count(total['restored'], 'table')} restored after a killed run"),
    )
    return [sentence for number, sentence in counted_sentences if number]


def count_superfluous_files(address: StorageAddress) -> int:
    """Return how many files fewer a table would have after an OPTIMIZE.

    An OPTIMIZE combines the small files of a partition into one file.
    """
    try:
        table_snapshot = read_table_snapshot(address)
    except UnsupportedTableError:
        return 0
    if table_snapshot is None:
        return 0
    small_file_counts = collections.Counter(
        tuple(sorted(file.partition.items(), key=str)) for file in table_snapshot.files if file.size < SMALL_FILE_BYTES
    )
    return sum(number - 1 for number in small_file_counts.values())


def _metric_number(metrics: Mapping[str, str], name: str) -> int:
    return int(metrics.get(name, 0))
