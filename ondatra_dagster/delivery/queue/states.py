"""How a queue stands, for those who only look: the plan, the status, the sensors."""

import contextlib
import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson

from ondatra_dagster.clock_jumps import is_ahead, is_ahead_sql, time_that_counts_sql
from ondatra_dagster.delivery.frontier import NOTHING_ENQUEUED
from ondatra_dagster.delivery.queue.digests import STATES, check_seals
from ondatra_dagster.delivery.queue.tables import (
    FORGOTTEN,
    IMAGE_ROWS,
    OWED,
    SCHEMA,
    read_shape,
    units_of_lines,
)
from ondatra_dagster.delivery.queue.time_correction import POLL_SET_AT
from ondatra_dagster.delivery.queue.unit_counts import HAD, HAS
from ondatra_dagster.delivery.target import Shape
from ondatra_dagster.store.database import Store
from ondatra_dagster.store.shared_file import open_existing

META = "select name, value from meta"
# of the table itself, next to what the index on states has of the same units: claims go by the index
ENTRIES = "count(*) || ':' || coalesce(sum((id * 64 + phase * 16 + outages) % 1000003), '')"
COUNTS = f"""
select state, sum({{weight}}), min(since), min({time_that_counts_sql("due_at", set_at="set_at")}),
    min(died_at), max(set_at), {ENTRIES}, (
        select {ENTRIES} from unit as same indexed by unit_next
        where same.state = unit.state
    )
from unit not indexed group by state
"""
# as how many a unit counts: of a mirror the rows that it had or has
WEIGHT = "1"
MIRROR_WEIGHT = f"""
max(1, {IMAGE_ROWS.format("target")}, coalesce((select rows from content where content.key = unit.key), 0))
"""
# old rows of a table or partition, and the new ones that take their places: each two are one unit
ANY_REPLACED = """
select exists (select 1 from unit where phase = 0 and {alive})
    and exists (select 1 from unit where phase = 1 and state = 'pending')
"""
REPLACED = f"""
select coalesce(sum(min(old, new)), 0) from (
    select sum(not {HAS}) as old, sum(not {HAD} and state = 'pending') as new
    from unit where {{alive}} group by belongs_to
)
"""
ALIVE = "state in ('pending', 'claimed', 'waiting')"
JOB_ROWS = "select rows from batch where job is not null"
JOB_WEIGHT = "select coalesce(sum({weight}), 0) from unit where id in (select value from json_each(?))"
NEXT_POLL_AT = time_that_counts_sql("next_poll_at", set_at=POLL_SET_AT)
JOBS = f"""
select count(*), coalesce(sum(units), 0), sum({NEXT_POLL_AT} <= :now), min({NEXT_POLL_AT}), max({POLL_SET_AT})
from batch where job is not null
"""
DUE = f"""
select coalesce(sum({{weight}}), 0) from unit
where state = 'waiting' and (due_at <= :now or {is_ahead_sql("set_at")})
"""
# new rows that may not go yet: old ones that they replace are on their way, or wait for their next try
HELD_BACK = """
select coalesce(sum({weight}), 0) from unit where state = 'pending' and phase = 1 and exists (
    select 1 from unit where phase = 0 and state in ('pending', 'claimed', 'waiting')
)
"""
OPEN_RUNS = "select count(*) from run"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class QueueState:
    """Units by state; times are seconds since 1970."""

    table_id: str | None
    base_url: str | None
    watermark: int
    invalid_watermark: int
    pending: int = 0  # a crashed owner's frozen ones too
    held_back: int = 0  # of these: they go when the rows that they replace are gone
    waiting: int = 0
    dead: int = 0
    dead_since: float | None = None  # of the oldest of these
    due: int = 0  # of the waiting
    open_jobs: int = 0
    in_jobs: int = 0  # units
    polls_due: int = 0  # jobs to be asked about
    oldest_since: float | None = None  # of pending and waiting, and of those in jobs
    next_due_at: float | None = None  # a retry, or a job to be asked about
    is_clock_behind: bool = False  # a wait was set while the clock was ahead, and counts as over
    is_finalize_owed: bool = False
    has_open_run: bool = False  # a run ended without publishing all its records
    is_paused: bool = False  # somebody holds the sync
    is_forgotten: bool = False  # somebody let all that it knew go, and no run has begun it anew

    @property
    def has_begun(self) -> bool:
        """Whether it belongs to a table: else it is as good as none."""
        return self.table_id is not None

    @property
    def depth(self) -> int:
        """Units that haven't come to an end."""
        return self.pending + self.waiting + self.in_jobs

    @property
    def can_send(self) -> bool:
        """Whether a run would find something to do without a change in the table."""
        return self.can_deliver or self.can_finalize or self.has_open_run

    @property
    def can_finalize(self) -> bool:
        """Whether finalize() is owed, and nothing waits any more."""
        return self.is_finalize_owed and self.depth == 0

    @property
    def can_deliver(self) -> bool:
        return self.pending > self.held_back or self.due > 0 or self.polls_due > 0


