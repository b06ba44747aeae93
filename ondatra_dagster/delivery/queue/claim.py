"""Batches: which units go out together, frozen as they were handed to push until they are settled."""

import dataclasses
import hashlib
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import orjson

from ondatra_dagster.changes import ChangeType
from ondatra_dagster.clock_jumps import time_that_counts
from ondatra_dagster.delivery.outcome import NO_ROW, ResultKey
from ondatra_dagster.delivery.queue.digests import BATCH_COLUMNS, UNIT_COLUMNS, check_row, check_unit
from ondatra_dagster.delivery.queue.tables import GENERATION, Queue
from ondatra_dagster.delivery.target import (
    Image,
    ImageRow,
    SentRow,
    Shape,
    Standing,
    load_image,
    load_tried,
    to_send,
)
from ondatra_dagster.store.database import Row

# units whose wait is over, at the start of a run: in the middle of one nothing comes a second time
MAKE_DUE = "update unit set state = 'pending', due_at = null where state = 'waiting' and due_at <= ?"
_CLAIMED = (
    "unit.id, key, version, base, tried, target, unit.belongs_to, is_context, unit.rows, unit.phase,"
    " unit.digest, key_renewals"
)
# What may go next. Where new rows replace old ones, no insert goes while a delete is on its way or waits for
# its next try.
NEXT = f"""
select {_CLAIMED} from unit
where state = 'pending' and version <= :watermark and phase = (
    select case when exists (
        select 1 from unit where phase = 0 and state in ('pending', 'claimed', 'waiting')
    ) then 0 else 1 end
)
order by outages, id limit :size
"""
# The same where a key's versions go together: all that may go of a key of which nothing is on its way.
NEXT_KEYS = f"""
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
select {_CLAIMED} from unit join (
    select belongs_to, rows, sum(rows) over (order by outages, first_id rows unbounded preceding) as total
    from together
) as key on unit.belongs_to = key.belongs_to
where (total <= :size or total = key.rows) and state = 'pending' and version <= :watermark
order by unit.outages, unit.id
"""
CLAIM = "update unit set state = 'claimed' where id in (select value from json_each(?))"
FREEZE = """
insert into batch (number, rows, seed, is_part, units, digest)
values (?1, ?2, ?3, ?4, ?5, row_digest(?1, ?2, ?3, ?4, ?5, null, null, null)) returning id
"""
FROZEN = f"""
select id, number, rows, seed, is_part, begun, crashes, answered, job, submitted_at, next_poll_at,
    masked_job, set_at, digest, {", ".join(BATCH_COLUMNS)}
from batch order by id
"""
FROZEN_UNITS = f"""
select id, digest, {", ".join(UNIT_COLUMNS)}
from unit where state = 'claimed' and id in (select value from json_each(?))
"""
CLAIMED_UNITS = "select count(*) from unit where state = 'claimed'"
# the next run counts a crash for each beginning that it doesn't know of: this one was no crash
FORGIVE = "update batch set begun = ? where id = ?"
NOTE_CRASH = "update batch set crashes = ?, answered = ?, begun = ? where id = ?"
RELEASE = "update unit set state = 'pending' where id in (select value from json_each(?))"
MELT = "delete from batch where id = ?"


_TELL_TARGET = frozenset({ChangeType.INSERT, ChangeType.UPDATE_POSTIMAGE})


class BatchUnit(NamedTuple):
    """One unit as it was claimed."""

    id: int
    key: str
    version: int
    base: str
    tried: str | None
    sent: Sequence[SentRow]
    belongs_to: str | None = None  # units of the same are never parted
    is_context: bool = False  # a delete beside inserts that take the row's place
    part: str = ""  # of the table that its row is in

    @property
    def result_keys(self) -> list[ResultKey]:
        """Under which the outcomes of its rows are; an empty mirror has one, too."""
        return [row.result_key for row in self.sent] or [NO_ROW]

    @property
    def target(self) -> Image:
        """As it was sent, also when a newer one waits beside."""
        return tuple([row for change_type, row in self.sent if change_type in _TELL_TARGET])

    @property
    def has_base(self) -> bool:
        """Whether the API had something of it, as far as is known."""
        return bool(self.base) or not self.has_target

    @property
    def has_target(self) -> bool:
        """Whether the API is to have something of it; what is to come is sent last."""
        return bool(self.sent) and self.sent[-1].change_type in _TELL_TARGET

    @property
    def standing(self) -> Standing:
        """What was known of it when it was sent."""
        return Standing(load_image(self.base), self.target, load_tried(self.tried))


