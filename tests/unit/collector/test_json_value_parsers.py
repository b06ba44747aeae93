"""The JSON values that each type accepts and refuses, and the values in the table."""

import datetime
from decimal import Decimal
from typing import Any

import orjson
import pytest

from ondatra_dagster.collector.event_to_row_parser import EventParser
from ondatra_dagster.collector.json_value_parsers import ParseNotes
from ondatra_dagster.project.sql.event_schema import read_event_columns

UTC = datetime.UTC


def read(of: str, text: str) -> tuple[Any, list[tuple[str, str]], Any]:
    """Return the value, the problems, and the unknown fields."""
    reader, reading = EventParser(read_event_columns(f"x {of}")), ParseNotes()
    value, extra = reader.parse_event({"x": orjson.loads(text)}, reading)
    return value, [(problem.field, problem.problem) for problem in reading.problems], extra


@pytest.mark.parametrize(
    ("of", "text", "value"),
    [
        ("STRING", '"é😀\\u0000"', "é😀\0"),
        ("VARCHAR(3)", '"longer"', "longer"),
        ("BOOLEAN", "true", True),
        ("TINYINT", "-128", -128),
        ("SMALLINT", "32767", 32767),
        ("INT", "2147483647", 2147483647),
        ("INT", "5.0", 5),
        ("BIGINT", "-9223372036854775808", -(2**63)),
        ("BIGINT", "1e3", 1000),
        ("FLOAT", "1.5", 1.5),
        ("DOUBLE", "3", 3.0),
        ("DECIMAL(10, 2)", "1.5", Decimal("1.50")),
        ("DECIMAL(10, 2)", "-7", Decimal("-7.00")),
        ("DECIMAL(10, 2)", '"12345678.900"', Decimal("12345678.90")),
        ("DECIMAL(38, 0)", '"99999999999999999999999999999999999999"', Decimal("9" * 38)),
        ("DECIMAL(38, 0)", "9223372036854775807", Decimal(2**63 - 1)),
        ("DECIMAL(38, 0)", "999999999999999.0", Decimal(10**15 - 1)),
        ("DECIMAL", "12", Decimal(12)),
        ("DATE", '"0001-01-01"', datetime.date(1, 1, 1)),
        ("TIMESTAMP", '"2026-11-18T12:00:00Z"', datetime.datetime(2026, 11, 18, 12, tzinfo=UTC)),
        ("TIMESTAMP", '"2026-11-18T12:00:00+02:00"', datetime.datetime(2026, 11, 18, 10, tzinfo=UTC)),
        ("TIMESTAMP", '"2026-11-18 12:00"', datetime.datetime(2026, 11, 18, 12, tzinfo=UTC)),
        (
            "TIMESTAMP",
            '"2026-11-18T12:00:00.123456789Z"',
            datetime.datetime(2026, 11, 18, 12, 0, 0, 123456, tzinfo=UTC),
        ),
        ("TIMESTAMP_NTZ", '"1969-12-31T23:59:59"', datetime.datetime(1969, 12, 31, 23, 59, 59)),  # noqa: DTZ001
        ("BINARY", '"aGk="', b"hi"),
        ("ARRAY<INT>", "[1, null, 2]", [1, None, 2]),
        ("MAP<STRING, INT>", '{"a": 1, "b": null}', [("a", 1), ("b", None)]),
        ("MAP<INT, STRING>", '{"-5": "a"}', [(-5, "a")]),
        ("MAP<DATE, BOOLEAN>", '{"2026-01-01": true}', [(datetime.date(2026, 1, 1), True)]),
        ("STRUCT<a: INT, b: STRING>", '{"A": 1}', {"a": 1, "b": None}),
        ("ARRAY<STRUCT<a: ARRAY<DATE>>>", '[{"a": ["2026-01-01"]}]', [{"a": [datetime.date(2026, 1, 1)]}]),
        ("INT", "null", None),
    ],
)
def test_a_type_accepts_a_value(of: str, text: str, value: Any) -> None:
    """The table gets exactly that value: it isn't rounded, cut or guessed."""
    assert (value, [], None) == read(of, text)


