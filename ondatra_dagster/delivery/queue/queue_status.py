"""The status of a queue, for the plan, `ondatra status`, pages and sensors."""

import dataclasses
from pathlib import Path
from typing import Any, NamedTuple

import orjson

from ondatra_dagster.delivery.acknowledged_to_desired_diff import UnitKind
from ondatra_dagster.delivery.queue.change_and_outcome_counts import IS_DESIRED, IS_ON_API
from ondatra_dagster.delivery.queue.damage_checksums import UNIT_STATES
from ondatra_dagster.delivery.queue.queue_database import (
    FORGOTTEN_FLAG,
    NOTHING_ENQUEUED,
    PENDING_FINALIZE,
    POLL_SET_AT,
    ROW_COUNT,
    Queue,
    open_for_reading,
    parse_unit_ids,
    pause_flag_path,
    read_unit_kind,
)
from ondatra_dagster.future_time_correction import corrected_time_sql, is_from_future, is_from_future_sql
from ondatra_dagster.storage.sqlite_database import SqliteStore

READ_ALL_META = "select name, value from meta"


# A fingerprint of the units of one state, read from the table and from the index on states, which claims use.
INDEX_FINGERPRINT = "count(*) || ':' || coalesce(sum((id * 64 + phase * 16 + outages) % 1000003), '')"
COUNT_BY_STATE = f"""
select state, sum({{weight}}), min(since), min({corrected_time_sql("due_at", set_at="set_at")}),
    min(died_at), max(set_at), {INDEX_FINGERPRINT}, (
        select {INDEX_FINGERPRINT} from unit as same indexed by unit_next
        where same.state = unit.state
    )
from unit not indexed group by state
"""


# how many units a row of the queue counts as; for a mirror, the larger of its old and new numbers of rows
ROW_UNIT_WEIGHT = "1"
MIRROR_WEIGHT = f"""
max(1, {ROW_COUNT.format("desired")}, coalesce((select rows from content where content.key = unit.key), 0))
"""


# the old rows of a table or partition, and the new rows that replace them: each pair is one unit
ANY_REPLACED_UNIT = """
select exists (select 1 from unit where phase = 0 and {alive})
    and exists (select 1 from unit where phase = 1 and state = 'pending')
"""
COUNT_REPLACED = f"""
select coalesce(sum(min(old, new)), 0) from (
    select sum(not {IS_DESIRED}) as old, sum(not {IS_ON_API} and state = 'pending') as new
    from unit where {{alive}} group by belongs_to
)
"""
IS_UNFINISHED = "state in ('pending', 'claimed', 'waiting')"
READ_JOB_ROWS = "select rows from batch where job is not null"
SUM_JOB_WEIGHT = "select coalesce(sum({weight}), 0) from unit where id in (select value from json_each(?))"
NEXT_POLL_AT = corrected_time_sql("next_poll_at", set_at=POLL_SET_AT)
COUNT_JOBS = f"""
select count(*), coalesce(sum(units), 0), sum({NEXT_POLL_AT} <= :now), min({NEXT_POLL_AT}), max({POLL_SET_AT})
from batch where job is not null
"""
COUNT_DUE = f"""
select coalesce(sum({{weight}}), 0) from unit
where state = 'waiting' and (due_at <= :now or {is_from_future_sql("set_at")})
"""


# new rows that may not be sent yet: the rows that they replace are in flight, or wait for their next attempt
COUNT_HELD_BACK = """
select coalesce(sum({weight}), 0) from unit where state = 'pending' and phase = 1 and exists (
    select 1 from unit where phase = 0 and state in ('pending', 'claimed', 'waiting')
)
"""
COUNT_OPEN_RUNS = "select count(*) from run"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class QueueStatus:
    """The status of a queue: the number of units in each state, and other facts. Times are seconds since 1970."""

    table_id: str | None  # None: the queue belongs to no table, so it counts as missing
    base_url: str | None
    watermark: int
    invalid_watermark: int
    pending_units: int = 0  # including those in flight, and the frozen ones of a crashed process
    held_back_units: int = 0  # pending units that wait until the rows that they replace are deleted
    waiting_units: int = 0
    dead_units: int = 0
    dead_since: float | None = None  # since when the oldest dead unit is dead
    due_units: int = 0  # waiting units whose retry delay is over
    open_jobs: int = 0
    units_in_jobs: int = 0
    polls_due: int = 0  # jobs to be polled now
    oldest_since: float | None = None  # since when the oldest unit is pending, waiting or in a job
    next_due_at: float | None = None  # time of the next retry, or of the next poll of a job
    is_clock_behind: bool = False  # a wait was set while the clock was ahead, and counts as over
    is_finalize_pending: bool = False
    has_open_run: bool = False  # a run hasn't published all its records
    is_paused: bool = False  # the user has paused the sync
    is_forgotten: bool = False  # `ondatra forget` has deleted its content, and no run has begun since

    @property
    def depth(self) -> int:
        """Return how many units haven't ended: they are pending, waiting or in jobs."""
        return self.pending_units + self.waiting_units + self.units_in_jobs

    @property
    def can_send(self) -> bool:
        """Return whether a run would have work to do even if the table doesn't change."""
        return self.can_deliver or self.can_finalize or self.has_open_run

    @property
    def can_finalize(self) -> bool:
        """Return whether finalize() is pending and all units have ended."""
        return self.is_finalize_pending and self.depth == 0

    @property
    def can_deliver(self) -> bool:
        return self.pending_units > self.held_back_units or self.due_units > 0 or self.polls_due > 0


