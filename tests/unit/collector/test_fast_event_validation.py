"""The fast check of many events: it accepts no event that the parser of single events would refuse."""

from collections.abc import Sequence
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ondatra_dagster.collector.event_to_row_parser import EventParser
from ondatra_dagster.collector.json_value_parsers import ParseNotes
from ondatra_dagster.project.sql.event_schema import read_event_columns

COLUMNS = read_event_columns(
    "a STRING NOT NULL, b BOOLEAN, c TINYINT, d BIGINT, e FLOAT, f DOUBLE, g DECIMAL(5, 2), h DATE,"
    " i TIMESTAMP, j TIMESTAMP_NTZ, k BINARY, l ARRAY<INT>, m MAP<STRING, INT>, n STRUCT<x: INT>"
)
READER = EventParser(COLUMNS)
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
TRICKY = rb"""
-0 0.0 1.0 1e2 -1E+2 1e400 1e-400 127.0 128 01 1. .5 +1 NaN Infinity tru null 3.4028235e38 3.4028236e38
9223372036854775807 9223372036854775808 -9223372036854775809 18446744073709551616 12345678901234567890123
"" "\ud800" "\ud83d\ude00" "\u0000" "\x" "\t" '1' {} {"x":1,"x":"y"} {"x":1,"x":2} {"x":1.0} {"x":null}
{"y":1} {"X":1} {"x":1}} [[1]] [1,] [1.0] [null] [9999999999] "aGk" "aGk=\n" "2026-11-18" "2024-02-30"
"2026-11-18t12:00:00z" "2026-11-18T12:00:60Z" "2026-11-18T24:00:00" "2026-11-18T12:00:00.1234567+23:59"
"2026-11-18T12:00:00+24:00" "\u0030001-01-01T00:00:00+10:00" "9999-12-31T23:59:59-10:00" "1e5" "-0.01"
"2026-02-29T00:00:00Z" "2026-11-18T12:00:00-00:00" "0001-01-01T00:00:00" "0000-01-01T00:00:00Z" "1.5" 0.12345
"""
RAW = st.sampled_from([*TRICKY.split(), b'"\xff"', b'"\xed\xa0\x80"', b'"\t"'])
DAY = r"(0001|2024|2026|9999)-(02|12)-(01|29|31)"
HOUR = r"([01][0-9]|2[0-4]):[05][09]:(00|59|60)([.,][0-9]{0,12})?"
MOMENT = rf"{DAY}[Tt _]{HOUR}([Zz]|[+-]([01][0-9]|2[0-4]):?[0-6]0)?"
GOOD: dict[str, Any] = {
    "a": "x", "b": True, "c": -128, "d": 2**63 - 1, "e": 1.5, "f": 3, "g": 1.25, "h": "2026-01-01",
    "i": "2026-11-18T12:00:00Z", "j": "2026-11-18T12:00:00", "k": "aGk=", "l": [1, None], "m": {"x": 1},
    "n": {"x": 1},
}  # fmt: skip


def problems(body: bytes) -> Sequence[Any]:
    """Return the problems that the JSON reader or the parser of single events finds."""
    try:
        came = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        return [error]
    reading = ParseNotes()
    for event in came:
        READER.parse_event(event, reading)
    return reading.problems


def is_let_in(body: bytes) -> bool:
    return READER.count_if_all_valid(body, is_batch=True) is not None


@given(st.lists(EVENTS, max_size=4))
def test_events_that_pass_the_fast_check_have_no_problem(events: list[Any]) -> None:
    """The check is there for speed only. Unclear events are checked one by one."""
    body = orjson.dumps(events)
    assert not (is_let_in(body) and problems(body))


@given(st.sampled_from(list(GOOD)), VALUES)
def test_a_single_wrong_value_among_good_ones_is_found(name: str, value: Any) -> None:
    """It may be in any column, among any number of events."""
    body = orjson.dumps([GOOD, {**GOOD, name: value}, GOOD])
    assert not (is_let_in(body) and problems(body))