@pytest.mark.parametrize(
    ("of", "text", "problem"),
    [
        ("STRING", "1", "is a number; expected STRING"),
        ("STRING", "{}", "is an object; expected STRING"),
        ("BOOLEAN", '"true"', "is a text; expected BOOLEAN"),
        ("BOOLEAN", "1", "is a number; expected BOOLEAN"),
        ("INT", "true", "is true or false; expected INT"),
        ("INT", '"1"', "is a text; expected INT"),
        ("INT", "1.5", "isn't a whole number; expected INT"),
        ("TINYINT", "128", "is out of range; TINYINT is -128 to 127"),
        ("BIGINT", "9223372036854775808", f"is out of range; BIGINT is {-(2**63)} to {2**63 - 1}"),
        ("BIGINT", "1e30", f"is out of range; BIGINT is {-(2**63)} to {2**63 - 1}"),
        ("FLOAT", "1e39", "is out of range; FLOAT is up to 3.40282e+38"),
        ("DOUBLE", '"NaN"', "is a text; expected DOUBLE"),
        ("DECIMAL(4, 2)", "100", "doesn't fit DECIMAL(4, 2): 4 digits, 2 of them decimals"),
        ("DECIMAL(4, 2)", "1.005", "doesn't fit DECIMAL(4, 2): 4 digits, 2 of them decimals"),
        ("DECIMAL(4, 2)", '"1e9999"', "doesn't fit DECIMAL(4, 2): 4 digits, 2 of them decimals"),
        ("DECIMAL(4, 2)", '" 1"', "is a text; expected DECIMAL(4, 2)"),
        ("DECIMAL(4, 2)", '"NaN"', "is a text; expected DECIMAL(4, 2)"),
        (
            "DECIMAL(38, 10)",
            "1234567890.1234567",
            "has more than 15 digits, which only a string keeps; write it as a string",
        ),
        (
            "DECIMAL(38, 0)",
            "100000000000000000001",  # JSON readers take it for a number with a single digit
            "has more than 15 digits, which only a string keeps; write it as a string",
        ),
        (
            "DECIMAL(38, 0)",
            "1000000000000000000.1",
            "has more than 15 digits, which only a string keeps; write it as a string",
        ),
        ("BIGINT", "9007199254740993.0", f"is out of range; BIGINT is {-(2**63)} to {2**63 - 1}"),
        ("DATE", '"20260101"', "isn't a date; write it as 2026-11-18"),
        ("DATE", '"2026-02-30"', "isn't a date; write it as 2026-11-18"),
        ("DATE", '"2026-W01-1"', "isn't a date; write it as 2026-11-18"),
        ("DATE", "1", "is a number; expected DATE"),
        ("TIMESTAMP", '"2026-11-18"', "isn't a time; write it as 2026-11-18T12:00:00Z"),
        ("TIMESTAMP", '"0001-01-01T00:00:00+10:00"', "isn't a time; write it as 2026-11-18T12:00:00Z"),
        ("TIMESTAMP", "1700000000", "is a number; expected TIMESTAMP"),
        ("TIMESTAMP_NTZ", '"2026-11-18T12:00:00Z"', "has a zone, and TIMESTAMP_NTZ has none; leave it out"),
        ("BINARY", '"a"', "isn't base64"),
        ("BINARY", '"é"', "isn't base64"),
        ("ARRAY<INT>", "1", "is a number; expected ARRAY<INT>"),
        ("MAP<STRING, INT>", "[]", "is a list; expected MAP<STRING, INT>"),
        ("STRUCT<a: INT>", "[]", "is a list; expected STRUCT<a: INT>"),
    ],
)
def test_a_type_refuses_a_value(of: str, text: str, problem: str) -> None:
    """The problem says what to write instead."""
    assert [("x", problem)] == read(of, text)[1]


@pytest.mark.parametrize(
    ("of", "text", "paths"),
    [
        ("ARRAY<INT>", '[1, "a", 2, "b"]', ["x[1]", "x[3]"]),
        ("MAP<INT, INT>", '{"a": 1, "2": "b"}', ["x.a", "x.2"]),
        ("STRUCT<a: INT, b: ARRAY<DATE>>", '{"a": "", "b": [1]}', ["x.a", "x.b[0]"]),
        ("STRUCT<a: INT>", '{"a": 1, "A": 2}', ["x.A"]),
        ("MAP<INT, INT>", '{"1": 1, "01": 2}', ["x.01"]),
    ],
)
def test_every_wrong_value_is_reported_with_its_path(of: str, text: str, paths: list[str]) -> None:
    """The sender of a large event doesn't have to search for it, nor to send again to find the next one."""
    assert paths == [path for path, _ in read(of, text)[1]]


def test_an_unknown_field_of_a_struct_is_stored_with_its_path() -> None:
    """A sender that is newer than the model loses nothing."""
    value, problems, extra = read("ARRAY<STRUCT<a: INT>>", '[{"a": 1, "new": {"b": [2]}}]')
    assert ([{"a": 1}], [], '{"x[0].new":{"b":[2]}}') == (value, problems, extra)
