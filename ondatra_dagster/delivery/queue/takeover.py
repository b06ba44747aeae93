"""What a queue leaves outside its file, and how a new file goes on from there when the old one is lost.

Beside the frontier there are the records of runs that came after it: what they say was delivered isn't sent
again, and what they say was refused is a dead letter again.
"""

from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import NamedTuple

import orjson

from ondatra_dagster.changes import Change, ChangeType, FeedPage, Segment
from ondatra_dagster.delivery.frontier import Frontier, FrontierUnit
from ondatra_dagster.delivery.queue.enqueue import phase, weight_of
from ondatra_dagster.delivery.queue.form import FORM, NAMED_SINCE
from ondatra_dagster.delivery.queue.jobs import dump_jobs, restore_jobs
from ondatra_dagster.delivery.queue.removals import CONTENTS, LET_THROUGH
from ondatra_dagster.delivery.queue.settled import SUCCEEDED
from ondatra_dagster.delivery.queue.tables import OWED, Queue, dump_layout

# what of a queue's meta goes into its frontier as it is
NOTES = (FORM, NAMED_SINCE, CONTENTS, LET_THROUGH, OWED)

TAKING_OVER = "taking_over"  # in the meta: the run whose frontier this queue is made of, until that is done

UNITS = """
select id, key, version, state, base, tried, target, attempts, due_at, message, null, belongs_to, is_context
from unit order by id
"""
ADD_LAYOUT = "insert into layout values (?, ?)"
ADD_UNIT = """
insert into unit (
    key, belongs_to, is_context, version, base, tried, target, rows, phase, state, since, attempts, due_at,
    message, died_at
)
values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
"""
DELIVERED = "delete from unit where key = ? and version <= ?"
# no insert goes before the deletes of its version have ended; a dead one has a record
ROOM_MADE = """
delete from unit where phase = 0 and version <= ? and state != 'dead'
    and key not in (select value from json_each(?))
"""
REFUSED = """
update unit set state = 'dead', message = ?, died_at = ?, attempts = 0 where key = ? and version <= ?
"""


class KeyEnd(NamedTuple):
    """How one delivery key stood at the end of a run that left no frontier."""

    key: str
    version: int
    status: str
    message: str | None
    change_type: str


def frontier_of(queue: Queue, *, sync_id: str, run_id: str, written_at: datetime) -> Frontier:
    """Where the queue stands; its units are read while they are written down."""
    return Frontier(
        sync_id=sync_id,
        run_id=run_id,
        table_id=queue.meta("table_id") or "",
        watermark=queue.watermark,
        invalid_watermark=queue.invalid_watermark,
        base_url=queue.meta("base_url") or "",
        known_since=queue.meta("known_since") or "",
        written_at=written_at,
        units=_units(queue),
        layouts={number: dump_layout(layout) for number, layout in queue.layouts.items()},
        notes={name: note for name in NOTES if (note := queue.meta(name))},
    )


def _units(queue: Queue) -> Iterator[FrontierUnit]:
    jobs = dump_jobs(queue)
    for unit, *fields in queue.store.each(UNITS):
        yield FrontierUnit._make(fields)._replace(job_ref=jobs.get(unit))


def take_over(queue: Queue, frontier: Frontier, *, now: float) -> None:
    """Make the queue go on from a frontier, in place of whatever it says itself.

    To be done again until end_takeover(): what the records say beside the frontier is in memory only.
    """
    # a run that was cut off in the middle of it has still to be closed
    past = () if is_taking_over(queue) else ("settled", "run")
    with queue.store.immediate():
        for table in ("unit", "staged", "batch", "layout", *past):
            queue.store.run(f"delete from {table}")
        queue.set_meta(TAKING_OVER, frontier.run_id)
        queue.store.run_many(ADD_LAYOUT, frontier.layouts.items())
        queue.set_meta("table_id", frontier.table_id)
        queue.set_meta("base_url", frontier.base_url)
        queue.set_meta("known_since", frontier.known_since)
        queue.set_meta("watermark", frontier.watermark)
        queue.set_meta("invalid_watermark", frontier.invalid_watermark)
        queue.forget_meta(*NOTES)
        for name, note in frontier.notes.items():
            queue.set_meta(name, note)
    queue.reload_layouts()
    in_jobs: list[tuple[str, str]] = []
    with queue.store.immediate():
        queue.store.run_many(ADD_UNIT, (_unit(queue, unit, now, in_jobs) for unit in frontier.units))
        restore_jobs(queue, in_jobs)


