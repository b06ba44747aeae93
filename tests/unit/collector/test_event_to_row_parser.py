"""The row of an event: required columns, names in another case, unknown fields, and the time of arrival."""

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
    return row, [(problem.field, problem.problem) for problem in reading.problems]


def test_values_have_the_order_of_the_columns() -> None:
    """The order in the event doesn't matter. Missing fields are null, and the time of arrival is filled in."""
    assert (["/a", 3, NOW, None], []) == read({"seconds": 3, "page": "/a"})


def test_a_time_of_arrival_from_the_sender_is_kept() -> None:
    """Some senders send stored events later."""
    row, _ = read({"page": "/a", "received_at": "2020-01-01T00:00:00Z"})
    assert datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC) == row[2]


def test_field_names_are_not_case_sensitive() -> None:
    """Spark and the rest of ondatra do the same. Two spellings of one column are an error."""
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
def test_each_problem_is_reported_once(event: Any, problems: list[tuple[str, str]]) -> None:
    assert problems == read(event)[1]


def test_unknown_fields_are_kept_as_json_or_refused() -> None:
    """The setting decides."""
    event = {"page": "/a", "_extra": 1, "new": [True]}
    assert '{"_extra":1,"new":[true]}' == read(event)[0][-1]
    problem = "isn't a column of the model, which accepts no others"
    assert [("_extra", problem), ("new", problem)] == read(event, keeps_unknown=False)[1]


def test_a_value_that_can_be_read_but_not_written_is_refused() -> None:
    """Otherwise it would be accepted, and no flush could ever write it."""
    deep = orjson.loads("[" * 500 + "]" * 500)
    assert [("deep", "is nested too deeply, or is too large a number")] == read({"page": "/a", "deep": deep})[1]