class Job(NamedTuple):
    """What an asynchronous API made of a batch."""

    reference: str  # JSON
    submitted_at: float
    next_poll_at: float
    masked: str | None = None  # the reference without secrets; None: there are none in it
    set_at: float | None = None  # when next_poll_at was set; None: with submitted_at

    def next_poll_by(self, now: float) -> float:
        """When to ask about it, by that clock."""
        set_at = self.submitted_at if self.set_at is None else self.set_at
        return time_that_counts(self.next_poll_at, set_at=set_at, now=now)

    @property
    def outside(self) -> str:
        """The reference as it may leave the queue's file."""
        return self.masked or self.reference


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """A claimed batch."""

    id: int
    number: int
    seed: str  # of its idempotency keys, and the name of its journal; parts of a split batch share it
    units: Sequence[BatchUnit]
    is_part: bool = False  # of a batch that ended its process too often
    begun: int = 0  # how often push was given it in processes that came to their end
    crashes: int = 0  # how often a process ended with it, without getting further than before
    answered: int = 0  # how many calls had an answer at the last of these
    job: Job | None = None  # it was handed over whole, and its end is waited for

    def rows(self) -> Iterator[SentRow]:
        for unit in self.units:
            yield from unit.sent

    @property
    def result_keys(self) -> list[ResultKey]:
        """Under which the outcomes of its rows are."""
        return [key for unit in self.units for key in unit.result_keys]

    @property
    def goes_alone(self) -> bool:
        """Whether nothing else may be on its way beside it: should the process end, it is to blame."""
        return self.crashes > 0 or self.is_part

    def __len__(self) -> int:
        return sum(len(unit.sent) for unit in self.units)

    def __bool__(self) -> bool:
        return True  # also without rows: the content of an empty table goes out, too


def make_due(queue: Queue, now: float) -> int:
    """Let the rows go whose back-off has passed."""
    return queue.store.run(MAKE_DUE, (now,))


def claim(queue: Queue, *, size: int, number: int) -> Batch | None:
    """The next batch, frozen; None when nothing is left that may go."""
    with queue.store.immediate():
        claimed = _next(queue, size=max(size, 1))
        if not claimed:
            return None
        queue.store.run(CLAIM, (orjson.dumps([row[0] for row in claimed]).decode(),))
        units = [_unit(queue, row) for row in claimed]
        return freeze(queue, units, number=number, seed=_seed(queue, claimed))


def _seed(queue: Queue, claimed: Sequence[Row]) -> str:
    """Return the seed of the batch's idempotency keys.

    The same changes in the same batch have the same seed on any machine, also after the queue was lost. A
    unit that is sent again although its change was answered, or was delivered, has another.
    """
    changes = [(key, version, renewals) for _, key, version, *_, renewals in claimed]
    named = orjson.dumps([queue.meta("table_id"), queue.meta(GENERATION), changes])
    return hashlib.blake2b(named, digest_size=16).hexdigest()


def _next(queue: Queue, *, size: int) -> Sequence[Row]:
    """What goes out together."""
    bounds = {"watermark": queue.watermark, "size": size}
    if queue.shape is Shape.VERSION:
        return _by_key(queue.store.rows(NEXT_KEYS, bounds))
    found: list[Row] = []
    rows = 0
    # one by one: as many groups as a batch has rows may be more than fits into memory
    for unit in queue.store.each(NEXT, bounds):
        rows += unit[8]
        # units aren't split: a batch ends before the one that would pass its size; only a larger one is alone
        if found and rows > size:
            break
        found.append(unit)
    return found


def _by_key(claimed: list[Row]) -> list[Row]:
    """The versions of each key one after the other, oldest first: what ends before what begins."""
    keys: dict[str, list[Row]] = {}
    for row in claimed:
        keys.setdefault(str(row[6]), []).append(row)
    return [row for rows in keys.values() for row in sorted(rows, key=_place_in_key)]


def _place_in_key(row: Row) -> tuple[bool, int]:
    # rowids rise with the versions of the table; a row that is gone has no place in them any more
    return (True, int(row[1])) if row[5] else (False, int(row[0]))


def _unit(queue: Queue, row: Row) -> BatchUnit:
    unit, key, version, base, tried, target, belongs_to, is_context, rows, place, digest, renewals = row
    values = (key, belongs_to, is_context, version, base, tried, target, rows, place, renewals)
    check_unit(queue.store, unit, values, digest)
    sent = _to_send(queue, base, tried, target)
    together = _together(queue, belongs_to)
    return BatchUnit(unit, key, version, base, tried, sent, together, bool(is_context), belongs_to)


def _to_send(queue: Queue, base: str, tried: str | None, target: str) -> list[SentRow]:
    if base or tried is not None:
        return to_send(Standing.load(base, target, tried), queue.shape, queue.layouts)
    # what to_send says, too, but sooner: nearly all are of this kind
    return [SentRow(ChangeType.INSERT, row) for row in load_image(target)]


def _together(queue: Queue, belongs_to: str) -> str | None:
    # a partition's rows, which belong to one, too, may go in different batches
    return belongs_to if queue.shape is Shape.VERSION else None


