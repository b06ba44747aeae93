"""A JSON value read as the type of its column: a reader a type, which tells what doesn't fit and goes on.

A value becomes what the column's type is in Python: a date, a Decimal, bytes. How an event as a whole is read
is in event_reader.
"""

import base64
import datetime
import decimal
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, TypeAlias

from ondatra_dagster.project.model import EventType

INTEGERS = {"tinyint": 8, "smallint": 16, "int": 32, "bigint": 64}  # bits
LARGEST_FLOAT = 3.4028234663852886e38
EXACT_FLOAT = 2**53  # below it each whole number is one of its own
SAFE_DIGITS = 15  # of a JSON number, which every reader of JSON takes as it stands
NUMBER = re.compile(r"-?[0-9]+(\.[0-9]+)?([eE][+-]?[0-9]{1,4})?")
WHOLE = re.compile(r"-?[0-9]{1,30}")
LONGEST_NUMBER = 100  # letters
SHORTEST_MOMENT = 16  # 2026-11-18T12:00: a date alone is none
WORDS = {
    bool: "true or false",
    int: "a number",
    float: "a number",
    str: "a text",
    list: "a list",
    dict: "an object",
}


class Notes(Protocol):
    """Where a reader puts what it can't read, and what it has no place for."""

    def problem(self, path: str, problem: str) -> None: ...
    def unknown(self, path: str, value: Any) -> None: ...


Reader: TypeAlias = Callable[
    [Any, str, Notes], Any
]  # value, its path in the event, notes → None if it misfits


def reader_of(of: EventType) -> Reader:
    """What reads values of a type; null is for the caller."""
    return MAKERS[of.name](of)


def _text(of: EventType) -> Reader:
    def read(value: Any, path: str, notes: Notes) -> Any:
        if type(value) is str:
            return value
        return _refuse(value, path, notes, of)

    return read


def _boolean(of: EventType) -> Reader:
    def read(value: Any, path: str, notes: Notes) -> Any:
        if type(value) is bool:
            return value
        return _refuse(value, path, notes, of)

    return read


def _integer(of: EventType) -> Reader:
    most = 2 ** (INTEGERS[of.name] - 1) - 1
    least = -most - 1

    def read(value: Any, path: str, notes: Notes) -> Any:
        if type(value) is int and least <= value <= most:
            return value
        if (
            type(value) is float
            and value.is_integer()
            and abs(value) < EXACT_FLOAT
            and least <= value <= most
        ):
            return int(value)
        if type(value) is float and not value.is_integer():
            return notes.problem(path, f"is no whole number; expected {of}")
        if type(value) in (int, float):
            return notes.problem(path, f"is out of range; {of} is {least} to {most}")
        return _refuse(value, path, notes, of)

    return read


def _float(of: EventType) -> Reader:
    most = LARGEST_FLOAT if of.name == "float" else float("inf")

    def read(value: Any, path: str, notes: Notes) -> Any:
        if type(value) not in (float, int):
            return _refuse(value, path, notes, of)
        if abs(value) > most or value == float("inf"):
            return notes.problem(path, f"is out of range; {of} is up to {most:g}")
        return float(value)

    return read


def _decimal(of: EventType) -> Reader:
    # what would lose a digit, or has too many, isn't rounded
    exact = decimal.Context(prec=of.precision, traps=[decimal.Inexact, decimal.InvalidOperation])
    unit = decimal.Decimal(1).scaleb(-of.scale)

    def read(value: Any, path: str, notes: Notes) -> Any:
        text = _digits(value)
        if text is None:
            return _refuse(value, path, notes, of)
        if type(value) is float and not _is_safe(value, text):
            return notes.problem(
                path, f"has more than {SAFE_DIGITS} digits, which only a text keeps; write it as one"
            )
        try:
            return decimal.Decimal(text).quantize(unit, context=exact)
        except decimal.DecimalException:
            return notes.problem(
                path, f"doesn't fit {of}: {of.precision} digits, {of.scale} behind the point"
            )

    return read


def _is_safe(value: float, text: str) -> bool:
    """Whether it is what was sent: of more digits, those that were lost may have left few."""
    digits = re.sub(r"[eE].*|[-.]", "", text).strip("0")
    return len(digits) <= SAFE_DIGITS and abs(value) < 10**SAFE_DIGITS


def _digits(value: Any) -> str | None:
    """A number as text; None for what is none."""
    if type(value) in (int, float):
        return repr(value)
    is_number = type(value) is str and len(value) <= LONGEST_NUMBER and NUMBER.fullmatch(value)
    return value if is_number else None