def read_status_of_file(path: Path, *, now: float) -> QueueStatus | None:
    """Return the status of the queue at `path`; None if there is no queue."""
    with open_for_reading(path) as store:
        if store is None:
            return None
        return dataclasses.replace(read_status(store, now=now), is_paused=pause_flag_path(path).exists())


def read_status(store: SqliteStore, *, now: float) -> QueueStatus:
    """Return the status of an open queue; raise StateError if it can't be read."""
    try:
        return _read_status(store, now=now)
    except (TypeError, ValueError) as error:  # a damaged value has another type
        raise store.damage_error(str(error)) from error


def _read_status(store: SqliteStore, *, now: float) -> QueueStatus:
    meta: dict[str, Any] = dict(store.fetch_rows(READ_ALL_META))
    parameters = {"now": now}
    is_mirror = read_unit_kind(store) is UnitKind.MIRROR
    weight = MIRROR_WEIGHT if is_mirror else ROW_UNIT_WEIGHT
    counts = _counts_by_state(store, weight, parameters)
    jobs, units_in_jobs, polls_due, next_poll_at, poll_set_at = store.fetch_rows(COUNT_JOBS, parameters)[0]
    if is_mirror and jobs:
        units_in_jobs = _count_mirror_rows_in_jobs(store)
    replaced_units = 0 if is_mirror else _count_replaced(store)
    open_counts = [counts[state] for state in ("pending", "claimed", "waiting") if state in counts]

    next_times = (next_poll_at, counts["waiting"][2] if "waiting" in counts else None)
    waits_set_at = (poll_set_at, counts["waiting"][4] if "waiting" in counts else None)

    def count_in_states(*states: str) -> int:
        return sum([int(counts[state][0]) for state in states if state in counts])

    return QueueStatus(
        table_id=meta.get("table_id"),
        base_url=meta.get("base_url"),
        watermark=int(meta.get("watermark", NOTHING_ENQUEUED)),
        invalid_watermark=int(meta.get("invalid_watermark", NOTHING_ENQUEUED)),
        pending_units=count_in_states("pending", "claimed") - int(units_in_jobs) - replaced_units,
        held_back_units=int(store.fetch_rows(COUNT_HELD_BACK.format(weight=weight))[0][0]) - replaced_units,
        waiting_units=count_in_states("waiting"),
        dead_units=count_in_states("dead"),
        dead_since=min(counts["dead"][3], now) if "dead" in counts else None,
        due_units=int(store.fetch_rows(COUNT_DUE.format(weight=weight), parameters)[0][0]),
        oldest_since=min((min(float(oldest_time), now) for _, oldest_time, *_ in open_counts), default=None),
        open_jobs=int(jobs),
        units_in_jobs=int(units_in_jobs),
        polls_due=int(polls_due or 0),
        next_due_at=min((time for time in next_times if time is not None), default=None),
        is_clock_behind=any(set_at is not None and is_from_future(set_at, now) for set_at in waits_set_at),
        is_finalize_pending=bool(meta.get(PENDING_FINALIZE)),
        has_open_run=bool(store.fetch_rows(COUNT_OPEN_RUNS)[0][0]),
        is_forgotten="table_id" not in meta and FORGOTTEN_FLAG in meta,
    )


def _counts_by_state(store: SqliteStore, weight: str, parameters: dict[str, float]) -> dict[str, list[Any]]:
    """Return, by state, the number of units and their times.

    Raise StateError if the table and its index disagree, because the index may hide units.
    """
    counts: dict[str, list[Any]] = {}
    for state, units, *times, table_fingerprint, index_fingerprint in store.fetch_rows(
        COUNT_BY_STATE.format(weight=weight), parameters
    ):
        if state not in UNIT_STATES:
            raise store.damage_error(f"{table_fingerprint.partition(':')[0]} of its rows are in no known state")
        if table_fingerprint != index_fingerprint:
            raise store.damage_error(f"its index on {state} rows and its table disagree")
        counts[state] = [units, *times]
    return counts


def _count_replaced(store: SqliteStore) -> int:
    """Return how many new rows are the second half of a unit whose old row must still be deleted."""
    if not store.fetch_rows(ANY_REPLACED_UNIT.format(alive=IS_UNFINISHED))[0][0]:
        return 0
    return int(store.fetch_rows(COUNT_REPLACED.format(alive=IS_UNFINISHED))[0][0])


def _count_mirror_rows_in_jobs(store: SqliteStore) -> int:
    units = [unit for (rows,) in store.fetch_rows(READ_JOB_ROWS) for unit in parse_unit_ids(str(rows))]
    statement = SUM_JOB_WEIGHT.format(weight=MIRROR_WEIGHT)
    return int(store.fetch_rows(statement, (orjson.dumps(units).decode(),))[0][0])


# the units of an unfinished enqueue don't count yet
COUNT_REMAINING_UNITS = "select count(*), coalesce(sum(state = 'dead'), 0) from unit where version <= ?"


class RemainingUnits(NamedTuple):
    """The numbers of units that an older unit format left in the queue."""

    unit_count: int
    dead_units: int  # dead letters among them


def count_remaining_units(queue: Queue) -> RemainingUnits:
    units, dead_units = queue.store.fetch_rows(COUNT_REMAINING_UNITS, (queue.watermark,))[0]
    return RemainingUnits(int(units), int(dead_units))
