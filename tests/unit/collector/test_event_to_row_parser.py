"""An event as a row: required columns, names in other letters, unknown fields, the time of arrival."""

import datetime
from typing import Any

import orjson
import pytest

from ondatra_dagster.collector.event_to_row_parser import EventParser
from ondatra_dagster.collector.json_value_parsers import ParseNotes
from ondatra_dagster.project.sql.event_schema import read_event_columns

COLUMNS = read_event_columns("page STRING NOT NULL, seconds INT, received_at TIMESTAMP")
NOW = datetime.datetime(2026, 11, 18, 12, tzinfo=datetime.UTC)


def read(event: Any, *, keeps_unknown: bool = True) -> tuple[list[Any], list[tuple[str, str]]]:
    reading = ParseNotes()
    row = EventParser(COLUMNS, keeps_unknown=keeps_unknown).parse_event(event, reading, NOW)
    return row, [(each.field, each.problem) for each in reading.problems]


def test_values_stand_in_the_order_of_the_columns() -> None:
    """Whatever the order in the event; what isn't there is null, and the time of arrival is filled in."""
    assert (["/a", 3, NOW, None], []) == read({"seconds": 3, "page": "/a"})


def test_a_time_of_arrival_of_the_sender_s_own_stays() -> None:
    """Some send what they have kept for a while."""
    row, _ = read({"page": "/a", "received_at": "2020-01-01T00:00:00Z"})
    assert datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC) == row[2]


def test_names_are_looked_for_without_regard_to_case() -> None:
    """As Spark and the rest of ondatra do; two spellings of one column can't both be right."""
    assert (["/a", None, NOW, None], []) == read({"PAGE": "/a"})
    assert [("Page", "is given twice, as 'page' too")] == read({"page": "/a", "Page": "/b"})[1]
    assert [("PAGE", "is given twice")] == read({"Page": "/a", "PAGE": "/b"})[1]


@pytest.mark.parametrize(
    ("event", "problems"),
    [
        ({}, [("page", "is missing; it is STRING NOT NULL")]),
        ({"page": None}, [("page", "is null; it is STRING NOT NULL")]),
        ({"page": 1}, [("page", "is a number; expected STRING")]),
        ({"seconds": "x"}, [("seconds", "is a text; expected INT"), ("page", "is missing; it is STRING NOT NULL")]),
        ([], [("", "isn't an object; an event is one: {…}")]),
        (None, [("", "isn't an object; an event is one: {…}")]),
    ],
)
def test_all_that_is_wrong_is_told_once(event: Any, problems: list[tuple[str, str]]) -> None:
    assert problems == read(event)[1]


def test_unknown_fields_are_kept_as_json_or_refused() -> None:
    """By setting."""
    event = {"page": "/a", "_extra": 1, "new": [True]}
    assert '{"_extra":1,"new":[true]}' == read(event)[0][-1]
    problem = "isn't a column of the model, which accepts no others"
    assert [("_extra", problem), ("new", problem)] == read(event, keeps_unknown=False)[1]


def test_what_can_be_read_but_not_be_written_again_is_refused() -> None:
    """Else it would be taken, and no flush could ever write it."""
    deep = orjson.loads("[" * 500 + "]" * 500)
    assert [("deep", "is nested too deeply, or is too large a number")] == read({"page": "/a", "deep": deep})[1]