def _date(of: EventType) -> Reader:
    def read(value: Any, path: str, notes: Notes) -> Any:
        if type(value) is not str:
            return _refuse(value, path, notes, of)
        try:
            if len(value) == 10 and value[4] == value[7] == "-":
                return datetime.date.fromisoformat(value)
        except ValueError:
            pass  # told below, as any other text that is none
        return notes.problem(path, "is no date; write it as 2026-11-18")

    return read


def _timestamp(of: EventType) -> Reader:
    def read(value: Any, path: str, notes: Notes) -> Any:
        if type(value) is not str:
            return _refuse(value, path, notes, of)
        try:
            time = _moment(value)
            return time.replace(tzinfo=datetime.UTC) if time.tzinfo is None else time.astimezone(datetime.UTC)
        except (ValueError, OverflowError):
            return notes.problem(path, "is no time; write it as 2026-11-18T12:00:00Z")

    return read


def _local_timestamp(of: EventType) -> Reader:
    def read(value: Any, path: str, notes: Notes) -> Any:
        if type(value) is not str:
            return _refuse(value, path, notes, of)
        try:
            time = _moment(value)
        except ValueError:
            return notes.problem(path, "is no time; write it as 2026-11-18T12:00:00")
        if time.tzinfo is not None:
            return notes.problem(path, f"has a zone, and {of} has none; leave it out")
        return time

    return read


def _moment(text: str) -> datetime.datetime:
    """A date with a time, by ISO 8601; digits beyond the microsecond are dropped."""
    if len(text) < SHORTEST_MOMENT:
        raise ValueError(text)
    return datetime.datetime.fromisoformat(text.upper())  # RFC 3339 has t and z, too


def _binary(of: EventType) -> Reader:
    def read(value: Any, path: str, notes: Notes) -> Any:
        if type(value) is not str:
            return _refuse(value, path, notes, of)
        try:
            return base64.b64decode(value, validate=True)
        except ValueError:
            return notes.problem(path, "is no base64")

    return read


def _array(of: EventType) -> Reader:
    element = reader_of(of.parts[0])

    def read(value: Any, path: str, notes: Notes) -> Any:
        if type(value) is not list:
            return _refuse(value, path, notes, of)
        return [
            None if each is None else element(each, f"{path}[{place}]", notes)
            for place, each in enumerate(value)
        ]

    return read


def _map(of: EventType) -> Reader:
    key, element = _key(of.parts[0]), reader_of(of.parts[1])

    def read(value: Any, path: str, notes: Notes) -> Any:
        if type(value) is not dict:
            return _refuse(value, path, notes, of)
        pairs = {}
        for name, each in value.items():
            below = f"{path}.{name}"
            known = key(name, below, notes)
            if known in pairs:
                notes.problem(below, "comes twice")
            pairs[known] = None if each is None else element(each, below, notes)
        return list(pairs.items())

    return read


def _key(of: EventType) -> Reader:
    """A map's keys are texts in JSON, whatever they are in the table."""
    reader = reader_of(of)
    if of.name not in INTEGERS:
        return reader

    def read(value: Any, path: str, notes: Notes) -> Any:
        return reader(int(value) if WHOLE.fullmatch(value) else value, path, notes)

    return read


def _struct(of: EventType) -> Reader:
    readers = {name: reader_of(part) for name, part in zip(of.fields, of.parts, strict=True)}
    spelled = spellings(of.fields)

    def read(value: Any, path: str, notes: Notes) -> Any:
        if type(value) is not dict:
            return _refuse(value, path, notes, of)
        fields: dict[str, Any] = dict.fromkeys(readers)
        for given, each in value.items():
            below = f"{path}.{given}"
            name = given if given in readers else spelled.get(given.casefold())
            if name is None:
                notes.unknown(below, each)
            elif name != given and name in value:
                notes.problem(below, f"comes twice, as {name!r} too")
            elif each is not None:
                fields[name] = readers[name](each, below, notes)
        return fields

    return read


def spellings(names: Sequence[str]) -> Mapping[str, str]:
    """Each name by what it is without regard to case."""
    return {name.casefold(): name for name in names}


def _refuse(value: Any, path: str, notes: Notes, of: EventType) -> None:
    word = "null" if value is None else WORDS[type(value)]
    notes.problem(path, f"is {word}; expected {of}")


MAKERS: Mapping[str, Callable[[EventType], Reader]] = {
    "string": _text,
    "boolean": _boolean,
    **dict.fromkeys(INTEGERS, _integer),
    "float": _float,
    "double": _float,
    "decimal": _decimal,
    "date": _date,
    "timestamp": _timestamp,
    "timestamp_ntz": _local_timestamp,
    "binary": _binary,
    "array": _array,
    "map": _map,
    "struct": _struct,
}
