"""The counts that users see: the units in a queue, and the outcomes of one run's units.

A unit is what a user thinks of as one change. It is the key of a merge, the group of a tracked table, or the row of
an append or scd2. In a replaced table or partition each new row is a unit, and replaces an old row if there is one.
An old row is a unit itself only if no new row replaces it. A row that the API had and still has counts as an
update.
"""

import collections
import dataclasses
import enum
from collections.abc import Mapping
from typing import NamedTuple

from ondatra_dagster.delivery.acknowledged_to_desired_diff import UnitKind
from ondatra_dagster.delivery.queue.queue_database import ROW_COUNT, ROWS_ON_API, Queue
from ondatra_dagster.delivery.queue.removal_count import read_content_sizes
from ondatra_dagster.storage.sqlite_database import SqliteStore


class UnitOperation(enum.StrEnum):
    """The operation of a unit at the destination."""

    INSERT = "insert"
    UPDATE = "update"
    DELETE = "delete"


class UnitOutcome(enum.StrEnum):
    """The outcome of a unit in a run that sent it. The unit has the worst outcome of its rows."""

    SUCCEEDED = "succeeded"
    REJECTED = "rejected"  # refused, or failed too often
    FAILED = "failed"  # will be retried


Counts = collections.Counter[UnitOperation]
SINGLE_COUNTS = {operation: Counts({operation: 1}) for operation in UnitOperation}  # shared: must not be changed
NO_COUNTS = Counts()


# a unit that is only to be deleted counts as being at the API, even while its arrival is unknown
IS_ON_API = f"iif({ROWS_ON_API} != '' or desired = '', 1, 0)"
IS_DESIRED = "iif(desired = '', 0, 1)"
COUNT_BY_UNIT = f"""
select coalesce(sum({IS_DESIRED} and not {IS_ON_API}), 0), coalesce(sum({IS_ON_API} and {IS_DESIRED}), 0),
    coalesce(sum({IS_ON_API} and not {IS_DESIRED}), 0)
from unit where version <= :watermark and {{where}}
"""
COUNT_BY_PARTITION = f"""
select coalesce(sum(max(has - had, 0)), 0), coalesce(sum(min(had, has)), 0),
    coalesce(sum(max(had - has, 0)), 0)
from (
    select sum({IS_ON_API}) as had, sum({IS_DESIRED}) as has from unit
    where version <= :watermark and {{where}} group by belongs_to
)
"""
READ_MIRROR_ROWS = f"select key, {ROW_COUNT.format('desired')} from unit where version <= :watermark and {{where}}"
IS_PLANNED = "state in ('pending', 'claimed')"  # units that a run may send, and units in jobs


# for each partition with deletes and inserts: how many of its rows are only deleted, how many only inserted
READ_REPLACED_PARTITIONS = f"""
select belongs_to, sum(not {IS_DESIRED}), sum(not {IS_ON_API})
from unit where version <= :watermark and {IS_PLANNED}
group by belongs_to having sum(not {IS_DESIRED}) > 0 and sum(not {IS_ON_API}) > 0
"""
ANY_REPLACED_PARTITION = f"""
select exists (select 1 from unit where phase = 0 and {IS_PLANNED})
    and exists (select 1 from unit where phase = 1 and {IS_PLANNED})
"""


def operation_of(*, had_rows: bool, has_rows: bool) -> UnitOperation:
    """Return the operation at the destination that leads from `had_rows` to `has_rows`."""
    if not has_rows:
        return UnitOperation.DELETE
    return UnitOperation.UPDATE if had_rows else UnitOperation.INSERT


def count_changed_rows(rows_before: int, rows_after: int) -> Counts:
    """Count replaced rows in units, by their numbers before and after.

    The smaller number counts as updates, the difference as inserts or deletes.
    """
    row_counts = (max(rows_after - rows_before, 0), min(rows_before, rows_after), max(rows_before - rows_after, 0))
    return Counts({operation: rows for operation, rows in zip(UnitOperation, row_counts, strict=True) if rows})


def count_units(queue: Queue, condition: str = IS_PLANNED, bounds: Mapping[str, int | str] | None = None) -> Counts:
    """Count the queue's units that meet a condition on their columns, by operation."""
    parameters = {"watermark": queue.watermark, **(bounds or {})}
    if queue.unit_kind is UnitKind.MIRROR:
        return _count_mirrors(queue.store, condition, parameters)
    statement = COUNT_BY_PARTITION if queue.replaces_rows else COUNT_BY_UNIT
    unit_counts = queue.store.fetch_rows(statement.format(where=condition), parameters)[0]
    return Counts({operation: int(units) for operation, units in zip(UnitOperation, unit_counts, strict=True) if units})


def _count_mirrors(store: SqliteStore, condition: str, span: Mapping[str, int | str]) -> Counts:
    """Count the units of mirrors. The old rows are as many as were sent last, because a mirror stores none of them."""
    sent_sizes = read_content_sizes(store)
    counts = Counts()
    for key, row_count in store.fetch_rows(READ_MIRROR_ROWS.format(where=condition), span):
        counts += count_changed_rows(sent_sizes.get(str(key), 0), int(row_count))
    return counts