def freeze(
    queue: Queue, units: Sequence[BatchUnit], *, number: int, seed: str, is_part: bool = False
) -> Batch:
    """Keep the units as one batch; the caller has the transaction."""
    lines = "\n".join(frozen_lines(units))
    found = queue.store.rows(FREEZE, (number, lines, seed, is_part, len(units)))
    return Batch(id=int(found[0][0]), number=number, seed=seed, units=units, is_part=is_part)


def frozen_lines(units: Iterable[BatchUnit]) -> Iterator[str]:
    """Units as their batch keeps them; the first word of each line is the unit's id."""
    for unit in units:
        if not unit.sent:
            yield f"{unit.id} {unit.version}"
        for change_type, (rowid, layout, payload) in unit.sent:
            yield f"{unit.id} {unit.version} {change_type} {rowid} {layout} {payload}"


def melt(queue: Queue, batch: Batch) -> None:
    """The batch is no more; the caller has the transaction."""
    queue.store.run(MELT, (batch.id,))


def frozen_batches(queue: Queue) -> list[Batch]:
    """What dead owners left claimed, as it was handed to push; open jobs among them."""
    batches = [_frozen_batch(queue, row) for row in queue.store.rows(FROZEN)]
    if queue.store.rows(CLAIMED_UNITS) != [(sum(len(batch.units) for batch in batches),)]:
        raise queue.store.damage("units are claimed by no batch")
    for batch in batches:
        if not batch.units:
            melt(queue, batch)
    return [batch for batch in batches if batch.units]


def _frozen_batch(queue: Queue, row: Row) -> Batch:
    batch, number, rows, seed, is_part, begun, crashes, answered, *job = row[:13]
    check_row(queue.store, "batch", batch, row[14:], row[13])
    return Batch(
        id=int(batch),
        number=int(number),
        seed=str(seed),
        is_part=bool(is_part),
        begun=int(begun),
        units=_thaw(queue, str(rows)),
        crashes=int(crashes),
        answered=int(answered),
        job=None if job[0] is None else Job(*job),
    )


def frozen_rows(text: str) -> dict[int, tuple[int, list[SentRow]]]:
    """What a batch's text says: for each unit, by its id, the version and the rows that were handed out."""
    sent: dict[int, tuple[int, list[SentRow]]] = {}
    for line in text.split("\n"):
        unit, version, *fields = line.split(" ", 5)
        _, rows = sent.setdefault(int(unit), (int(version), []))
        if fields:
            change_type, rowid, layout, payload = fields
            rows.append(SentRow(ChangeType(change_type), ImageRow(int(rowid), int(layout), payload)))
    return sent


def _thaw(queue: Queue, text: str) -> list[BatchUnit]:
    sent = frozen_rows(text)
    known = {row[0]: row for row in queue.store.rows(FROZEN_UNITS, (orjson.dumps(list(sent)).decode(),))}
    # the records may tell of a key that it has ended since
    frozen = [(unit, version, rows) for unit, (version, rows) in sent.items() if unit in known]
    return [_thawed(queue, unit, version, rows, known[unit]) for unit, version, rows in frozen]


def _thawed(queue: Queue, unit: int, version: int, rows: Sequence[SentRow], known: Row) -> BatchUnit:
    _, digest, *values = known
    check_unit(queue.store, unit, values, digest)
    key, belongs_to, is_context, _, base, tried, *_ = values
    together = _together(queue, belongs_to)
    return BatchUnit(unit, key, version, base, tried, rows, together, bool(is_context), belongs_to)


def release(queue: Queue, batch: Batch) -> None:
    """Let go of a batch that push hasn't seen; the caller has the transaction."""
    queue.store.run(RELEASE, (orjson.dumps([unit.id for unit in batch.units]).decode(),))
    melt(queue, batch)


def note_crash(queue: Queue, batch: Batch, *, answered: int, begun: int) -> Batch:
    """The batch as it stands after its owner died: one that got further than the last counts as the first."""
    crashes = batch.crashes + 1 if answered <= batch.answered else 1
    queue.store.run(NOTE_CRASH, (crashes, answered, begun, batch.id))
    return dataclasses.replace(batch, crashes=crashes, answered=answered, begun=begun)


def forgive(queue: Queue, batch: Batch, *, begun: int) -> None:
    """The process ends in the middle of the batch because somebody wants it to."""
    queue.store.run(FORGIVE, (begun, batch.id))


def split(queue: Queue, batch: Batch) -> list[Batch]:
    """The batch as one batch a key, so that the key that ends the process stands alone."""
    with queue.store.immediate():
        melt(queue, batch)
        return [
            freeze(queue, units, number=batch.number, seed=batch.seed, is_part=True)
            for units in by_key(batch.units)
        ]


def by_key(units: Sequence[BatchUnit]) -> list[list[BatchUnit]]:
    """The units that may not be parted from each other, in their order."""
    keys: list[list[BatchUnit]] = []
    for unit in units:
        if keys and unit.belongs_to is not None and unit.belongs_to == keys[-1][-1].belongs_to:
            keys[-1].append(unit)
        else:
            keys.append([unit])
    return keys
