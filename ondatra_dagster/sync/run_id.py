"""The name of one sync run: a UTC time that sorts, and six random letters."""

import random
import string
from datetime import UTC, datetime, timedelta

_TIME_FORMAT = "%Y%m%dT%H%M%SZ"
_RANDOM_LETTERS = 6


def create_run_id(now: datetime, *, after: str | None, random: random.Random) -> str:
    """An id that sorts behind `after`, the newest one: within one second too, and if the clock goes back."""
    moment = now.astimezone(UTC)
    if after is not None and moment.strftime(_TIME_FORMAT) <= after.partition("-")[0]:
        moment = datetime.strptime(after.partition("-")[0], _TIME_FORMAT).replace(tzinfo=UTC) + timedelta(seconds=1)
    letters = "".join(random.choice(string.ascii_lowercase) for _ in range(_RANDOM_LETTERS))
    return f"{moment.strftime(_TIME_FORMAT)}-{letters}"


def parse_start_time(run_id: str) -> datetime | None:
    """When a run began, as its id says; None of what isn't one."""
    try:
        return datetime.strptime(run_id.partition("-")[0], _TIME_FORMAT).replace(tzinfo=UTC)
    except ValueError:
        return None
