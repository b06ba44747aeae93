"""The batches of units that are sent together. The rows that push gets are frozen from the claim to the settlement."""

import dataclasses
import hashlib
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import orjson

from ondatra_dagster.delivery.acknowledged_to_desired_diff import (
    KeyState,
    RowSet,
    SentRow,
    StoredRow,
    UnitKind,
    find_rows_to_send,
    load_row_set,
)
from ondatra_dagster.delivery.queue.damage_checksums import (
    BATCH_COLUMNS,
    UNIT_COLUMNS,
    check_row_digest,
    check_unit_digest,
)
from ondatra_dagster.delivery.queue.queue_database import KEY_GENERATION, Queue
from ondatra_dagster.delivery.row_outcome import NO_ROW_KEY, ResultKey
from ondatra_dagster.future_time_correction import corrected_time
from ondatra_dagster.row_changes import ChangeType
from ondatra_dagster.storage.sqlite_database import SqlRow

# Units become due at the start of a run only, so that a run sends no unit twice.
MARK_DUE_PENDING = "update unit set state = 'pending', due_at = null where state = 'waiting' and due_at <= ?"
_CLAIM_COLUMNS = (
    "unit.id, key, version, acknowledged, maybe_sent, desired, unit.belongs_to, is_context, unit.rows, unit.phase,"
    " unit.digest, key_renewals"
)
# The units to send next. If new rows replace old ones, no insert is sent while a delete is in flight or waits
# for its next attempt.
READ_NEXT_UNITS = f"""
select {_CLAIM_COLUMNS} from unit
where state = 'pending' and version <= :watermark and phase = (
    select case when exists (
        select 1 from unit where phase = 0 and state in ('pending', 'claimed', 'waiting')
    ) then 0 else 1 end
)
order by outages, id limit :size
"""
# The units to send next, if they are sent with all versions of their key. A key is left out while one of its units
# is in flight.
READ_NEXT_KEYS = f"""
with first as (
    select id, outages, belongs_to from unit
    where state = 'pending' and phase = 0 and version <= :watermark and not exists (
        select 1 from unit as other
        where other.belongs_to = unit.belongs_to and other.state = 'claimed'
    )
    order by outages, id limit :size
),
together as (
    select unit.belongs_to, min(unit.outages) as outages, min(unit.id) as first_id, sum(rows) as rows
    from unit join (select distinct belongs_to from first) as due
        on unit.belongs_to = due.belongs_to
    where state = 'pending' and version <= :watermark group by unit.belongs_to
)
select {_CLAIM_COLUMNS} from unit join (
    select belongs_to, rows, sum(rows) over (order by outages, first_id rows unbounded preceding) as total
    from together
) as key on unit.belongs_to = key.belongs_to
where (total <= :size or total = key.rows) and state = 'pending' and version <= :watermark
order by unit.outages, unit.id
"""
CLAIM_UNITS = "update unit set state = 'claimed' where id in (select value from json_each(?))"
ADD_BATCH = """
insert into batch (number, rows, seed, is_part, units, digest)
values (?1, ?2, ?3, ?4, ?5, row_digest(?1, ?2, ?3, ?4, ?5, null, null, null)) returning id
"""
READ_BATCHES = f"""
select id, number, rows, seed, is_part, begun, crashes, answered, job, submitted_at, next_poll_at,
    masked_job, set_at, digest, {", ".join(BATCH_COLUMNS)}
from batch order by id
"""
READ_CLAIMED_UNITS = f"""
select id, digest, {", ".join(UNIT_COLUMNS)}
from unit where state = 'claimed' and id in (select value from json_each(?))
"""
COUNT_CLAIMED_UNITS = "select count(*) from unit where state = 'claimed'"
# Stored at an end that is no crash: the next run counts a crash if the journal has more push starts than are
# stored.
RESET_PUSH_STARTS = "update batch set begun = ? where id = ?"
WRITE_CRASH = "update batch set crashes = ?, answered = ?, begun = ? where id = ?"
RELEASE_UNITS = "update unit set state = 'pending' where id in (select value from json_each(?))"
DELETE_BATCH = "delete from batch where id = ?"
DESIRED_CHANGE_TYPES = frozenset({ChangeType.INSERT, ChangeType.UPDATE_POSTIMAGE})