def is_taking_over(queue: Queue) -> bool:
    """Whether a takeover was begun and hasn't come to its end."""
    return queue.meta(TAKING_OVER) is not None


def end_takeover(queue: Queue) -> None:
    """The queue knows all that frontier and records say; the caller has the transaction."""
    frontier = queue.meta(TAKING_OVER)
    if frontier is not None:
        queue.set_meta("last_run", max(queue.meta("last_run") or "", frontier))
        queue.forget_meta(TAKING_OVER)


def _unit(
    queue: Queue, unit: FrontierUnit, now: float, in_jobs: list[tuple[str, str]]
) -> tuple[str | int | float | None, ...]:
    if unit.job_ref:
        in_jobs.append((unit.key, unit.job_ref))
    # what was frozen otherwise may have been sent: nobody knows what the API made of it
    was_frozen = unit.state == "claimed" and not unit.job_ref
    tried = unit.target if was_frozen and unit.tried is None else unit.tried
    base, target = unit.base or "", unit.target
    state = "pending" if was_frozen else unit.state
    died_at = now if state == "dead" else None
    return (
        unit.key,
        unit.belongs_to,
        unit.is_context,
        unit.version,
        base,
        tried,
        target,
        weight_of(queue, base, tried, target),
        phase(queue, target),
        state,
        now,
        unit.attempts,
        unit.due_at,
        unit.message,
        died_at,
    )


class Recovered:
    """The newest end of each key after the frontier, as the records tell it."""

    def __init__(self, ends: Iterable[KeyEnd], *, replaces_rows: bool = False) -> None:
        self._delivered: dict[str, int] = {}
        self._refused: dict[str, KeyEnd] = {}
        self._room_made = -1  # up to which version deletes have ended, most of them without a record
        for end in ends:
            if replaces_rows and end.change_type != ChangeType.DELETE:
                self._room_made = max(self._room_made, end.version)
            if end.status == SUCCEEDED:
                self._delivered[end.key] = max(end.version, self._delivered.get(end.key, end.version))
            else:
                self._refused[end.key] = max(
                    end, self._refused.get(end.key, end), key=lambda end: end.version
                )

        self._owed = {key for key, end in self._refused.items() if end.change_type == ChangeType.DELETE}
        # a group of which a part was refused hasn't arrived
        for key, end in self._refused.items():
            if end.version >= self._delivered.get(key, end.version + 1):
                del self._delivered[key]

    @property
    def first_version(self) -> int | None:
        """The oldest version that any record is about: what a first sync's snapshot was of."""
        versions = [*self._delivered.values(), *(end.version for end in self._refused.values())]
        return min(versions, default=None)

    def __bool__(self) -> bool:
        return bool(self._delivered or self._refused)

    def drop_delivered(self, queue: Queue) -> None:
        """Units whose newest change the API has acknowledged."""
        with queue.store.immediate():
            queue.store.run_many(DELIVERED, self._delivered.items())
            queue.store.run(ROOM_MADE, (self._room_made, orjson.dumps(list(self._owed)).decode()))

    def bury_refused(self, queue: Queue, now: float) -> None:
        """Units whose newest change the API has refused; to be called when their changes are enqueued."""
        ends = ((end.message, now, key, end.version) for key, end in self._refused.items())
        with queue.store.immediate():
            queue.store.run_many(REFUSED, ends)

    def without_delivered(self, segment: Segment) -> Segment:
        """The segment less the changes that are known to have arrived, with the context rows beside them."""
        return segment._replace(pages=(self._page(page) for page in segment.pages))

    def _page(self, page: FeedPage) -> FeedPage:
        return page._replace(changes=[change for change in page.changes if not self._has_arrived(change)])

    def _has_arrived(self, change: Change) -> bool:
        if change.change_type is ChangeType.DELETE and change.version <= self._room_made:
            return change.key not in self._owed
        return change.version <= self._delivered.get(change.key, -1)
