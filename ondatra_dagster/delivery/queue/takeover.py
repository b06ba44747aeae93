"""What a queue leaves outside its file, and how a new file goes on from there when the old one is lost.

What the records of runs that came after it tell is in recovered.
"""

from collections.abc import Iterator, Mapping
from datetime import datetime

import orjson

from ondatra_dagster.delivery.frontier import Frontier, FrontierUnit
from ondatra_dagster.delivery.queue.claim import frozen_batches
from ondatra_dagster.delivery.queue.digests import STATES, UNIT_COLUMNS, check_unit, unit_digest
from ondatra_dagster.delivery.queue.enqueue import CHUNK_KEYS, phase, weight_of
from ondatra_dagster.delivery.queue.form import FORM, NAMED_SINCE
from ondatra_dagster.delivery.queue.jobs import dump_jobs, restore_jobs
from ondatra_dagster.delivery.queue.removals import (
    LET_THROUGH,
    contents_of,
    forget_contents,
    remember_contents,
)
from ondatra_dagster.delivery.queue.tables import ASIDE_TOLD_IN, GENERATION, OWED, Queue, dump_layout
from ondatra_dagster.delivery.target import Standing, dump_tried, in_doubt, to_send, weight

# what of a queue's meta goes into its frontier as it is
LEFT_BESIDE_RUNS = "left_beside_runs"  # how many frontiers so far, as by a resync: a run's id names none
NOTES = (FORM, GENERATION, NAMED_SINCE, LET_THROUGH, OWED, ASIDE_TOLD_IN, LEFT_BESIDE_RUNS)
CONTENTS = "contents"  # and, as one note more, how much the API has of each mirror

# in the meta: the newest run of which frontier and records tell, until the queue knows all that they say
TAKING_OVER = "taking_over"

FORGET_META = "delete from meta where name not in ('queue_id', 'shape')"
UNITS = f"""
select id, key, version, state, base, tried, target, attempts, due_at, message, null, belongs_to, is_context,
    key_renewals, set_at, digest, {", ".join(UNIT_COLUMNS)}
from unit not indexed order by id
"""
COUNT_UNITS = "select count(*) from unit indexed by unit_next"
ADD_LAYOUT = "insert into layout values (?, ?)"
ADD_UNIT = """
insert into unit (
    key, belongs_to, is_context, version, base, tried, target, rows, phase, state, since, attempts, due_at,
    set_at, message, died_at, key_renewals, digest
)
values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
"""
# what is claimed in a queue that is made of a frontier is in a job
FREE = "select id, base, tried, target from unit where id > ? and state != 'claimed' order by id limit ?"
DOUBT = "update unit set tried = ?, rows = ? where id = ?"
# changes that came and went while what the table has now was on its way; an empty mirror weighs something
AS_IT_SHOULD_BE = "delete from unit where rows = 0 and state != 'claimed'"


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
    units = 0
    for unit, *fields in queue.store.each(UNITS):
        left = FrontierUnit._make(fields[: len(FrontierUnit._fields)])
        check_unit(queue.store, unit, fields[-len(UNIT_COLUMNS) :], fields[len(FrontierUnit._fields)])
        if left.state not in STATES:
            raise queue.store.damage(f"the state of unit {unit} isn't as it was written")
        units += 1
        yield left._replace(job_ref=jobs.get(unit), tried=tried.get(unit, left.tried))
    if queue.store.rows(COUNT_UNITS) != [(units,)]:
        raise queue.store.damage("its units and their index disagree")


def _tried_by_dead_owners(queue: Queue) -> Mapping[int, str | None]:
    """For each unit that is frozen, by its id, what the API may have of it: nobody knows what became of it.

    That is what was handed out, and not the newest target, which waits beside it.
    """
    return {
        unit.id: dump_tried(in_doubt(unit.standing, unit.sent, queue.shape))
        for batch in frozen_batches(queue)
        if not batch.job
        for unit in batch.units
    }


def take_over(queue: Queue, frontier: Frontier, *, now: float, recorded_upto: str = "") -> None:
    """Make the queue go on from a frontier, in place of whatever it says itself.

    To be done again until end_takeover(): what the records say beside the frontier, up to that run, is in
    memory only.
    """
    in_jobs: list[tuple[str, str]] = []
    # in one transaction: a queue that has the frontier's watermark without its units has nothing to do
    with queue.store.immediate():
        _forget_units(queue)
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


def take_for_none(queue: Queue) -> None:
    """Let the queue say nothing, as if it were lost: it is a copy of what it was once."""
    with queue.store.immediate():
        _forget_units(queue)
        forget_contents(queue)
        queue.store.run(FORGET_META)
        queue.reload_layouts()


def _forget_units(queue: Queue) -> None:
    # what had settled in a copy that was put back is published, with all that came after
    for table in ("unit", "staged", "batch", "layout", "settled"):
        queue.store.run(f"delete from {table}")


def beside_runs(queue: Queue, frontier: Frontier) -> tuple[int, int]:
    """How many frontiers were left beside runs, as the queue knows and as the frontier does."""
    return int(queue.meta(LEFT_BESIDE_RUNS) or 0), int(frontier.notes.get(LEFT_BESIDE_RUNS, 0))


def is_taking_over(queue: Queue) -> bool:
    """Whether a takeover was begun and hasn't come to its end."""
    return taken_over_upto(queue) is not None


def taken_over_upto(queue: Queue) -> str | None:
    """The newest run of which a takeover that was begun has to tell."""
    return queue.meta(TAKING_OVER)


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
    rows, place = weight_of(queue, base, tried, target), phase(queue, target)
    values = (unit.key, unit.belongs_to, unit.is_context, unit.version, base, tried, target, rows, place)
    return (
        *values,
        state,
        now,
        unit.attempts,
        unit.due_at,
        unit.set_at,
        unit.message,
        died_at,
        unit.key_renewals,
        unit_digest((*values, unit.key_renewals)),
    )


def doubt(queue: Queue) -> None:
    """Whatever units say may have been sent by a run of which nothing is known: not so what is in a job.

    Units of which there is nothing to send, as records may leave them, are no more after that.
    """
    last = 0
    while units := queue.store.rows(FREE, (last, CHUNK_KEYS)):
        last = int(units[-1][0])
        with queue.store.immediate():
            queue.store.run_many(DOUBT, [_doubted(queue, *unit) for unit in units])
    queue.store.run(AS_IT_SHOULD_BE)


def _doubted(
    queue: Queue, unit: int, base: str, tried: str | None, target: str
) -> tuple[str | int | None, ...]:
    known = Standing.load(base, target, tried)
    known = in_doubt(known, to_send(known, queue.shape, queue.layouts), queue.shape)
    return dump_tried(known), weight(known, queue.shape, queue.layouts), unit
