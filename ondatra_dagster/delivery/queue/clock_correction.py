"""The correction of a queue's times that were stored while the clock was ahead, at the start of a run.

Afterwards waits and ages continue from the present clock. Times of settled rows stay: they are in the records.
"""

from ondatra_dagster.clock_jumps import is_from_future, is_from_future_sql
from ondatra_dagster.delivery.queue.queue_database import Queue

POLL_SET_AT = "coalesce(set_at, submitted_at)"
READ_LATEST_TIMES = (
    "select max(since), max(died_at), max(iif(state = 'waiting', set_at, null)) from unit",
    f"select max(submitted_at), max({POLL_SET_AT}) from batch",
)
CORRECT_TIMES = (
    f"update unit set due_at = :now, set_at = :now where state = 'waiting' and {is_from_future_sql('set_at')}",
    f"update unit set since = :now where {is_from_future_sql('since')}",
    f"update unit set died_at = :now where {is_from_future_sql('died_at')}",
    f"update batch set next_poll_at = :now, set_at = :now where {is_from_future_sql(POLL_SET_AT)}",
    f"update batch set submitted_at = :now where {is_from_future_sql('submitted_at')}",
)


def correct_times(queue: Queue, now: float) -> float | None:
    """Let times of a clock that was ahead be now; return the latest of them, None when there are none."""
    times = [time for query in READ_LATEST_TIMES for time in queue.store.fetch_rows(query)[0] if time is not None]
    latest = max(times, default=now)
    if not is_from_future(latest, now):
        return None
    with queue.store.write_transaction():
        for statement in CORRECT_TIMES:
            queue.store.execute(statement, {"now": now})
    return latest
