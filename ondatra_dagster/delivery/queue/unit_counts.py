"""The numbers that users see: how many units a queue holds, and what became of the units of one run.

A unit is what a user thinks of as one change: the key of a merge, the group of a tracked table, the row of an
append or scd2. Of a table or a partition each new row is a unit, and takes the place of an old one as far as
there are any; only old rows without a new one are units of their own. What the API had and has is an update.
"""

import collections
import dataclasses
import enum
from collections.abc import Mapping
from typing import NamedTuple, Self

from ondatra_dagster.delivery.queue.removals import contents_of
from ondatra_dagster.delivery.queue.tables import HELD, IMAGE_ROWS, Queue
from ondatra_dagster.delivery.target import Shape
from ondatra_dagster.store.database import Store


class Operation(enum.StrEnum):
    """What a unit is to the destination."""

    INSERT = "insert"
    UPDATE = "update"
    DELETE = "delete"


class End(enum.StrEnum):
    """How a unit left a run that tried it: as the worst of its rows."""

    SUCCEEDED = "succeeded"
    REJECTED = "rejected"  # refused, or tried too often
    FAILED = "failed"  # will be tried again


Counts = collections.Counter[Operation]
ONE = {operation: Counts({operation: 1}) for operation in Operation}  # shared: not to be changed
NONE = Counts()

# what is only to be deleted counts as there, also while nobody knows whether it arrived
HAD = f"iif({HELD} != '' or target = '', 1, 0)"
HAS = "iif(target = '', 0, 1)"
BY_UNIT = f"""
select coalesce(sum({HAS} and not {HAD}), 0), coalesce(sum({HAD} and {HAS}), 0),
    coalesce(sum({HAD} and not {HAS}), 0)
from unit where version <= :watermark and {{where}}
"""
BY_PART = f"""
select coalesce(sum(max(has - had, 0)), 0), coalesce(sum(min(had, has)), 0),
    coalesce(sum(max(had - has, 0)), 0)
from (
    select sum({HAD}) as had, sum({HAS}) as has from unit
    where version <= :watermark and {{where}} group by belongs_to
)
"""
BY_MIRROR = f"select key, {IMAGE_ROWS.format('target')} from unit where version <= :watermark and {{where}}"

IS_PLANNED = "state in ('pending', 'claimed')"  # what may go in a run, and what is in jobs

# of a part of a table that has both, how many rows only go, and how many only come
REPLACED_PARTS = f"""
select belongs_to, sum(not {HAS}), sum(not {HAD})
from unit where version <= :watermark and {IS_PLANNED}
group by belongs_to having sum(not {HAS}) > 0 and sum(not {HAD}) > 0
"""
ANY_REPLACED = f"""
select exists (select 1 from unit where phase = 0 and {IS_PLANNED})
    and exists (select 1 from unit where phase = 1 and {IS_PLANNED})
"""


def operation_of(*, had: bool, has: bool) -> Operation:
    """What a unit is whose destination had something, and is to have something."""
    if not has:
        return Operation.DELETE
    return Operation.UPDATE if had else Operation.INSERT


def changed_rows(had: int, has: int) -> Counts:
    """The units of rows that are replaced: as many as there are before and after are updates."""
    moved = (max(has - had, 0), min(had, has), max(had - has, 0))
    return Counts({operation: rows for operation, rows in zip(Operation, moved, strict=True) if rows})


def count_units(
    queue: Queue, where: str = IS_PLANNED, bounds: Mapping[str, int | str] | None = None
) -> Counts:
    """How many units of the queue a condition on its rows finds, by what they are."""
    span = {"watermark": queue.watermark, **(bounds or {})}
    if queue.shape is Shape.MIRROR:
        return _count_mirrors(queue.store, where, span)
    statement = BY_PART if queue.replaces_rows else BY_UNIT
    moved = queue.store.rows(statement.format(where=where), span)[0]
    return Counts({operation: int(units) for operation, units in zip(Operation, moved, strict=True) if units})


def _count_mirrors(store: Store, where: str, span: Mapping[str, int | str]) -> Counts:
    """What the API has of a mirror isn't in its unit: only how many rows went out last is kept."""
    sent = contents_of(store)
    counts = Counts()
    for key, has in store.rows(BY_MIRROR.format(where=where), span):
        counts += changed_rows(sent.get(str(key), 0), int(has))
    return counts


@dataclasses.dataclass(slots=True)
class ReplacedPart:
    """Rows of a table or partition that replace each other, of which nobody says which takes whose place."""

    deletes: int  # old rows for which there is no new one
    updates: int  # new rows that take the place of an old one
    ended_updates: int = 0  # updates whose old row the API refused to delete: these have ended

    @classmethod
    def of(cls, *, old: int, new: int) -> Self:
        return cls(deletes=max(old - new, 0), updates=min(old, new))

    def end_old(self, end: End | None) -> Operation | None:
        """What an old row counts as that has ended so; None when it is the first half of an update."""
        if self.deletes:
            self.deletes -= 1
            return Operation.DELETE
        if end is End.SUCCEEDED or not self.updates:
            return None
        self.updates -= 1
        self.ended_updates += 1
        return Operation.UPDATE

    def end_new(self) -> Operation | None:
        """What a new row counts as that has ended; None when its update has ended with its old row."""
        if self.ended_updates:
            self.ended_updates -= 1
            return None
        if self.updates:
            self.updates -= 1
            return Operation.UPDATE
        return Operation.INSERT


class CountedUnit(NamedTuple):
    """What decides as what a unit counts."""

    id: int
    part: str  # of the table, for kinds that replace rows
    had: int  # rows that the API had before; but for a mirror 1 stands for any number
    has: int  # rows that it is to have


class UnitCounter:
    """Counts each unit of a run once, however often it is sent.

    A unit whose newer change waits behind the one that was sent counts when that newer one has ended.
    """

    def __init__(self, queue: Queue) -> None:
        """Read what is planned; to be made before anything of it ends."""
        self._is_mirror = queue.shape is Shape.MIRROR
        self._parts = _replaced_parts(queue) if queue.replaces_rows and not self._is_mirror else {}
        self._postponed: dict[int, Counts] = {}

    def count(self, unit: CountedUnit, end: End | None) -> Counts:
        """Return as what a unit counts that has ended so, or that is in a job.

        Nothing when it is half of another unit, which counts for both.
        """
        if self._postponed and (planned := self._postponed.pop(unit.id, None)) is not None:
            return planned
        if self._is_mirror:
            return changed_rows(unit.had, unit.has)
        part = self._parts.get(unit.part) if self._parts and not (unit.had and unit.has) else None
        if part is None:
            return ONE[operation_of(had=bool(unit.had), has=bool(unit.has))]
        operation = part.end_new() if unit.has else part.end_old(end)
        return ONE[operation] if operation else NONE

    def postpone(self, unit: CountedUnit, end: End) -> None:
        """Count the unit later in this run, as what was planned of it."""
        self._postponed[unit.id] = self.count(unit, end)


def _replaced_parts(queue: Queue) -> dict[str, ReplacedPart]:
    if not queue.store.rows(ANY_REPLACED)[0][0]:
        return {}
    found = queue.store.rows(REPLACED_PARTS, {"watermark": queue.watermark})
    return {str(part): ReplacedPart.of(old=int(old), new=int(new)) for part, old, new in found}
