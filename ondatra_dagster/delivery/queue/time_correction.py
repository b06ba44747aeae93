"""The correction of a queue's times that were noted while the clock was ahead, at the start of a run.

Afterwards waits and ages go on from the present clock. Times of settled rows stay: they are in the records.
"""

from ondatra_dagster.clock_jumps import is_ahead, is_ahead_sql
from ondatra_dagster.delivery.queue.tables import Queue

POLL_SET_AT = "coalesce(set_at, submitted_at)"
LATEST = (
    "select max(since), max(died_at), max(iif(state = 'waiting', set_at, null)) from unit",
    f"select max(submitted_at), max({POLL_SET_AT}) from batch",
)
CORRECTIONS = (
    f"update unit set due_at = :now, set_at = :now where state = 'waiting' and {is_ahead_sql('set_at')}",
    f"update unit set since = :now where {is_ahead_sql('since')}",
    f"update unit set died_at = :now where {is_ahead_sql('died_at')}",
    f"update batch set next_poll_at = :now, set_at = :now where {is_ahead_sql(POLL_SET_AT)}",
    f"update batch set submitted_at = :now where {is_ahead_sql('submitted_at')}",
)


def correct_times(queue: Queue, now: float) -> float | None:
    """Let times of a clock that was ahead be now; return the latest of them, None when there are none."""
    times = [time for query in LATEST for time in queue.store.rows(query)[0] if time is not None]
    latest = max(times, default=now)
    if not is_ahead(latest, now):
        return None
    with queue.store.immediate():
        for statement in CORRECTIONS:
            queue.store.run(statement, {"now": now})
    return latest