class BatchUnit(NamedTuple):
    """A claimed unit, with its rows that push gets."""

    id: int
    key: str
    version: int
    acknowledged: str
    maybe_sent: str | None
    sent_rows: Sequence[SentRow]
    belongs_to: str | None = None  # units with the same value are never separated
    is_context: bool = False  # a delete that only shows push which row is replaced by inserts
    partition: str = ""  # the partition that the unit's row belongs to

    @property
    def result_keys(self) -> list[ResultKey]:
        """Return the result keys of the unit's rows. An empty mirror has one result key, too."""
        return [row.result_key for row in self.sent_rows] or [NO_ROW_KEY]

    @property
    def desired(self) -> RowSet:
        """Return the desired rows that were sent, even if newer ones wait in the queue."""
        return tuple([row for change_type, row in self.sent_rows if change_type in DESIRED_CHANGE_TYPES])

    @property
    def has_desired_rows(self) -> bool:
        """Return whether the sent rows leave rows at the API.

        The last sent row shows it, because inserts and postimages are sent last.
        """
        return bool(self.sent_rows) and self.sent_rows[-1].change_type in DESIRED_CHANGE_TYPES

    @property
    def key_state(self) -> KeyState:
        """Return the unit's state when it was sent."""
        return KeyState.load(self.acknowledged, "", self.maybe_sent)._replace(desired=self.desired)


class Job(NamedTuple):
    """The job that an asynchronous API made of a batch."""

    reference: str  # JSON
    submitted_at: float
    next_poll_at: float
    masked_reference: str | None = None  # None: it has no secrets
    set_at: float | None = None  # when next_poll_at was set; None: at submitted_at

    def next_poll_time(self, now: float) -> float:
        """Return when to poll the job. A time that was set while the clock was ahead of `now` is corrected."""
        set_at = self.submitted_at if self.set_at is None else self.set_at
        return corrected_time(self.next_poll_at, set_at=set_at, now=now)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """A claimed batch, with its frozen rows."""

    id: int
    number: int
    batch_key: str  # the seed of its idempotency keys, and the name of its journal; parts of a split batch share it
    units: Sequence[BatchUnit]
    is_split: bool = False  # a part of a batch that crashed its process too often
    push_starts: int = 0  # how often processes that have ended called push with this batch
    crash_count: int = 0  # consecutive crashes without more answered calls than before
    answered_calls: int = 0  # how many calls had an answer at the last crash
    job: Job | None = None  # the open job that has the whole batch

    @property
    def result_keys(self) -> list[ResultKey]:
        """Return the result keys of all rows in the batch."""
        return [key for unit in self.units for key in unit.result_keys]

    @property
    def must_run_alone(self) -> bool:
        """Return whether this batch must be in flight alone, so that a crash is this batch's fault."""
        return self.crash_count > 0 or self.is_split


def mark_due_pending(queue: Queue, now: float) -> int:
    """Make waiting units pending if their retry delay is over; return how many there were."""
    return queue.store.execute(MARK_DUE_PENDING, (now,))


def claim_batch(queue: Queue, *, size: int, number: int) -> Batch | None:
    """Claim and freeze the next batch; return None when no unit may be sent."""
    with queue.store.write_transaction():
        unit_rows = _select_next_units(queue, size=max(size, 1))
        if not unit_rows:
            return None
        queue.store.execute(CLAIM_UNITS, (orjson.dumps([row[0] for row in unit_rows]).decode(),))
        units = [_build_unit(queue, row) for row in unit_rows]
        return store_batch(queue, units, number=number, seed=_make_batch_key(queue, unit_rows))


def _make_batch_key(queue: Queue, claimed_rows: Sequence[SqlRow]) -> str:
    """Return the seed of the batch's idempotency keys.

    The same changes in the same batch have the same seed on any machine, even after the queue was lost. If a unit
    is sent again after an answer or a delivery, its batch has another seed.
    """
    changes = [(key, version, renewals) for _, key, version, *_, renewals in claimed_rows]
    content = orjson.dumps([queue.read_meta("table_id"), queue.read_meta(KEY_GENERATION), changes])
    return hashlib.blake2b(content, digest_size=16).hexdigest()


