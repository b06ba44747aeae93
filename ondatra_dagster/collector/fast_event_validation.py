"""A fast check of a body's events: msgspec decodes the body to a type that is built from the model's columns.

A positive result is certain: event_to_row_parser would find no problem either. After a negative result,
event_to_row_parser checks each event.
"""

import datetime
import operator
import re
from collections.abc import Callable, Mapping, Sequence
from types import GenericAlias
from typing import Annotated, Any, NamedTuple

import msgspec
import orjson

from ondatra_dagster.collector.json_value_parsers import (
    MAX_FLOAT32,
    MAX_INTEGERS,
    ParseNotes,
    ValueParser,
    build_parser,
)
from ondatra_dagster.project.model import EventColumn, EventType

EDGE_YEARS = {datetime.MINYEAR, datetime.MAXYEAR}
TIMESTAMP_TYPES = {"timestamp", "timestamp_ntz"}
NEEDS_PARSER = Any  # only the column's parser can check the value
PLAIN_NAME = re.compile(r'[^"\\\x00-\x1f]*')  # JSON writes such a name without escapes; msgspec knows no other fields


class _Field(NamedTuple):
    """A field of the msgspec type. It is named by its position, because a column's name may not be valid in Python."""

    name: str
    column: str
    type: Any
    is_required: bool


class _ParsedColumn(NamedTuple):
    column: str
    parse: ValueParser
    is_required: bool


class FastEventValidator:
    """A fast validator of one model's events."""

    def __init__(self, columns: Sequence[EventColumn], *, required_names: Sequence[str]) -> None:
        fields = [
            _Field(f"column_{index}", column.name, _msgspec_type(column.event_type), column.name in required_names)
            for index, column in enumerate(columns)
        ]
        self._is_supported = _are_plain_names([column.name for column in columns])
        event = _object_type(fields if self._is_supported else ())
        self._event_decoder = msgspec.json.Decoder(event)
        self._batch_decoder = msgspec.json.Decoder(GenericAlias(list, event))
        self._timestamp_columns = [
            _TimestampColumn(field.name)
            for field, column in zip(fields, columns, strict=True)
            if column.event_type.name in TIMESTAMP_TYPES
        ]
        self._parsed_columns = [
            _ParsedColumn(field.column, build_parser(column.event_type), field.is_required)
            for field, column in zip(fields, columns, strict=True)
            if field.type is NEEDS_PARSER
        ]

    def count_if_all_valid(self, body: bytes, *, is_batch: bool) -> int | None:
        """Return how many events the body has if all are certainly valid; None if some may not be."""
        if not self._is_supported:
            return None
        try:
            events = self._batch_decoder.decode(body) if is_batch else [self._event_decoder.decode(body)]
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            return None
        if not all(time.are_years_safe(events) for time in self._timestamp_columns):
            return None
        return len(events) if not self._parsed_columns or self._are_parsable(body, is_batch=is_batch) else None

    def _are_parsable(self, body: bytes, *, is_batch: bool) -> bool:
        """Return whether the flush's parsers find the columns valid that msgspec didn't check."""
        try:
            content = orjson.loads(body)
        except orjson.JSONDecodeError:
            return False
        events = content if is_batch else [content]
        return all(
            _are_values_valid(column, [event.get(column.column) for event in events]) for column in self._parsed_columns
        )


class _TimestampColumn:
    """A timestamp column. A time zone may move a time of the first or last year out of Python's range."""

    def __init__(self, name: str) -> None:
        self._get_value = operator.attrgetter(name)
        self._get_year = operator.attrgetter(f"{name}.year")

    def are_years_safe(self, events: Sequence[Any]) -> bool:
        try:
            return EDGE_YEARS.isdisjoint(map(self._get_year, events))
        except AttributeError:  # some events have no value
            return EDGE_YEARS.isdisjoint(time.year for time in map(self._get_value, events) if time)


def _are_values_valid(column: _ParsedColumn, values: Sequence[Any]) -> bool:
    notes = ParseNotes()
    for value in values:
        if value is not None:
            column.parse(value, "", notes)
        if notes.problems or notes.extra or (value is None and column.is_required):
            return False
    return True


def _msgspec_type(event_type: EventType) -> Any:
    """Return the type by which msgspec checks a column; NEEDS_PARSER if msgspec can't check it."""
    build_type = TYPE_BUILDERS.get(event_type.name)
    return build_type(event_type) if build_type else NEEDS_PARSER


def _object_type(fields: Sequence[_Field]) -> type[msgspec.Struct]:
    """Return a msgspec type of objects that have these fields and no others."""
    return msgspec.defstruct(
        "Event",
        [(field.name, field.type) if field.is_required else (field.name, field.type | None, None) for field in fields],
        rename={field.name: field.column for field in fields},
        kw_only=True,
        forbid_unknown_fields=True,
        gc=False,
    )


def _integer_type(event_type: EventType) -> Any:
    maximum = MAX_INTEGERS[event_type.name]
    return Annotated[int, msgspec.Meta(ge=-maximum - 1, le=maximum)]


def _array_type(event_type: EventType) -> Any:
    element = _nested_type(event_type.type_arguments[0])
    return NEEDS_PARSER if element is NEEDS_PARSER else GenericAlias(list, element | None)


def _map_type(event_type: EventType) -> Any:
    key, element = event_type.type_arguments[0], _nested_type(event_type.type_arguments[1])
    if element is NEEDS_PARSER or key.name != "string":
        return NEEDS_PARSER
    return GenericAlias(dict, (str, element | None))


def _struct_type(event_type: EventType) -> Any:
    fields = [
        _Field(f"field_{index}", name, _nested_type(field_type), is_required=False)
        for index, (name, field_type) in enumerate(zip(event_type.fields, event_type.type_arguments, strict=True))
    ]
    is_unread = not _are_plain_names(event_type.fields) or NEEDS_PARSER in [field.type for field in fields]
    return NEEDS_PARSER if is_unread else _object_type(fields)


def _are_plain_names(names: Sequence[str]) -> bool:
    return all(PLAIN_NAME.fullmatch(name) for name in names)


def _nested_type(event_type: EventType) -> Any:
    """Return the msgspec type of a nested value; NEEDS_PARSER if msgspec can't check it.

    Nested timestamps need the parser, because the years of only whole columns are checked.
    """
    return NEEDS_PARSER if event_type.name in TIMESTAMP_TYPES else _msgspec_type(event_type)


TYPE_BUILDERS: Mapping[str, Callable[[EventType], Any]] = {
    "string": lambda _: str,
    "boolean": lambda _: bool,
    **dict.fromkeys(MAX_INTEGERS, _integer_type),
    "float": lambda _: Annotated[float, msgspec.Meta(ge=-MAX_FLOAT32, le=MAX_FLOAT32)],
    "double": lambda _: float,
    "date": lambda _: datetime.date,
    "timestamp": lambda _: datetime.datetime,
    "timestamp_ntz": lambda _: Annotated[datetime.datetime, msgspec.Meta(tz=False)],
    "array": _array_type,
    "map": _map_type,
    "struct": _struct_type,
}