@contextlib.contextmanager
def looking_at(path: Path) -> Iterator[Store | None]:
    """Open the queue at `path` to read it; None when there is none, or it has no tables yet."""
    with open_existing(path, SCHEMA) as store:
        if store is None:
            yield None
            return
        with store.explaining_damage():
            check_seals(store)
            yield store


def queue_state(path: Path, *, now: float) -> QueueState | None:
    """How the queue at `path` stands; None when there is none."""
    with looking_at(path) as store:
        if store is None:
            return None
        return dataclasses.replace(look(store, now=now), is_paused=pause_flag(path).exists())


def pause_flag(queue: Path) -> Path:
    """The file whose being there holds a sync; it is no part of the queue, and outlives its folder."""
    return queue.parent.parent / "paused" / queue.stem


def file_of(state: Path, sync_id: str) -> Path:
    """Where a sync's queue is."""
    return state / "queue" / f"{sync_id}.sqlite"


def lock_of(queue: Path) -> Path:
    """What the process that writes a sync's queue holds; apart from it, so that both aren't lost at once."""
    return queue.parent.parent / "locks" / queue.parent.name / f"{queue.stem}.lock"


def look(store: Store, *, now: float) -> QueueState:
    """How an open queue stands; raises StateError where that can't be read."""
    try:
        return _look(store, now=now)
    except (TypeError, ValueError) as error:  # a value has become one of another type
        raise store.damage(str(error)) from error


def _look(store: Store, *, now: float) -> QueueState:
    meta: dict[str, Any] = dict(store.rows(META))
    at = {"now": now}
    is_mirror = read_shape(store) is Shape.MIRROR
    weight = MIRROR_WEIGHT if is_mirror else WEIGHT
    counts = _counts(store, weight, at)
    jobs, in_jobs, polls_due, next_poll_at, poll_set_at = store.rows(JOBS, at)[0]
    if is_mirror and jobs:
        in_jobs = _mirrors_in_jobs(store)
    replaced = 0 if is_mirror else _replaced(store)
    alive = [counts[state] for state in ("pending", "claimed", "waiting") if state in counts]

    waits_set_at = (poll_set_at, counts["waiting"][4] if "waiting" in counts else None)

    def count(*states: str) -> int:
        return sum([int(counts[state][0]) for state in states if state in counts])

    return QueueState(
        table_id=meta.get("table_id"),
        base_url=meta.get("base_url"),
        watermark=int(meta.get("watermark", NOTHING_ENQUEUED)),
        invalid_watermark=int(meta.get("invalid_watermark", NOTHING_ENQUEUED)),
        pending=count("pending", "claimed") - int(in_jobs) - replaced,
        held_back=int(store.rows(HELD_BACK.format(weight=weight))[0][0]) - replaced,
        waiting=count("waiting"),
        dead=count("dead"),
        dead_since=min(counts["dead"][3], now) if "dead" in counts else None,
        due=int(store.rows(DUE.format(weight=weight), at)[0][0]),
        oldest_since=min((min(float(since), now) for _, since, *_ in alive), default=None),
        open_jobs=int(jobs),
        in_jobs=int(in_jobs),
        polls_due=int(polls_due or 0),
        next_due_at=_earliest(counts["waiting"][2] if "waiting" in counts else None, next_poll_at),
        is_clock_behind=any(set_at is not None and is_ahead(set_at, now) for set_at in waits_set_at),
        is_finalize_owed=bool(meta.get(OWED)),
        has_open_run=bool(store.rows(OPEN_RUNS)[0][0]),
        is_forgotten="table_id" not in meta and FORGOTTEN in meta,
    )


def _counts(store: Store, weight: str, at: dict[str, float]) -> dict[str, list[Any]]:
    """Return the units by state; raise StateError where the table's index hides some of them."""
    counts: dict[str, list[Any]] = {}
    for state, units, *times, in_table, in_index in store.rows(COUNTS.format(weight=weight), at):
        if state not in STATES:
            raise store.damage(f"{in_table.partition(':')[0]} of its rows are in no known state")
        if in_table != in_index:
            raise store.damage(f"its index on {state} rows and its table disagree")
        counts[state] = [units, *times]
    return counts


def _replaced(store: Store) -> int:
    """How many new rows are the second half of a unit, whose old row is still to be deleted."""
    if not store.rows(ANY_REPLACED.format(alive=ALIVE))[0][0]:
        return 0
    return int(store.rows(REPLACED.format(alive=ALIVE))[0][0])


def _mirrors_in_jobs(store: Store) -> int:
    units = [unit for (rows,) in store.rows(JOB_ROWS) for unit in units_of_lines(str(rows))]
    statement = JOB_WEIGHT.format(weight=MIRROR_WEIGHT)
    return int(store.rows(statement, (orjson.dumps(units).decode(),))[0][0])


def _earliest(*times: float | None) -> float | None:
    return min((time for time in times if time is not None), default=None)
