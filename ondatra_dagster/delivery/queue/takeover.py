"""What a queue leaves outside its file, and how a new file goes on from there when the old one is lost.

Beside the frontier there are the records of runs that came after it: what they say was delivered isn't sent
again, and what they say was refused is a dead letter again.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import NamedTuple

import orjson

from ondatra_dagster.changes import ChangeType, FeedPage, Segment
from ondatra_dagster.delivery.frontier import NOTHING_ENQUEUED, Frontier, FrontierUnit
from ondatra_dagster.delivery.queue.claim import frozen_batches
from ondatra_dagster.delivery.queue.enqueue import CHUNK_KEYS, phase, weight_of
from ondatra_dagster.delivery.queue.form import FORM, NAMED_SINCE
from ondatra_dagster.delivery.queue.jobs import dump_jobs, restore_jobs
from ondatra_dagster.delivery.queue.removals import (
    LET_THROUGH,
    contents_of,
    forget_contents,
    remember_contents,
)
from ondatra_dagster.delivery.queue.settled import SUCCEEDED
from ondatra_dagster.delivery.queue.tables import OWED, Queue, dump_layout
from ondatra_dagster.delivery.target import Standing, dump_image, in_doubt, load_image, to_send, weight

# what of a queue's meta goes into its frontier as it is
NOTES = (FORM, NAMED_SINCE, LET_THROUGH, OWED)
CONTENTS = "contents"  # and, as one note more, how much the API has of each mirror

# in the meta: the newest run of which frontier and records tell, until the queue knows all that they say
TAKING_OVER = "taking_over"

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
# what is claimed in a queue that is made of a frontier is in a job
FREE = "select id, base, tried, target from unit where id > ? and state != 'claimed' order by id limit ?"
DOUBT = "update unit set tried = ?, rows = ? where id = ?"
DELIVERED = "delete from unit where key = ? and version <= ?"
# What arrived before the newest change was frozen in the frontier, which has it as tried; of a delete that
# goes before its insert that tells less than both have come to.
ARRIVED_BEFORE = """
update unit set base = tried, tried = null
where key = ? and version > ? and tried <> '' and state != 'claimed'
"""
LEFT_BEFORE = """
update unit set base = '', tried = null
where key = ? and version > ? and tried is not null and state != 'claimed'
"""
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
    run_id: str = ""

    @property
    def sending(self) -> tuple[str, str, int]:
        """What it has in common with the other rows that went out with it."""
        return self.key, self.run_id, self.version


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
        notes=_notes(queue),
    )


def _notes(queue: Queue) -> dict[str, str]:
    notes = {name: note for name in NOTES if (note := queue.meta(name))}
    contents = contents_of(queue.store)
    return {**notes, CONTENTS: orjson.dumps(contents).decode()} if contents else notes


def _units(queue: Queue) -> Iterator[FrontierUnit]:
    jobs, tried = dump_jobs(queue), _tried_by_dead_owners(queue)
    for unit, *fields in queue.store.each(UNITS):
        left = FrontierUnit._make(fields)
        yield left._replace(job_ref=jobs.get(unit), tried=tried.get(unit, left.tried))


def _tried_by_dead_owners(queue: Queue) -> Mapping[int, str | None]:
    """For each unit that is frozen, by its id, what the API may have of it: nobody knows what became of it.

    That is what was handed out, and not the newest target, which waits beside it.
    """
    return {
        unit.id: _dump_tried(in_doubt(unit.standing, unit.sent, queue.shape))
        for batch in frozen_batches(queue)
        if not batch.job
        for unit in batch.units
    }


def _dump_tried(standing: Standing) -> str | None:
    return None if standing.tried is None else dump_image(standing.tried)


def take_over(queue: Queue, frontier: Frontier, *, now: float, recorded_upto: str = "") -> None:
    """Make the queue go on from a frontier, in place of whatever it says itself.

    To be done again until end_takeover(): what the records say beside the frontier, up to that run, is in
    memory only.
    """
    in_jobs: list[tuple[str, str]] = []
    # in one transaction: a queue that has the frontier's watermark without its units has nothing to do
    with queue.store.immediate():
        for table in ("unit", "staged", "batch", "layout"):
            queue.store.run(f"delete from {table}")
        queue.set_meta(TAKING_OVER, max(frontier.run_id, recorded_upto))
        queue.store.run_many(ADD_LAYOUT, frontier.layouts.items())
        queue.set_meta("table_id", frontier.table_id)
        queue.set_meta("base_url", frontier.base_url)
        queue.set_meta("known_since", frontier.known_since)
        queue.set_meta("watermark", frontier.watermark)
        queue.set_meta("invalid_watermark", frontier.invalid_watermark)
        queue.forget_meta(*NOTES)
        forget_contents(queue)
        remember_contents(queue, orjson.loads(frontier.notes.get(CONTENTS, "{}")).items())
        for name in NOTES:
            if name in frontier.notes:
                queue.set_meta(name, frontier.notes[name])
        queue.reload_layouts()
        queue.store.run_many(ADD_UNIT, (_unit(queue, unit, now, in_jobs) for unit in frontier.units))
        restore_jobs(queue, in_jobs)


def is_taking_over(queue: Queue) -> bool:
    """Whether a takeover was begun and hasn't come to its end."""
    return queue.meta(TAKING_OVER) is not None


