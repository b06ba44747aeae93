"""The look at many events at once lets nothing in that the reader of each would refuse."""

from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ondatra_dagster.collector.event_reader import EventReader, Reading
from ondatra_dagster.project.sql.event_columns import read_event_columns

COLUMNS = read_event_columns(
    "a STRING NOT NULL, b BOOLEAN, c TINYINT, d BIGINT, e FLOAT, f DOUBLE, g DECIMAL(5, 2), h DATE,"
    " i TIMESTAMP, j TIMESTAMP_NTZ, k BINARY, l ARRAY<INT>, m MAP<STRING, INT>, n STRUCT<x: INT>"
)
READER = EventReader(COLUMNS)
TIMES = [
    "2026-11-18T12:00:00Z", "2026-11-18T12:00:00", "2026-11-18", "0001-01-01T00:00:00+10:00",
    "9999-12-31T23:59:59-10:00", "20261118T120000Z", "2026-13-18T12:00:00Z",
]  # fmt: skip
VALUES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**63), 2**64 - 1),
    st.integers(-200, 200),
    st.floats(allow_nan=False, allow_infinity=False),
    st.sampled_from(["", "x", "aGk=", *TIMES]),
    st.lists(st.integers(-5, 5), max_size=2),
    st.dictionaries(st.sampled_from(["x", "y"]), st.integers(-5, 5)),
)
EVENTS = st.one_of(st.dictionaries(st.sampled_from([*"abcdefghijklmnz", "A"]), VALUES), VALUES)
GOOD: dict[str, Any] = {
    "a": "x", "b": True, "c": -128, "d": 2**63 - 1, "e": 1.5, "f": 3, "g": 1.25, "h": "2026-01-01",
    "i": "2026-11-18T12:00:00Z", "j": "2026-11-18T12:00:00", "k": "aGk=", "l": [1, None], "m": {"x": 1},
    "n": {"x": 1},
}  # fmt: skip


def problems(events: list[Any]) -> Reading:
    reading = Reading()
    for event in events:
        READER.read(event, reading)
    return reading


@given(st.lists(EVENTS, max_size=4))
def test_what_it_lets_in_has_no_problem(events: list[Any]) -> None:
    """It is there for speed only: what it isn't sure of is looked at one by one."""
    came = orjson.loads(orjson.dumps(events))
    assert not (READER.fits(came) and problems(came).problems)


@given(st.sampled_from(list(GOOD)), VALUES)
def test_a_single_wrong_value_among_good_ones_is_seen(name: str, value: Any) -> None:
    """Whatever the column, and however many are beside it."""
    came = orjson.loads(orjson.dumps([GOOD, {**GOOD, name: value}, GOOD]))
    assert not (READER.fits(came) and problems(came).problems)


@pytest.mark.parametrize(
    "events",
    [[], [GOOD] * 3, [{"a": "x"}], [GOOD, {"a": "x", "c": None}], [{"a": "x", "b": None}, {"a": "y"}]],
)
def test_good_events_are_let_in_without_a_second_look(events: list[Any]) -> None:
    """Else it would be no quicker."""
    assert READER.fits(events) or not events


def test_a_field_that_no_column_is_for_is_left_to_the_reader() -> None:
    """It is to be kept aside, or refused, and that may be too deep to be written."""
    assert not READER.fits([{"a": "x", "new": 1}])
    assert not READER.fits([GOOD, {"A": "x"}])
