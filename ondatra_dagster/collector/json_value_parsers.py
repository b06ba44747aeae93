"""The parsers of JSON values, one for each column type. A value that doesn't fit is noted, and parsing goes on.

A value becomes what the column's type is in Python: a date, a Decimal, bytes. The parsers note problems in
ParseNotes; event_to_row_parser.py parses a whole event.
"""

import base64
import dataclasses
import datetime
import decimal
import functools
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

from ondatra_dagster.project.model import EventType

MAX_INTEGERS = {"tinyint": 2**7 - 1, "smallint": 2**15 - 1, "int": 2**31 - 1, "bigint": 2**63 - 1}
PLAIN_TYPES = {"string": str, "boolean": bool}  # types whose values stay unchanged
MAX_FLOAT32 = 3.4028234663852886e38
EXACT_FLOAT_LIMIT = 2**53  # below it, a float represents each whole number exactly
SAFE_DIGITS = 15  # of a JSON number: every parser keeps that many
NUMBER_PATTERN = re.compile(r"-?[0-9]+(\.[0-9]+)?([eE][+-]?[0-9]{1,4})?")
INTEGER_PATTERN = re.compile(r"-?[0-9]{1,30}")
MAX_NUMBER_LENGTH = 100  # characters
MIN_DATETIME_LENGTH = 16  # 2026-11-18T12:00; a date alone is no timestamp
JSON_TYPE_NAMES = {
    bool: "true or false",
    int: "a number",
    float: "a number",
    str: "a text",
    list: "a list",
    dict: "an object",
}


@dataclasses.dataclass(frozen=True, slots=True)
class FieldProblem:
    """The reason why a field of an event can't be accepted."""

    index: int  # the event's index in its batch, from 0
    field: str  # "" for the event itself
    problem: str


class ParseNotes:
    """The notes from parsing the events of one request."""

    __slots__ = ("extra", "index", "problems")

    def __init__(self) -> None:
        self.index = 0
        self.problems: list[FieldProblem] = []
        self.extra: dict[str, Any] = {}  # fields of the present event that have no column

    def add_problem(self, path: str, problem: str) -> None:
        self.problems.append(FieldProblem(self.index, path, problem))

    def add_unknown(self, path: str, value: Any) -> None:
        if path in self.extra:
            self.add_problem(path, "is given twice")
        self.extra[path] = value


ValueParser: TypeAlias = Callable[
    [Any, str, ParseNotes], Any
]  # value, its path in the event, notes → None if it doesn't fit


def build_parser(event_type: EventType) -> ValueParser:
    """Return the parser for a type; the caller handles null."""
    parse = PARSERS.get(event_type.name)
    return functools.partial(parse, event_type) if parse else PARSER_BUILDERS[event_type.name](event_type)


def _plain_parser(event_type: EventType) -> ValueParser:
    python_type = PLAIN_TYPES[event_type.name]

    def parse_value(value: Any, path: str, notes: ParseNotes) -> Any:
        return value if type(value) is python_type else _add_type_problem(value, path, notes, event_type)

    return parse_value


def _integer_parser(event_type: EventType) -> ValueParser:
    maximum = MAX_INTEGERS[event_type.name]
    minimum = -maximum - 1

    def parse_value(value: Any, path: str, notes: ParseNotes) -> Any:
        if type(value) is int and minimum <= value <= maximum:
            return value
        if (
            type(value) is float
            and value.is_integer()
            and abs(value) < EXACT_FLOAT_LIMIT
            and minimum <= value <= maximum
        ):
            return int(value)
        if type(value) is float and not value.is_integer():
            return notes.add_problem(path, f"isn't a whole number; expected {event_type}")
        if type(value) in (int, float):
            return notes.add_problem(path, f"is out of range; {event_type} is {minimum} to {maximum}")
        return _add_type_problem(value, path, notes, event_type)

    return parse_value


def _parse_float(event_type: EventType, value: Any, path: str, notes: ParseNotes) -> Any:
    maximum = MAX_FLOAT32 if event_type.name == "float" else float("inf")
    if type(value) not in (float, int):
        return _add_type_problem(value, path, notes, event_type)
    if abs(value) > maximum or value == float("inf"):
        return notes.add_problem(path, f"is out of range; {event_type} is up to {maximum:g}")
    return float(value)


def _decimal_parser(event_type: EventType) -> ValueParser:
    # a value that would lose a digit, or has too many, is refused, not rounded
    exact_context = decimal.Context(prec=event_type.precision, traps=[decimal.Inexact, decimal.InvalidOperation])
    unit = decimal.Decimal(1).scaleb(-event_type.scale)

    def parse_value(value: Any, path: str, notes: ParseNotes) -> Any:
        text = _number_text(value)
        if text is None:
            return _add_type_problem(value, path, notes, event_type)
        if type(value) is float and not _is_exact(value, text):
            return notes.add_problem(
                path, f"has more than {SAFE_DIGITS} digits, which only a string keeps; write it as a string"
            )
        try:
            return decimal.Decimal(text).quantize(unit, context=exact_context)
        except decimal.DecimalException:
            return notes.add_problem(
                path, f"doesn't fit {event_type}: {event_type.precision} digits, {event_type.scale} of them decimals"
            )

    return parse_value


def _is_exact(value: float, text: str) -> bool:
    """Return whether the float is exactly the number that was sent.

    A number that was sent with more digits may become a float with few, so large floats don't count as exact.
    """
    digits = re.sub(r"[eE].*|[-.]", "", text).strip("0")
    return len(digits) <= SAFE_DIGITS and abs(value) < 10**SAFE_DIGITS


def _number_text(value: Any) -> str | None:
    """Return a number as text; None if the value is no number."""
    if type(value) in (int, float):
        return repr(value)
    is_number = type(value) is str and len(value) <= MAX_NUMBER_LENGTH and NUMBER_PATTERN.fullmatch(value)
    return value if is_number else None


