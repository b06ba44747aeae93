"""The id of a sync run: the time when it began, and letters that no other run has."""

import random
import re
from datetime import UTC, datetime, timedelta, timezone

from ondatra_dagster.sync.run_context import create_run_id, parse_start_time

NOON = datetime(2026, 11, 18, 12, 1, 2, 345678, tzinfo=UTC)


def an_id(now: datetime, *, after: str | None = None, seed: int = 7) -> str:
    return create_run_id(now, after=after, random=random.Random(seed))


def test_a_run_id_is_the_time_in_utc_and_six_letters() -> None:
    """The machine's time zone doesn't matter, because the folders of a sync are sorted by name."""
    assert re.fullmatch(r"20261118T120102Z-[a-z]{6}", an_id(NOON))
    in_tokyo = NOON.astimezone(timezone(timedelta(hours=9)))
    assert an_id(NOON) == an_id(in_tokyo)
    assert an_id(NOON, seed=8) != an_id(NOON)


def test_a_later_run_has_a_later_id_whatever_the_clock_says() -> None:
    """Two runs may begin in one second, or the clock may be set back. A lost queue continues from the newest run."""
    first = an_id(NOON)
    second = an_id(NOON, after=first)
    third = an_id(NOON - timedelta(hours=1), after=second)
    assert sorted([third, second, first]) == [first, second, third]
    assert "20261118T120104Z" == third.partition("-")[0]
    assert an_id(NOON + timedelta(days=1), after=third).startswith("20261119T120102Z-")


def test_a_run_id_says_when_the_run_began() -> None:
    """It is exact to the second. The name of another program's folder has no time."""
    assert NOON.replace(microsecond=0) == parse_start_time(an_id(NOON))
    assert parse_start_time("notes") is None
