"""The snapshot that a queue leaves outside its file, and the restore of a lost queue from a snapshot.

outcomes_recorded_after_snapshot then applies the records of later runs.
"""

import dataclasses
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from typing import NamedTuple

import orjson

from ondatra_dagster.delivery.acknowledged_to_desired_diff import KeyState, find_rows_to_send
from ondatra_dagster.delivery.queue.async_jobs import dump_if_outcome_unknown, dump_jobs, restore_jobs
from ondatra_dagster.delivery.queue.claimed_batches import load_batches
from ondatra_dagster.delivery.queue.damage_checksums import UNIT_COLUMNS, UNIT_STATES, check_unit_digest, unit_digest
from ondatra_dagster.delivery.queue.enqueue_changes import CHUNK_KEYS, count_stored_rows_to_send, send_phase
from ondatra_dagster.delivery.queue.queue_database import (
    INVALID_RECORDED_IN_RUNS,
    KEY_GENERATION,
    PENDING_FINALIZE,
    Queue,
    dump_layout,
)
from ondatra_dagster.delivery.queue.removal_count import (
    REMOVALS_ALLOWED_UPTO,
    delete_content_sizes,
    read_content_sizes,
    write_content_sizes,
)
from ondatra_dagster.delivery.unit_shape_by_model_kind import KEY_NAMES_SINCE, UNIT_FORMAT


class SnapshotUnit(NamedTuple):
    """A unit in a snapshot: a delivery key that is pending, waiting, frozen, dead or in an open job."""

    key: str
    version: int  # the version of its newest change
    state: str
    acknowledged: str | None  # what the API last acknowledged, in the queue's text format
    maybe_sent: str | None  # what was sent without an answer
    desired: str
    attempts: int
    due_at: float | None
    message: str | None
    job_ref: str | None
    belongs_to: str = ""  # for a row named by its rowid: the value of its key or partition
    is_context: int = 0
    key_renewals: int = 0
    set_at: float | None = None  # the moment at which due_at was set


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class QueueSnapshot:
    """The state of a sync's queue at the end of a run, with each unit that isn't settled.

    The tracking store keeps it.
    """

    sync_id: str
    run_id: str
    table_id: str
    watermark: int  # the table's version up to which changes were enqueued, or NOTHING_ENQUEUED
    invalid_watermark: int
    base_url: str
    written_at: datetime
    units: Iterable[SnapshotUnit]
    state_id: str = ""  # the state folder that wrote it; set by the tracking store
    known_since: str = ""  # the run after which the records describe what the API at this base_url has
    layouts: Mapping[int, str]  # layout id → JSON text of its columns; the units' row sets refer to it
    queue_metadata: Mapping[str, str] = dataclasses.field(default_factory=dict)  # other values of the queue's meta


# values of the queue's meta table that the snapshot contains unchanged
SNAPSHOTS_WITHOUT_RUN = "snapshots_without_run"  # the number of snapshots without a run, such as after a resync
SNAPSHOT_META = (
    UNIT_FORMAT,
    KEY_GENERATION,
    KEY_NAMES_SINCE,
    REMOVALS_ALLOWED_UPTO,
    PENDING_FINALIZE,
    INVALID_RECORDED_IN_RUNS,
    SNAPSHOTS_WITHOUT_RUN,
)
CONTENT_SIZES = "contents"  # one more value in queue_metadata: how many rows the API has of each mirror

# in the meta: the newest run that the snapshot and the records cover, until the queue has all their content
RESTORE_UPTO = "taking_over"

DELETE_ALL_META = "delete from meta where name not in ('queue_id', 'shape')"
READ_UNITS = f"""
select id, key, version, state, acknowledged, maybe_sent, desired, attempts, due_at, message, null, belongs_to,
    is_context, key_renewals, set_at, digest, {", ".join(UNIT_COLUMNS)}
from unit not indexed order by id
"""
COUNT_UNITS = "select count(*) from unit indexed by unit_next"
ADD_LAYOUT = "insert into layout values (?, ?)"
ADD_UNIT = """
insert into unit (
    key, belongs_to, is_context, version, acknowledged, maybe_sent, desired, rows, phase, state, since, attempts,
    due_at, set_at, message, died_at, key_renewals, digest
)
values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
"""
# in a queue that was restored from a snapshot, claimed units are in jobs
READ_UNCLAIMED_UNITS = (
    "select id, acknowledged, maybe_sent, desired from unit where id > ? and state != 'claimed' order by id limit ?"
)
MARK_MAYBE_SENT = "update unit set maybe_sent = ?, rows = ? where id = ?"
# units whose changes cancelled out while the table's present rows were in flight; an empty mirror counts as a row
DELETE_EMPTY_UNITS = "delete from unit where rows = 0 and state != 'claimed'"


