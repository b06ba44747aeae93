"""The changes, in units, that a queue would make at the destination if a run sent all that may be sent now.

The units before, plus creates, minus deletes, are the units after.
"""

import dataclasses
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from ondatra_dagster.delivery.acknowledged_to_desired_diff import RowSet, UnitKind, load_row_set
from ondatra_dagster.delivery.queue.async_jobs import fill_in_job_table
from ondatra_dagster.delivery.queue.change_and_outcome_counts import (
    IS_PLANNED,
    CountedUnit,
    UnitCounter,
    UnitOperation,
    count_units,
)
from ondatra_dagster.delivery.queue.queue_database import ROW_COUNT, ROWS_ON_API, UNIT_IDENTIFIER, Queue
from ondatra_dagster.delivery.queue.removal_count import read_content_sizes
from ondatra_dagster.row_changes import Json, Layout

_MAY_BE_SENT = f"{IS_PLANNED} and id not in (select unit from in_job)"
IS_NEWER = "version > :since"
UNIT_DIFFERENCE = f"""
select coalesce(sum(({ROWS_ON_API} != '') - (desired != '')), 0) from unit where version <= :watermark
"""
ROW_DIFFERENCE = f"""
select coalesce(sum({ROW_COUNT.format(ROWS_ON_API)} - {ROW_COUNT.format("desired")}), 0)
from unit where version <= :watermark
"""
READ_SAMPLES = f"""
select id, belongs_to, {UNIT_IDENTIFIER}, {ROWS_ON_API}, desired from unit
where version <= :watermark and not is_context and {_MAY_BE_SENT} order by phase, id limit :limit
"""


class RowChangeCounts(NamedTuple):
    """The numbers of units that are created, updated and deleted at the destination."""

    creates: int = 0
    updates: int = 0
    deletes: int = 0

    @property
    def total(self) -> int:
        return sum(self)


NO_ROW_CHANGES = RowChangeCounts()


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ExpectedKeyChange:
    """The expected change of one key."""

    key: str
    operation: UnitOperation
    rows_before: int
    rows_after: int
    changed_columns: Mapping[str, tuple[Json, Json]]  # for a single row: each changed column with its old and new value


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ExpectedChanges:
    """The expected changes, and how many units the destination has before and after them."""

    change_counts: RowChangeCounts = NO_ROW_CHANGES
    changed_units: int = 0  # units that changed since the last run, whether they are sent now or not
    units_before: int | None = None  # units at the destination; None: unknown
    samples: tuple[ExpectedKeyChange, ...] = ()

    @property
    def units_after(self) -> int | None:
        if self.units_before is None:
            return None
        return self.units_before + self.change_counts.creates - self.change_counts.deletes


NO_EXPECTED_CHANGES = ExpectedChanges()


def read_expected_changes(queue: Queue, *, since: int, size: int | None, samples: int = 20) -> ExpectedChanges:
    """Return the changes that may be sent now, and the number of units that changed after the version `since`.

    `size` is how many units the table has; None if it is unknown.
    """
    fill_in_job_table(queue)
    counts = count_units(queue, _MAY_BE_SENT)
    return ExpectedChanges(
        change_counts=RowChangeCounts(*(counts[operation] for operation in UnitOperation)),
        changed_units=count_units(queue, IS_NEWER, {"since": since}).total(),
        units_before=_count_units_on_api(queue, size),
        samples=tuple(_read_samples(queue, samples)),
    )


def _count_units_on_api(queue: Queue, size: int | None) -> int | None:
    """Return how many units the API has; None if it is unknown.

    Mirrors count as last delivered. For other kinds it is the table's size without the pending changes.
    """
    if queue.unit_kind is UnitKind.MIRROR:
        contents = read_content_sizes(queue.store)
        is_known = contents or queue.read_meta("last_run") is None
        return sum(contents.values()) if is_known else None
    if size is None:
        return None
    statement = UNIT_DIFFERENCE if queue.unit_kind is UnitKind.GROUP else ROW_DIFFERENCE
    return max(size + int(queue.store.fetch_rows(statement, {"watermark": queue.watermark})[0][0]), 0)


def _read_samples(queue: Queue, limit: int) -> Iterator[ExpectedKeyChange]:
    counter = UnitCounter(queue)
    bounds = {"watermark": queue.watermark, "limit": limit}
    for unit, partition, key, acknowledged, desired in queue.store.fetch_rows(READ_SAMPLES, bounds):
        old_rows, new_rows = load_row_set(str(acknowledged)), load_row_set(str(desired))
        counts = counter.count(CountedUnit(int(unit), str(partition), len(old_rows), len(new_rows)), None)
        yield ExpectedKeyChange(
            key=str(key),
            # the operation of most rows; only a mirror has several rows
            operation=max(counts, key=counts.__getitem__) if counts else UnitOperation.UPDATE,
            rows_before=len(old_rows),
            rows_after=len(new_rows),
            changed_columns=_changed_columns(old_rows, new_rows, queue.layouts)
            if len(old_rows) <= 1 and len(new_rows) <= 1
            else {},
        )


def _changed_columns(old_rows: RowSet, new_rows: RowSet, layouts: Mapping[int, Layout]) -> dict[str, tuple[Json, Json]]:
    old_row, new_row = (
        layouts[image[0].layout_id].parse_row(image[0].payload) if image else {} for image in (old_rows, new_rows)
    )
    names = dict.fromkeys((*new_row, *old_row))
    return {name: (old_row.get(name), new_row.get(name)) for name in names if old_row.get(name) != new_row.get(name)}