def _parse_date(event_type: EventType, value: Any, path: str, notes: ParseNotes) -> Any:
    if type(value) is not str:
        return _add_type_problem(value, path, notes, event_type)
    try:
        if len(value) == 10 and value[4] == value[7] == "-":
            return datetime.date.fromisoformat(value)
    except ValueError:
        pass  # the problem is noted below, as for any other text that is no date
    return notes.add_problem(path, "isn't a date; write it as 2026-11-18")


def _parse_timestamp(event_type: EventType, value: Any, path: str, notes: ParseNotes) -> Any:
    if type(value) is not str:
        return _add_type_problem(value, path, notes, event_type)
    try:
        time = _parse_datetime(value)
        return time.replace(tzinfo=datetime.UTC) if time.tzinfo is None else time.astimezone(datetime.UTC)
    except (ValueError, OverflowError):
        return notes.add_problem(path, "isn't a time; write it as 2026-11-18T12:00:00Z")


def _parse_local_timestamp(event_type: EventType, value: Any, path: str, notes: ParseNotes) -> Any:
    if type(value) is not str:
        return _add_type_problem(value, path, notes, event_type)
    try:
        time = _parse_datetime(value)
    except ValueError:
        return notes.add_problem(path, "isn't a time; write it as 2026-11-18T12:00:00")
    if time.tzinfo is not None:
        return notes.add_problem(path, f"has a zone, and {event_type} has none; leave it out")
    return time


def _parse_datetime(text: str) -> datetime.datetime:
    """Parse a date with a time, by ISO 8601; drop digits beyond the microsecond."""
    if len(text) < MIN_DATETIME_LENGTH:
        raise ValueError(text)
    return datetime.datetime.fromisoformat(text.upper())  # RFC 3339 allows t and z, too


def _parse_binary(event_type: EventType, value: Any, path: str, notes: ParseNotes) -> Any:
    if type(value) is not str:
        return _add_type_problem(value, path, notes, event_type)
    try:
        return base64.b64decode(value, validate=True)
    except ValueError:
        return notes.add_problem(path, "isn't base64")


def _array_parser(event_type: EventType) -> ValueParser:
    element = build_parser(event_type.type_arguments[0])

    def parse_value(value: Any, path: str, notes: ParseNotes) -> Any:
        if type(value) is not list:
            return _add_type_problem(value, path, notes, event_type)
        return [None if item is None else element(item, f"{path}[{index}]", notes) for index, item in enumerate(value)]

    return parse_value


def _map_parser(event_type: EventType) -> ValueParser:
    key, element = _map_key_parser(event_type.type_arguments[0]), build_parser(event_type.type_arguments[1])

    def parse_value(value: Any, path: str, notes: ParseNotes) -> Any:
        if type(value) is not dict:
            return _add_type_problem(value, path, notes, event_type)
        pairs = {}
        for name, item in value.items():
            item_path = f"{path}.{name}"
            parsed_key = key(name, item_path, notes)
            if parsed_key in pairs:
                notes.add_problem(item_path, "is given twice")
            pairs[parsed_key] = None if item is None else element(item, item_path, notes)
        return list(pairs.items())

    return parse_value


def _map_key_parser(event_type: EventType) -> ValueParser:
    """Return the parser of a map's keys, which are texts in JSON whatever their column type is."""
    reader = build_parser(event_type)
    if event_type.name not in MAX_INTEGERS:
        return reader

    def parse_value(value: Any, path: str, notes: ParseNotes) -> Any:
        return reader(int(value) if INTEGER_PATTERN.fullmatch(value) else value, path, notes)

    return parse_value


def _struct_parser(event_type: EventType) -> ValueParser:
    readers = {
        name: build_parser(field_type)
        for name, field_type in zip(event_type.fields, event_type.type_arguments, strict=True)
    }
    declared_names = names_by_casefold(event_type.fields)

    def parse_value(value: Any, path: str, notes: ParseNotes) -> Any:
        if type(value) is not dict:
            return _add_type_problem(value, path, notes, event_type)
        fields: dict[str, Any] = dict.fromkeys(readers)
        for field_name, item in value.items():
            field_path = f"{path}.{field_name}"
            name = field_name if field_name in readers else declared_names.get(field_name.casefold())
            if name is None:
                notes.add_unknown(field_path, item)
            elif name != field_name and name in value:
                notes.add_problem(field_path, f"is given twice, as {name!r} too")
            elif item is not None:
                fields[name] = readers[name](item, field_path, notes)
        return fields

    return parse_value


def names_by_casefold(names: Sequence[str]) -> Mapping[str, str]:
    """Return each name by its casefolded form."""
    return {name.casefold(): name for name in names}


def _add_type_problem(value: Any, path: str, notes: ParseNotes, event_type: EventType) -> None:
    word = "null" if value is None else JSON_TYPE_NAMES[type(value)]
    notes.add_problem(path, f"is {word}; expected {event_type}")


PARSER_BUILDERS: Mapping[str, Callable[[EventType], ValueParser]] = {
    **dict.fromkeys(PLAIN_TYPES, _plain_parser),
    **dict.fromkeys(MAX_INTEGERS, _integer_parser),
    "decimal": _decimal_parser,
    "array": _array_parser,
    "map": _map_parser,
    "struct": _struct_parser,
}
PARSERS: Mapping[str, Callable[[EventType, Any, str, ParseNotes], Any]] = {
    **dict.fromkeys(("float", "double"), _parse_float),
    "date": _parse_date,
    "timestamp": _parse_timestamp,
    "timestamp_ntz": _parse_local_timestamp,
    "binary": _parse_binary,
}
