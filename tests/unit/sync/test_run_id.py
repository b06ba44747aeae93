"""The name of a sync run: when it began, and something that no other has."""

import random
import re
from datetime import UTC, datetime, timedelta, timezone

from ondatra_dagster.sync.run_context import create_run_id, parse_start_time

NOON = datetime(2026, 11, 18, 12, 1, 2, 345678, tzinfo=UTC)


def an_id(now: datetime, *, after: str | None = None, seed: int = 7) -> str:
    return create_run_id(now, after=after, random=random.Random(seed))


def test_it_is_the_time_in_utc_and_six_letters() -> None:
    """Wherever the machine is: folders of one sync are sorted by their names."""
    assert re.fullmatch(r"20261118T120102Z-[a-z]{6}", an_id(NOON))
    in_tokyo = NOON.astimezone(timezone(timedelta(hours=9)))
    assert an_id(NOON) == an_id(in_tokyo)
    assert an_id(NOON, seed=8) != an_id(NOON)


def test_a_later_run_comes_later_by_name_whatever_the_clock_says() -> None:
    """Two in one second, or a clock that was put back: a lost queue goes on from the newest."""
    first = an_id(NOON)
    second = an_id(NOON, after=first)
    third = an_id(NOON - timedelta(hours=1), after=second)
    assert sorted([third, second, first]) == [first, second, third]
    assert "20261118T120104Z" == third.partition("-")[0]
    assert an_id(NOON + timedelta(days=1), after=third).startswith("20261119T120102Z-")


def test_it_tells_when_the_run_began() -> None:
    """To the second; a folder that somebody else has put there tells nothing."""
    assert NOON.replace(microsecond=0) == parse_start_time(an_id(NOON))
    assert parse_start_time("notes") is None