def _select_next_units(queue: Queue, *, size: int) -> Sequence[SqlRow]:
    """Return the next units that fit into one batch."""
    bounds = {"watermark": queue.watermark, "size": size}
    if queue.unit_kind is UnitKind.VERSION:
        return _sort_by_key(queue.store.fetch_rows(READ_NEXT_KEYS, bounds))
    unit_rows: list[SqlRow] = []
    rows = 0
    # read one by one, because the groups of a full batch may not fit into memory
    for unit in queue.store.iterate_rows(READ_NEXT_UNITS, bounds):
        rows += unit[8]
        # units aren't split: a batch ends before the unit that would exceed its size; only a larger unit is
        # alone
        if unit_rows and rows > size:
            break
        unit_rows.append(unit)
    return unit_rows


def _sort_by_key(claimed_rows: list[SqlRow]) -> list[SqlRow]:
    """Sort the units so that each key's versions are adjacent, oldest first.

    A version ends before the next version of its key begins.
    """
    keys: dict[str, list[SqlRow]] = {}
    for row in claimed_rows:
        keys.setdefault(str(row[6]), []).append(row)
    return [row for rows in keys.values() for row in sorted(rows, key=_order_in_key)]


def _order_in_key(row: SqlRow) -> tuple[bool, int]:
    # rowids rise with the versions of the table, but the rowid of a deleted row says nothing about its order
    return (True, int(row[1])) if row[5] else (False, int(row[0]))


def _build_unit(queue: Queue, row: SqlRow) -> BatchUnit:
    unit, key, version, acknowledged, maybe_sent, desired, belongs_to, is_context, rows, phase, digest, renewals = row
    values = (key, belongs_to, is_context, version, acknowledged, maybe_sent, desired, rows, phase, renewals)
    check_unit_digest(queue.store, unit, values, digest)
    return _new_unit(queue, unit, version, _rows_to_send(queue, acknowledged, maybe_sent, desired), values)


def _new_unit(queue: Queue, unit: int, version: int, sent_rows: Sequence[SentRow], values: Sequence[Any]) -> BatchUnit:
    """Return a unit with the rows that push gets; `values` has the values of UNIT_COLUMNS."""
    key, belongs_to, is_context, _, acknowledged, maybe_sent, *_ = values
    # belongs_to may also be a partition, whose rows may be sent in different batches
    group_key = belongs_to if queue.unit_kind is UnitKind.VERSION else None
    return BatchUnit(unit, key, version, acknowledged, maybe_sent, sent_rows, group_key, bool(is_context), belongs_to)


def _rows_to_send(queue: Queue, acknowledged: str, maybe_sent: str | None, desired: str) -> list[SentRow]:
    if acknowledged or maybe_sent is not None:
        return find_rows_to_send(KeyState.load(acknowledged, desired, maybe_sent), queue.unit_kind, queue.layouts)
    # the same result as find_rows_to_send(), but faster; nearly all units are such inserts
    return [SentRow(ChangeType.INSERT, row) for row in load_row_set(desired)]


def store_batch(queue: Queue, units: Sequence[BatchUnit], *, number: int, seed: str, is_part: bool = False) -> Batch:
    """Store the units as one batch, in the caller's transaction; return the batch."""
    lines = "\n".join(dump_batch_lines(units))
    id_rows = queue.store.fetch_rows(ADD_BATCH, (number, lines, seed, is_part, len(units)))
    return Batch(id=int(id_rows[0][0]), number=number, batch_key=seed, units=units, is_split=is_part)


def dump_batch_lines(units: Iterable[BatchUnit]) -> Iterator[str]:
    """Yield the lines of a batch's text. The first word of each line is the id of its unit."""
    for unit in units:
        if not unit.sent_rows:
            yield f"{unit.id} {unit.version}"
        for change_type, (rowid, layout, payload) in unit.sent_rows:
            yield f"{unit.id} {unit.version} {change_type} {rowid} {layout} {payload}"


def delete_batch(queue: Queue, batch: Batch) -> None:
    """Delete the batch, but not its units, in the caller's transaction."""
    queue.store.execute(DELETE_BATCH, (batch.id,))


def load_batches(queue: Queue) -> list[Batch]:
    """Return all claimed batches with their frozen rows, including those with open jobs.

    Delete batches without units.
    """
    batches = [_load_batch(queue, row) for row in queue.store.fetch_rows(READ_BATCHES)]
    if queue.store.fetch_rows(COUNT_CLAIMED_UNITS) != [(sum(len(batch.units) for batch in batches),)]:
        raise queue.store.damage_error("units are claimed by no batch")
    for batch in batches:
        if not batch.units:
            delete_batch(queue, batch)
    return [batch for batch in batches if batch.units]