def make_snapshot(queue: Queue, *, sync_id: str, run_id: str, written_at: datetime) -> QueueSnapshot:
    """Return a snapshot of the queue; its units are read while the snapshot is written."""
    return QueueSnapshot(
        sync_id=sync_id,
        run_id=run_id,
        table_id=queue.read_meta("table_id") or "",
        watermark=queue.watermark,
        invalid_watermark=queue.invalid_watermark,
        base_url=queue.read_meta("base_url") or "",
        known_since=queue.read_meta("known_since") or "",
        written_at=written_at,
        units=_snapshot_units(queue),
        layouts={number: dump_layout(layout) for number, layout in queue.layouts.items()},
        queue_metadata=_snapshot_meta(queue),
    )


def _snapshot_meta(queue: Queue) -> dict[str, str]:
    notes = {name: note for name in SNAPSHOT_META if (note := queue.read_meta(name))}
    contents = read_content_sizes(queue.store)
    return {**notes, CONTENT_SIZES: orjson.dumps(contents).decode()} if contents else notes


def _snapshot_units(queue: Queue) -> Iterator[SnapshotUnit]:
    jobs, maybe_sent = dump_jobs(queue), _maybe_sent_by_crashed_runs(queue)
    units = 0
    for unit, *fields in queue.store.iterate_rows(READ_UNITS):
        snapshot_unit = SnapshotUnit._make(fields[: len(SnapshotUnit._fields)])
        check_unit_digest(queue.store, unit, fields[-len(UNIT_COLUMNS) :], fields[len(SnapshotUnit._fields)])
        if snapshot_unit.state not in UNIT_STATES:
            raise queue.store.damage_error(f"the state of unit {unit} is damaged")
        units += 1
        yield snapshot_unit._replace(job_ref=jobs.get(unit), maybe_sent=maybe_sent.get(unit, snapshot_unit.maybe_sent))
    if queue.store.fetch_rows(COUNT_UNITS) != [(units,)]:
        raise queue.store.damage_error("its units and their index disagree")


def _maybe_sent_by_crashed_runs(queue: Queue) -> Mapping[int, str | None]:
    """Return, by unit id, the rows that the API may have of each claimed unit.

    Those are the rows that push got, and their outcome is unknown. The unit's newest desired rows stay in the
    queue.
    """
    return {
        unit.id: dump_if_outcome_unknown(queue, unit)
        for batch in load_batches(queue)
        if not batch.job
        for unit in batch.units
    }


def restore_snapshot(queue: Queue, snapshot: QueueSnapshot, *, now: float, recorded_upto: str = "") -> None:
    """Restore the queue from a snapshot, which replaces its content.

    After a crash before end_restore(), restore it again. Until then the outcomes in the records, up to the run
    `recorded_upto`, are only in memory.
    """
    jobs: list[tuple[str, str]] = []
    # in one transaction: a queue with the snapshot's watermark but without its units would have nothing to do
    with queue.store.write_transaction():
        _delete_units(queue)
        queue.write_meta(RESTORE_UPTO, max(snapshot.run_id, recorded_upto))
        queue.store.execute_many(ADD_LAYOUT, snapshot.layouts.items())
        queue.write_meta("table_id", snapshot.table_id)
        queue.write_meta("base_url", snapshot.base_url)
        queue.write_meta("known_since", snapshot.known_since)
        queue.write_meta("watermark", snapshot.watermark)
        queue.write_meta("invalid_watermark", snapshot.invalid_watermark)
        queue.delete_meta(*SNAPSHOT_META)
        delete_content_sizes(queue)
        write_content_sizes(queue, orjson.loads(snapshot.queue_metadata.get(CONTENT_SIZES, "{}")).items())
        for name in SNAPSHOT_META:
            if name in snapshot.queue_metadata:
                queue.write_meta(name, snapshot.queue_metadata[name])
        queue.reload_layouts()
        queue.store.execute_many(ADD_UNIT, (_unit_values(queue, unit, now, jobs) for unit in snapshot.units))
        restore_jobs(queue, jobs)


