"""The batches that an asynchronous API works on: their job references, and when their jobs are polled next.

A queue snapshot contains these jobs, unit by unit, so that a queue restored from it submits none of them again. The
snapshot is stored with the records, so it contains no secret.
"""

import dataclasses
from collections.abc import Collection, Iterable, Mapping

import orjson

from ondatra_dagster.delivery.acknowledged_to_desired_diff import UnitKind
from ondatra_dagster.delivery.queue.change_and_outcome_counts import IS_ON_API, CountedUnit, Counts, UnitCounter
from ondatra_dagster.delivery.queue.claimed_batches import (
    Batch,
    BatchUnit,
    Job,
    delete_batch,
    dump_batch_lines,
    load_batches,
)
from ondatra_dagster.delivery.queue.queue_database import ROW_COUNT, Queue, parse_unit_ids
from ondatra_dagster.delivery.queue.removal_count import read_content_size

STORE_JOB = "update batch set job = ?, submitted_at = ?, next_poll_at = ?, masked_job = ?, set_at = ? where id = ?"
POSTPONE_POLL = "update batch set next_poll_at = ?, set_at = ? where id = ?"
READ_JOB_ROWS = "select rows from batch where job is not null"
# units in open jobs aren't sent again, whatever happened to their rows since
CREATE_IN_JOB = "create temp table if not exists in_job (unit integer primary key)"
CLEAR_IN_JOB = "delete from in_job"
ADD_IN_JOB = "insert or ignore into in_job values (?)"
READ_UNITS_IN_JOBS = f"""
select id, belongs_to, key, {IS_ON_API}, {ROW_COUNT.format("desired")} from unit
where id in (select unit from in_job) order by phase, id
"""
ANY_JOB = "select 1 from batch where job is not null limit 1"
RESTORE_BATCH = """
insert into batch (number, rows, seed, is_part, units, job, submitted_at, next_poll_at, set_at, digest)
values (:number, :rows, :seed, 0, :units, :job, :submitted_at, :next_poll_at, :set_at,
    row_digest(:number, :rows, :seed, 0, :units, :job, :submitted_at, null))
"""
RELEASE_FROM_JOB = "update unit set state = 'pending', maybe_sent = ? where id = ?"
UPDATE_BATCH_UNITS = "update batch set rows = ?, units = ? where id = ?"
UNIT_OF_KEY = "select id from unit where key = ?"


def store_job(queue: Queue, batch: Batch, job: Job) -> Batch:
    """Store the job of a batch, in the caller's transaction; return the batch with its job."""
    queue.store.execute(STORE_JOB, (*job, batch.id))
    return dataclasses.replace(batch, job=job)


def postpone_poll(queue: Queue, batch: Batch, *, next_poll_at: float, set_at: float) -> Batch:
    """Store when to poll the batch's open job next; return the batch with this time."""
    queue.store.execute(POSTPONE_POLL, (next_poll_at, set_at, batch.id))
    job = batch.job and batch.job._replace(next_poll_at=next_poll_at, set_at=set_at)
    return dataclasses.replace(batch, job=job)


def dump_jobs(queue: Queue) -> Mapping[int, str]:
    """Return, by unit id, the text with which another queue can continue the job that has the unit."""
    if not queue.store.fetch_rows(ANY_JOB):
        return {}
    return {
        unit.id: orjson.dumps(
            {
                "seed": batch.batch_key,
                "number": batch.number,
                "job": batch.job.masked_reference or batch.job.reference,
                "submitted_at": batch.job.submitted_at,
                "next_poll_at": batch.job.next_poll_at,
                "set_at": batch.job.set_at,
                "lines": [line.partition(" ")[2] for line in dump_batch_lines([unit])],
            }
        ).decode()
        for batch in load_batches(queue)
        if batch.job
        for unit in batch.units
    }


def fill_in_job_table(queue: Queue) -> None:
    """Fill the temporary table in_job with the ids of the units in open jobs."""
    queue.store.execute(CREATE_IN_JOB)
    queue.store.execute(CLEAR_IN_JOB)
    for (rows,) in queue.store.fetch_rows(READ_JOB_ROWS):
        queue.store.execute_many(ADD_IN_JOB, ((unit,) for unit in parse_unit_ids(str(rows))))


def count_units_in_jobs(queue: Queue, counter: UnitCounter) -> Counts:
    """Count the units that are still in jobs at the end of a run."""
    counts = Counts()
    if not queue.store.fetch_rows(ANY_JOB):
        return counts
    fill_in_job_table(queue)
    is_mirror = queue.unit_kind is UnitKind.MIRROR
    for unit, partition, key, old_rows, new_rows in queue.store.fetch_rows(READ_UNITS_IN_JOBS):
        rows_on_api = read_content_size(queue.store, str(key)) if is_mirror else int(old_rows)
        counts.update(counter.count(CountedUnit(int(unit), str(partition), rows_on_api, int(new_rows)), None))
    return counts


def restore_jobs(queue: Queue, dumped_jobs: Iterable[tuple[str, str]]) -> None:
    """Restore jobs that dump_jobs() of another queue returned, in the caller's transaction.

    Each pair has a unit's key and the text of its job.
    """
    batches: dict[tuple[str, str], dict[str, str | int | float]] = {}
    for key, text in dumped_jobs:
        ((unit,),) = queue.store.fetch_rows(UNIT_OF_KEY, (key,))
        job = orjson.loads(text)
        lines = "\n".join([f"{unit} {line}" for line in job.pop("lines")])
        # the parts of a split batch share its seed, and each part has another job
        batch = batches.setdefault((job["seed"], job["job"]), {**job, "units": 0})
        batch["rows"] = f"{batch['rows']}\n{lines}" if "rows" in batch else lines
        batch["units"] = int(batch["units"]) + 1
    queue.store.execute_many(RESTORE_BATCH, batches.values())


def remove_units_from_jobs(queue: Queue, keys: Collection[str]) -> None:
    """Release these keys' units from their jobs, because for these units the jobs have ended.

    The API may have the rows that push got, so they are stored as maybe sent, in the caller's transaction.
    """
    for batch in load_batches(queue):
        removed_units = [unit for unit in batch.units if batch.job and unit.key in keys]
        queue.store.execute_many(
            RELEASE_FROM_JOB, [(dump_if_outcome_unknown(queue, unit), unit.id) for unit in removed_units]
        )
        remaining_units = [unit for unit in batch.units if unit not in removed_units]
        if not remaining_units:
            delete_batch(queue, batch)
        elif removed_units:
            queue.store.execute(
                UPDATE_BATCH_UNITS, ("\n".join(dump_batch_lines(remaining_units)), len(remaining_units), batch.id)
            )


def dump_if_outcome_unknown(queue: Queue, unit: BatchUnit) -> str | None:
    """Return, as text, the rows that the API may have of a unit if the outcome of its push is unknown."""
    return unit.key_state.if_unknown(unit.sent_rows, queue.unit_kind).dump_maybe_sent()