def _load_batch(queue: Queue, row: SqlRow) -> Batch:
    batch, number, rows, seed, is_part, push_starts, crashes, answered_calls, *job = row[:13]
    check_row_digest(queue.store, "batch", batch, row[14:], row[13])
    return Batch(
        id=int(batch),
        number=int(number),
        batch_key=str(seed),
        is_split=bool(is_part),
        push_starts=int(push_starts),
        units=_load_units(queue, str(rows)),
        crash_count=int(crashes),
        answered_calls=int(answered_calls),
        job=None if job[0] is None else Job(*job),
    )


def parse_batch_rows(text: str) -> dict[int, tuple[int, list[SentRow]]]:
    """Return, by unit id, the version and the rows of each unit in a batch's text."""
    rows_by_unit: dict[int, tuple[int, list[SentRow]]] = {}
    for line in text.split("\n"):
        unit, version, *fields = line.split(" ", 5)
        _, rows = rows_by_unit.setdefault(int(unit), (int(version), []))
        if fields:
            change_type, rowid, layout, payload = fields
            rows.append(SentRow(ChangeType(change_type), StoredRow(int(rowid), int(layout), payload)))
    return rows_by_unit


def _load_units(queue: Queue, text: str) -> list[BatchUnit]:
    rows_by_unit = parse_batch_rows(text)
    unit_rows = {
        row[0]: row for row in queue.store.fetch_rows(READ_CLAIMED_UNITS, (orjson.dumps(list(rows_by_unit)).decode(),))
    }
    # a unit may have ended since: the records of later runs said so
    frozen_units = [(unit, version, rows) for unit, (version, rows) in rows_by_unit.items() if unit in unit_rows]
    return [_load_unit(queue, unit, version, rows, unit_rows[unit]) for unit, version, rows in frozen_units]


def _load_unit(queue: Queue, unit: int, version: int, rows: Sequence[SentRow], unit_row: SqlRow) -> BatchUnit:
    _, digest, *values = unit_row
    check_unit_digest(queue.store, unit, values, digest)
    return _new_unit(queue, unit, version, rows, values)


def release_batch(queue: Queue, batch: Batch) -> None:
    """Release a batch that push didn't get, in the caller's transaction: its units are pending again."""
    queue.store.execute(RELEASE_UNITS, (orjson.dumps([unit.id for unit in batch.units]).decode(),))
    delete_batch(queue, batch)


def record_crash(queue: Queue, batch: Batch, *, answered_calls: int, push_starts: int) -> Batch:
    """Count a crash of the batch, and return the batch.

    If more calls had an answer than at the last crash, this crash counts as the first one.
    """
    crashes = batch.crash_count + 1 if answered_calls <= batch.answered_calls else 1
    queue.store.execute(WRITE_CRASH, (crashes, answered_calls, push_starts, batch.id))
    return dataclasses.replace(batch, crash_count=crashes, answered_calls=answered_calls, push_starts=push_starts)


def reset_push_starts(queue: Queue, batch: Batch, *, push_starts: int) -> None:
    """Set the stored number of push calls of the batch.

    The number is set back when the process ends on purpose, because the next run counts further calls as crashes.
    """
    queue.store.execute(RESET_PUSH_STARTS, (push_starts, batch.id))


def split_batch(queue: Queue, batch: Batch) -> list[Batch]:
    """Replace the batch by one batch for each key, so that a key that crashes the process is alone in its batch."""
    with queue.store.write_transaction():
        delete_batch(queue, batch)
        return [
            store_batch(queue, units, number=batch.number, seed=batch.batch_key, is_part=True)
            for units in group_by_key(batch.units)
        ]


def group_by_key(units: Sequence[BatchUnit]) -> list[list[BatchUnit]]:
    """Group the units by key, in their order, because a key's units must not be separated."""
    keys: list[list[BatchUnit]] = []
    for unit in units:
        if keys and unit.belongs_to is not None and unit.belongs_to == keys[-1][-1].belongs_to:
            keys[-1].append(unit)
        else:
            keys.append([unit])
    return keys