def clear_queue(queue: Queue) -> None:
    """Empty the queue, as if it were lost, because it is an outdated copy."""
    with queue.store.write_transaction():
        _delete_units(queue)
        delete_content_sizes(queue)
        queue.store.execute(DELETE_ALL_META)
        queue.reload_layouts()


def _delete_units(queue: Queue) -> None:
    # settled rows, too: those of an outdated copy are published already, with all that came after them
    for table in ("unit", "staged", "batch", "layout", "settled"):
        queue.store.execute(f"delete from {table}")


def count_snapshots_without_run(queue: Queue, snapshot: QueueSnapshot) -> tuple[int, int]:
    """Return two counts of the snapshots that were written without a run: the queue's, and the snapshot's."""
    return int(queue.read_meta(SNAPSHOTS_WITHOUT_RUN) or 0), int(snapshot.queue_metadata.get(SNAPSHOTS_WITHOUT_RUN, 0))


def is_restoring(queue: Queue) -> bool:
    """Return whether a restore has begun and hasn't ended."""
    return read_restore_upto(queue) is not None


def read_restore_upto(queue: Queue) -> str | None:
    """Return the newest run that an unfinished restore must cover; None if no restore is unfinished."""
    return queue.read_meta(RESTORE_UPTO)


def end_restore(queue: Queue) -> None:
    """End the restore, in the caller's transaction: the queue has the content of the snapshot and the records."""
    newest_run = queue.read_meta(RESTORE_UPTO)
    if newest_run is not None:
        queue.write_meta("last_run", max(queue.read_meta("last_run") or "", newest_run))
        queue.delete_meta(RESTORE_UPTO)


def _unit_values(
    queue: Queue, unit: SnapshotUnit, now: float, in_jobs: list[tuple[str, str]]
) -> tuple[str | int | float | None, ...]:
    if unit.job_ref:
        in_jobs.append((unit.key, unit.job_ref))
    acknowledged, maybe_sent, desired = unit.acknowledged or "", unit.maybe_sent, unit.desired
    # only jobs continue: units of other batches are pending again
    state = "pending" if unit.state == "claimed" and not unit.job_ref else unit.state
    died_at = now if state == "dead" else None
    rows, phase = count_stored_rows_to_send(queue, acknowledged, maybe_sent, desired), send_phase(queue, desired)
    values = (unit.key, unit.belongs_to, unit.is_context, unit.version, acknowledged, maybe_sent, desired, rows, phase)
    attempt_values = (state, now, unit.attempts, unit.due_at, unit.set_at, unit.message, died_at)
    return (*values, *attempt_values, unit.key_renewals, unit_digest((*values, unit.key_renewals)))


def mark_all_maybe_sent(queue: Queue) -> None:
    """Mark the units outside of jobs as maybe sent, because an unknown run may have sent them.

    Delete units with nothing to send. Applying the records may leave such units.
    """
    last_id = 0
    while units := queue.store.fetch_rows(READ_UNCLAIMED_UNITS, (last_id, CHUNK_KEYS)):
        last_id = int(units[-1][0])
        with queue.store.write_transaction():
            queue.store.execute_many(MARK_MAYBE_SENT, [_maybe_sent_values(queue, *unit) for unit in units])
    queue.store.execute(DELETE_EMPTY_UNITS)


def _maybe_sent_values(
    queue: Queue, unit: int, acknowledged: str, maybe_sent: str | None, desired: str
) -> tuple[str | int | None, ...]:
    key_state = KeyState.load(acknowledged, desired, maybe_sent)
    key_state = key_state.if_unknown(find_rows_to_send(key_state, queue.unit_kind, queue.layouts), queue.unit_kind)
    return key_state.dump_maybe_sent(), key_state.count_rows(queue.unit_kind, queue.layouts), unit
