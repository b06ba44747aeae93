"""The correction of stored times that were set while the clock was ahead.

With each time, the moment is stored at which it was set. If the clock is now more than 5 minutes before this moment, it
was wrong then or is wrong now. In both cases the current time is used instead. A requested delay is kept, however long
it is.
"""

TOLERANCE_SECONDS = 300.0  # the maximum difference between the clocks of machines that share files


def is_from_future(set_at: float, now: float) -> bool:
    """Return whether `now` is so long before the moment `set_at` that the clock was wrong then or is wrong now."""
    return set_at > now + TOLERANCE_SECONDS


def corrected_time(time: float, *, set_at: float, now: float) -> float:
    """Return the time, or `now` if the clock was ahead when the time was set."""
    return now if is_from_future(set_at, now) else time


def is_from_future_sql(set_at: str) -> str:
    """Return the SQL condition that a time was set while the clock was ahead of the parameter :now."""
    return f"{set_at} > :now + {TOLERANCE_SECONDS}"


def corrected_time_sql(time: str, *, set_at: str) -> str:
    """Return the SQL expression for the time, or for :now if the clock was ahead when the time was set."""
    return f"iif({is_from_future_sql(set_at)}, :now, {time})"
