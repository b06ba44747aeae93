"""Batches that an asynchronous API works on: what it calls them, and when it is asked about them next.

A frontier takes them along, a unit at a time, so that a lost queue file submits none of them again. It lies
where the records do: no secret leaves with a reference.
"""

import dataclasses
from collections.abc import Collection, Iterable, Mapping

import orjson

from ondatra_dagster.delivery.queue.claim import Batch, BatchUnit, Job, frozen_batches, frozen_lines, melt
from ondatra_dagster.delivery.queue.removals import content_of
from ondatra_dagster.delivery.queue.tables import IMAGE_ROWS, Queue, units_of_lines
from ondatra_dagster.delivery.queue.unit_counts import HAD, CountedUnit, Counts, UnitCounter
from ondatra_dagster.delivery.target import Shape, dump_tried, in_doubt

KEEP_JOB = (
    "update batch set job = ?, submitted_at = ?, next_poll_at = ?, masked_job = ?, set_at = ? where id = ?"
)
POSTPONE = "update batch set next_poll_at = ?, set_at = ? where id = ?"
JOB_ROWS = "select rows from batch where job is not null"
# what an API works on isn't sent again, whatever became of its rows since
IN_JOBS = "create temp table if not exists in_job (unit integer primary key)"
FORGET_JOBS = "delete from in_job"
IN_JOB = "insert or ignore into in_job values (?)"
UNITS_IN_JOBS = f"""
select id, belongs_to, key, {HAD}, {IMAGE_ROWS.format("target")} from unit
where id in (select unit from in_job) order by phase, id
"""
ANY_JOB = "select 1 from batch where job is not null limit 1"
RESTORE = """
insert into batch (number, rows, seed, is_part, units, job, submitted_at, next_poll_at, set_at, digest)
values (:number, :rows, :seed, 0, :units, :job, :submitted_at, :next_poll_at, :set_at,
    row_digest(:number, :rows, :seed, 0, :units, :job, :submitted_at, null))
"""
TAKE_OUT = "update unit set state = 'pending', tried = ? where id = ?"
WORK_ON = "update batch set rows = ?, units = ? where id = ?"
UNIT_OF_KEY = "select id from unit where key = ?"


def keep_job(queue: Queue, batch: Batch, job: Job) -> Batch:
    """The batch with the job that it is now; the caller has the transaction."""
    queue.store.run(KEEP_JOB, (*job, batch.id))
    return dataclasses.replace(batch, job=job)


def postpone(queue: Queue, batch: Batch, *, next_poll_at: float, set_at: float) -> Batch:
    """The batch, its job still open."""
    queue.store.run(POSTPONE, (next_poll_at, set_at, batch.id))
    job = batch.job and batch.job._replace(next_poll_at=next_poll_at, set_at=set_at)
    return dataclasses.replace(batch, job=job)


def dump_jobs(queue: Queue) -> Mapping[int, str]:
    """For each unit in a job, by its id, what is needed to go on with that job elsewhere."""
    if not queue.store.rows(ANY_JOB):
        return {}
    return {
        unit.id: orjson.dumps(
            {
                "seed": batch.seed,
                "number": batch.number,
                "job": batch.job.outside,
                "submitted_at": batch.job.submitted_at,
                "next_poll_at": batch.job.next_poll_at,
                "set_at": batch.job.set_at,
                "lines": [line.partition(" ")[2] for line in frozen_lines([unit])],
            }
        ).decode()
        for batch in frozen_batches(queue)
        if batch.job
        for unit in batch.units
    }


def note_units_in_jobs(queue: Queue) -> None:
    """Write the units that are in jobs into a temporary table, `in_job`."""
    queue.store.run(IN_JOBS)
    queue.store.run(FORGET_JOBS)
    for (rows,) in queue.store.rows(JOB_ROWS):
        queue.store.run_many(IN_JOB, ((unit,) for unit in units_of_lines(str(rows))))


def count_in_jobs(queue: Queue, counter: UnitCounter) -> Counts:
    """Count the units that are in jobs at the end of a run."""
    counts = Counts()
    if not queue.store.rows(ANY_JOB):
        return counts
    note_units_in_jobs(queue)
    is_mirror = queue.shape is Shape.MIRROR
    for unit, part, key, had, has in queue.store.rows(UNITS_IN_JOBS):
        held = content_of(queue.store, str(key)) if is_mirror else int(had)
        counts.update(counter.count(CountedUnit(int(unit), str(part), held, int(has)), None))
    return counts


def restore_jobs(queue: Queue, held: Iterable[tuple[str, str]]) -> None:
    """Go on with the jobs that another queue dumped, given by key; the caller has the transaction."""
    batches: dict[tuple[str, str], dict[str, str | int | float]] = {}
    for key, text in held:
        ((unit,),) = queue.store.rows(UNIT_OF_KEY, (key,))
        dumped = orjson.loads(text)
        lines = "\n".join([f"{unit} {line}" for line in dumped.pop("lines")])
        # parts of a split batch share its seed, and each is a job of its own
        batch = batches.setdefault((dumped["seed"], dumped["job"]), {**dumped, "units": 0})
        batch["rows"] = f"{batch['rows']}\n{lines}" if "rows" in batch else lines
        batch["units"] = int(batch["units"]) + 1
    queue.store.run_many(RESTORE, batches.values())


def take_out_of_jobs(queue: Queue, keys: Collection[str]) -> None:
    """Let units go on without the jobs that they are in: these have ended as far as they are concerned.

    What was handed over is what the API may have of them; the caller has the transaction.
    """
    for batch in frozen_batches(queue):
        out = [unit for unit in batch.units if batch.job and unit.key in keys]
        queue.store.run_many(TAKE_OUT, [(_tried(queue, unit), unit.id) for unit in out])
        left = [unit for unit in batch.units if unit not in out]
        if not left:
            melt(queue, batch)
        elif out:
            queue.store.run(WORK_ON, ("\n".join(frozen_lines(left)), len(left), batch.id))


def _tried(queue: Queue, unit: BatchUnit) -> str | None:
    return dump_tried(in_doubt(unit.standing, unit.sent, queue.shape))