@given(st.sampled_from(list(GOOD)), RAW)
def test_json_that_two_libraries_read_differently_does_not_pass(name: str, raw: bytes) -> None:
    """The fast check and the flush use different JSON readers. An event that passes must be readable by both."""
    good, field = orjson.dumps(GOOD), b'"%s":%s' % (name.encode(), raw)
    for body in (b"[{%s,%s]" % (field, good[1:]), b"[%s,%s}]" % (good[:-1], field)):
        assert not (is_let_in(body) and problems(body))


@given(st.sampled_from(["i", "j"]), st.from_regex(MOMENT, fullmatch=True))
def test_a_time_that_passes_the_fast_check_can_be_parsed(name: str, text: str) -> None:
    """A time can be written in more ways than any other value."""
    body = orjson.dumps([{**GOOD, name: text}])
    assert not (is_let_in(body) and problems(body))


@given(st.binary(max_size=3), st.integers(0, 400), st.integers(0, 3))
def test_a_body_that_is_damaged_at_any_place_does_not_pass(put: bytes, place: int, left_out: int) -> None:
    """The damage may be invalid UTF-8, or a cut at any place."""
    body = orjson.dumps([GOOD])
    broken = body[:place] + put + body[place + left_out :]
    assert not (is_let_in(broken) and problems(broken))


@pytest.mark.parametrize(
    "events", [[], [GOOD] * 3, [{"a": "x"}], [GOOD, {"a": "x", "c": None}], [{"a": "x", "b": None}, {"a": "y"}]]
)
def test_good_events_pass_without_a_second_check(events: list[Any]) -> None:
    """Otherwise the check wouldn't save time."""
    assert READER.count_if_all_valid(orjson.dumps(events), is_batch=True) == len(events)


@pytest.mark.parametrize("name", GOOD)
def test_a_good_value_of_each_type_passes(name: str) -> None:
    """It passes in a single event as well as in a batch."""
    assert READER.count_if_all_valid(orjson.dumps({"a": "x", name: GOOD[name]}), is_batch=False) == 1


@pytest.mark.parametrize("is_batch", [True, False])
def test_an_array_and_an_event_are_distinguished(is_batch: bool) -> None:
    """Each path accepts only one of them."""
    body = orjson.dumps({"a": "x"} if is_batch else [{"a": "x"}])
    assert READER.count_if_all_valid(body, is_batch=is_batch) is None


def test_an_unknown_field_is_left_to_the_parser() -> None:
    """It is stored separately or refused, and it may be nested too deep to be written."""
    assert not is_let_in(orjson.dumps([{"a": "x", "new": 1}]))
    assert not is_let_in(orjson.dumps([GOOD, {"A": "x"}]))


def test_very_deep_nesting_is_left_to_the_parser() -> None:
    """It must not crash the collector or the thread."""
    for name in ("a", "g", "l", "m"):
        assert not is_let_in(b'[{"a": "x", "%s": %s1%s}]' % (name.encode(), b"[" * 100_000, b"]" * 100_000))


@pytest.mark.parametrize("name", ['a"b', "a\\b", "a\tb"])
def test_names_that_json_escapes_are_read_correctly(name: str) -> None:
    """A column or the field of a struct may have such a name. It must not crash the collector."""
    for columns, event in ((f"`{name}` INT, b INT", {name: 1, "b": 2}), (f"b STRUCT<`{name}`: INT>", {"b": {name: 1}})):
        reader, reading = EventParser(read_event_columns(columns)), ParseNotes()
        body = orjson.dumps(event)
        assert reader.count_if_all_valid(body, is_batch=False) in (None, 1)
        assert [*event.values(), None] == reader.parse_event(orjson.loads(body), reading)
        assert [] == reading.problems
        assert reader.count_if_all_valid(orjson.dumps({**event, "b": "x"}), is_batch=False) is None