def end_takeover(queue: Queue) -> None:
    """The queue knows all that frontier and records say; the caller has the transaction."""
    newest = queue.meta(TAKING_OVER)
    if newest is not None:
        queue.set_meta("last_run", max(queue.meta("last_run") or "", newest))
        queue.forget_meta(TAKING_OVER)


def _unit(
    queue: Queue, unit: FrontierUnit, now: float, in_jobs: list[tuple[str, str]]
) -> tuple[str | int | float | None, ...]:
    if unit.job_ref:
        in_jobs.append((unit.key, unit.job_ref))
    base, tried, target = unit.base or "", unit.tried, unit.target
    # of a batch only the job is gone on with
    state = "pending" if unit.state == "claimed" and not unit.job_ref else unit.state
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


def doubt(queue: Queue) -> None:
    """Whatever units say may have been sent by a run of which nothing is known: not so what is in a job."""
    last = 0
    while units := queue.store.rows(FREE, (last, CHUNK_KEYS)):
        last = int(units[-1][0])
        with queue.store.immediate():
            queue.store.run_many(DOUBT, [_doubted(queue, *unit) for unit in units])


def _doubted(
    queue: Queue, unit: int, base: str, tried: str | None, target: str
) -> tuple[str | int | None, ...]:
    known = Standing(load_image(base), load_image(target), None if tried is None else load_image(tried))
    known = in_doubt(known, to_send(known, queue.shape, queue.layouts), queue.shape)
    return _dump_tried(known), weight(known, queue.shape, queue.layouts), unit


def contents_told(ends: Iterable[KeyEnd]) -> Mapping[str, int]:
    """How many rows the API has of each mirror by these ends; of one that was empty there is no record."""
    rows = Counter(end.sending for end in ends if end.status == SUCCEEDED)
    newest_last = sorted(rows, key=lambda sending: sending[1:])
    return {sending[0]: rows[sending] for sending in newest_last}


def _place(end: KeyEnd) -> tuple[int, bool]:
    """Its place among the ends of its key: of a row that goes and comes in one version it comes last."""
    return end.version, end.change_type != ChangeType.DELETE