@dataclasses.dataclass(slots=True)
class ReplacedPartition:
    """The rows of a table or partition that replace each other. Which new row replaces which old row is unknown."""

    deletes: int  # old rows that no new row replaces
    updates: int  # new rows that replace an old one
    ended_updates: int = 0  # updates that counted with their old row, because its delete didn't succeed

    def count_old_row(self, outcome: UnitOutcome | None) -> UnitOperation | None:
        """Return what an old row with this outcome counts as.

        Return None if the row is the first half of an update, which counts with its new row.
        """
        if self.deletes:
            self.deletes -= 1
            return UnitOperation.DELETE
        if outcome is UnitOutcome.SUCCEEDED or not self.updates:
            return None
        self.updates -= 1
        self.ended_updates += 1
        return UnitOperation.UPDATE

    def count_new_row(self) -> UnitOperation | None:
        """Return what a new row that has ended counts as; None if its update has already counted with the old row."""
        if self.ended_updates:
            self.ended_updates -= 1
            return None
        if self.updates:
            self.updates -= 1
            return UnitOperation.UPDATE
        return UnitOperation.INSERT


class CountedUnit(NamedTuple):
    """The facts that decide how a unit is counted."""

    id: int
    partition: str  # of the table, for kinds that replace rows
    rows_on_api: int  # rows that the API had before; except for a mirror, it only matters whether there were any
    rows_desired: int  # rows that the API is to have


class UnitCounter:
    """A counter that counts each unit of a run once, however often it is sent.

    If a unit got a newer change while it was sent, the unit counts only when the newer change has ended.
    """

    def __init__(self, queue: Queue) -> None:
        """Read the planned units. The caller creates a run's counter before any of these units ends."""
        self._is_mirror = queue.unit_kind is UnitKind.MIRROR
        self._partitions = _read_replaced_partitions(queue) if queue.replaces_rows and not self._is_mirror else {}
        self._counts_for_later: dict[int, Counts] = {}

    def count(self, unit: CountedUnit, outcome: UnitOutcome | None) -> Counts:
        """Return what a unit with this outcome counts as. The outcome of a unit in a job is None.

        Return no counts for one half of a replaced pair if the other half counts for both.
        """
        if self._counts_for_later and (later_counts := self._counts_for_later.pop(unit.id, None)) is not None:
            return later_counts
        if self._is_mirror:
            return count_changed_rows(unit.rows_on_api, unit.rows_desired)
        partition = None if unit.rows_on_api and unit.rows_desired else self._partitions.get(unit.partition)
        if partition is None:
            return SINGLE_COUNTS[operation_of(had_rows=bool(unit.rows_on_api), has_rows=bool(unit.rows_desired))]
        operation = partition.count_new_row() if unit.rows_desired else partition.count_old_row(outcome)
        return SINGLE_COUNTS[operation] if operation else NO_COUNTS

    def count_later(self, unit: CountedUnit, outcome: UnitOutcome) -> None:
        """Store what the unit counts as now; count() returns it when the unit's newer change has ended."""
        self._counts_for_later[unit.id] = self.count(unit, outcome)


def _read_replaced_partitions(queue: Queue) -> dict[str, ReplacedPartition]:
    if not queue.store.fetch_rows(ANY_REPLACED_PARTITION)[0][0]:
        return {}
    rows = queue.store.fetch_rows(READ_REPLACED_PARTITIONS, {"watermark": queue.watermark})
    return {
        str(partition): ReplacedPartition(deletes=max(int(old) - int(new), 0), updates=min(int(old), int(new)))
        for partition, old, new in rows
    }


PLANNED = "planned"
ADD_COUNTS = """
insert into run_count values (?, ?, ?, ?)
on conflict (run_id, cell, operation) do update set units = units + excluded.units
"""
READ_COUNTS = "select cell, operation, units from run_count where run_id = ?"
DELETE_COUNTS = "delete from run_count where run_id = ?"


def add_counts(queue: Queue, run_id: str, counts: Mapping[UnitOutcome, Counts] | Mapping[str, Counts]) -> None:
    """Add these counts to a run's counts, in the caller's transaction. A cell is an outcome, or planned.

    Zeros are stored only for planned: they show that the run had a plan, such as an empty table to send.
    """
    rows: list[tuple[str, str, str, int]] = [
        (run_id, str(cell), str(operation), units)
        for cell, units_by_operation in counts.items()
        for operation, units in units_by_operation.items()
        if units or cell == PLANNED
    ]
    if rows:
        queue.store.execute_many(ADD_COUNTS, rows)


def read_counts(queue: Queue, run_id: str) -> dict[str, Counts]:
    """Return a run's counts by cell; an empty dict if the run crashed before it had planned anything."""
    counts: dict[str, Counts] = {}
    for cell, operation, units in queue.store.fetch_rows(READ_COUNTS, (run_id,)):
        counts.setdefault(str(cell), Counts())[UnitOperation(str(operation))] = int(units)
    return counts


def delete_counts(queue: Queue, run_id: str) -> None:
    """Delete a run's counts, because they are in its history."""
    queue.store.execute(DELETE_COUNTS, (run_id,))
