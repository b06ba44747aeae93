"""What a queue would do to the destination if a run sent all that may go now, in units.

before + creates - deletes = after.
"""

import dataclasses
from collections.abc import Iterator, Mapping
from typing import NamedTuple, Self

from ondatra_dagster.changes import Json, Layout
from ondatra_dagster.delivery.queue.jobs import note_units_in_jobs
from ondatra_dagster.delivery.queue.removals import contents_of
from ondatra_dagster.delivery.queue.tables import HELD, IDENTIFIER, IMAGE_ROWS, Queue
from ondatra_dagster.delivery.queue.unit_counts import (
    IS_PLANNED,
    CountedUnit,
    Counts,
    Operation,
    UnitCounter,
    count_units,
)
from ondatra_dagster.delivery.target import Image, Shape, load_image

_GOES = f"{IS_PLANNED} and id not in (select unit from in_job)"
NEWS = "version > :since"
BEHIND = f"""
select coalesce(sum(({HELD} != '') - (target != '')), 0) from unit where version <= :watermark
"""
ROWS_BEHIND = f"""
select coalesce(sum({IMAGE_ROWS.format(HELD)} - {IMAGE_ROWS.format("target")}), 0)
from unit where version <= :watermark
"""
SOME = f"""
select id, belongs_to, {IDENTIFIER}, {HELD}, target from unit
where version <= :watermark and not is_context and {_GOES} order by phase, id limit :limit
"""


class Moves(NamedTuple):
    """Units of the destination."""

    creates: int = 0
    updates: int = 0
    deletes: int = 0

    @classmethod
    def of(cls, counts: Counts) -> Self:
        return cls(counts[Operation.INSERT], counts[Operation.UPDATE], counts[Operation.DELETE])

    @property
    def total(self) -> int:
        return sum(self)


NO_MOVES = Moves()


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Foreseen:
    """What would become of one key."""

    key: str
    operation: Operation
    had: int  # rows
    has: int
    columns: Mapping[str, tuple[Json, Json]]  # of a single row those that change: as it was, as it will be


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Outlook:
    """What would be sent, and what it would come to."""

    expected: Moves = NO_MOVES
    changed: int = 0  # units that differ since the last run, sent now or not
    before: int | None = None  # units at the destination; None: unknown
    samples: tuple[Foreseen, ...] = ()

    @property
    def after(self) -> int | None:
        if self.before is None:
            return None
        return self.before + self.expected.creates - self.expected.deletes


NOTHING_AHEAD = Outlook()


def outlook(queue: Queue, *, since: int, size: int | None, samples: int = 20) -> Outlook:
    """Return what may go now, and what is newer than `since`.

    `size` is how many units the table has; None when it is unknown.
    """
    note_units_in_jobs(queue)
    return Outlook(
        expected=Moves.of(count_units(queue, _GOES)),
        changed=count_units(queue, NEWS, {"since": since}).total(),
        before=_held(queue, size),
        samples=tuple(_samples(queue, samples)),
    )


def _held(queue: Queue, size: int | None) -> int | None:
    """How many units the API has: what arrived of mirrors, else the table's, but for what is on its way."""
    if queue.shape is Shape.MIRROR:
        contents = contents_of(queue.store)
        is_known = contents or queue.meta("last_run") is None
        return sum(contents.values()) if is_known else None
    if size is None:
        return None
    behind = BEHIND if queue.shape is Shape.GROUP else ROWS_BEHIND
    return max(size + int(queue.store.rows(behind, {"watermark": queue.watermark})[0][0]), 0)


def _samples(queue: Queue, limit: int) -> Iterator[Foreseen]:
    counter = UnitCounter(queue)
    bounds = {"watermark": queue.watermark, "limit": limit}
    for unit, part, key, held, target in queue.store.rows(SOME, bounds):
        before, after = load_image(str(held)), load_image(str(target))
        counts = counter.count(CountedUnit(int(unit), str(part), len(before), len(after)), None)
        yield Foreseen(
            key=str(key),
            operation=_main_operation(counts),
            had=len(before),
            has=len(after),
            columns=_columns(before, after, queue.layouts) if len(before) <= 1 and len(after) <= 1 else {},
        )


def _main_operation(counts: Counts) -> Operation:
    """What most of a unit's rows are: only a mirror has several."""
    return max(counts, key=lambda operation: counts[operation]) if counts else Operation.UPDATE


def _columns(before: Image, after: Image, layouts: Mapping[int, Layout]) -> dict[str, tuple[Json, Json]]:
    old, new = (layouts[image[0].layout].row(image[0].payload) if image else {} for image in (before, after))
    names = dict.fromkeys((*new, *old))
    return {name: (old.get(name), new.get(name)) for name in names if old.get(name) != new.get(name)}