class Recovered:
    """The newest end of each key after the frontier, as the records tell it.

    `cut_off_at` are the versions up to which runs since then may have sent rows that nobody has noted.
    What was `frozen` had its turn before, so that it has arrived says nothing of deletes that are owed since.
    """

    def __init__(
        self,
        ends: Collection[KeyEnd],
        *,
        replaces_rows: bool = False,
        cut_off_at: Collection[int] = (),
        frozen: Collection[str] = (),
    ) -> None:
        self._cut_off_at = frozenset(cut_off_at)
        self._known_upto = max([*cut_off_at, *(end.version for end in ends)], default=NOTHING_ENQUEUED)
        self._is_buried = False
        arrived: dict[str, KeyEnd] = {}
        self._refused: dict[str, KeyEnd] = {}
        self._room_made = -1  # up to which version deletes have ended, most of them without a record
        # a group of which a part was refused hasn't arrived
        refused = {end.sending for end in ends if end.status != SUCCEEDED}
        for end in ends:
            if replaces_rows and end.change_type != ChangeType.DELETE and end.key not in frozen:
                self._room_made = max(self._room_made, end.version)
            if end.status != SUCCEEDED:
                self._refused[end.key] = max(
                    end, self._refused.get(end.key, end), key=lambda end: end.version
                )
            elif end.sending not in refused:
                arrived[end.key] = max(end, arrived.get(end.key, end), key=_place)
        self._delivered = {key: end.version for key, end in arrived.items()}
        self._gone = {key for key, end in arrived.items() if end.change_type == ChangeType.DELETE}
        self._owed = {key for key, end in self._refused.items() if end.change_type == ChangeType.DELETE}

    def stops(self, *, after: int, upto: int) -> Sequence[int]:
        """The versions at which those up to `upto` are parted: between two of them nobody has sent anything.

        A row that came before one and went after it may be at the API, though nobody has noted it.
        """
        told = [*self._delivered.values(), *(end.version for end in self._refused.values())]
        first = [min(told)] if told and after == NOTHING_ENQUEUED else []
        between = (version for version in (*self._cut_off_at, *first) if after < version < upto)
        return [*sorted(set(between)), *([upto] if upto > after else [])]

    def may_be_sent(self, version: int) -> bool:
        """Whether a run was cut off that sent what the table had at this version."""
        return version in self._cut_off_at

    def __bool__(self) -> bool:
        return bool(self._delivered or self._refused)

    def drop_delivered(self, queue: Queue) -> None:
        """Units whose newest change the API has acknowledged; others go on from what it has."""
        arrived = self._delivered.items()
        with queue.store.immediate():
            queue.store.run_many(DELIVERED, arrived)
            queue.store.run_many(LEFT_BEFORE, [each for each in arrived if each[0] in self._gone])
            queue.store.run_many(ARRIVED_BEFORE, [each for each in arrived if each[0] not in self._gone])
        self.drop_replaced(queue)

    def drop_replaced(self, queue: Queue, *, after: int = NOTHING_ENQUEUED) -> None:
        """Rows whose places are known to be taken, to be called again when changes of theirs are enqueued.

        Such a row's delete has arrived, or its insert never went out; hardly any of them has a record. With
        changes `after` all that the records tell of none of them comes, but dead deletes are owed again.
        """
        if after < self._room_made:
            queue.store.run(ROOM_MADE, (self._room_made, orjson.dumps(list(self._owed)).decode()))

    def bury_refused(self, queue: Queue, now: float) -> None:
        """Units whose newest change the API has refused, once all that the records know of is enqueued.

        To be called until then; what is enqueued later takes dead ones along, as ever.
        """
        if self._is_buried or queue.watermark < self._known_upto:
            return
        ends = ((end.message, now, key, end.version) for key, end in self._refused.items())
        with queue.store.immediate():
            queue.store.run_many(REFUSED, ends)
        self._is_buried = True

    def without_delivered(self, segment: Segment) -> Segment:
        """The segment less the changes that are known to have arrived, with the context rows beside them."""
        return segment._replace(pages=(self._page(page) for page in segment.pages))

    def _page(self, page: FeedPage) -> FeedPage:
        arrived = self._delivered
        return page._replace(
            changes=[change for change in page.changes if change.version > arrived.get(change.key, -1)]
        )
