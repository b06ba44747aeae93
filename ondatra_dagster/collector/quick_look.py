"""Whether a body's events surely fit their columns: read and judged in one go, by a type made of the columns.

A yes is sure: event_reader would find nothing either. A no only means that it has to look at each of them.
"""

import datetime
import operator
import re
from collections.abc import Callable, Mapping, Sequence
from types import GenericAlias
from typing import Annotated, Any, NamedTuple

import msgspec
import orjson

from ondatra_dagster.collector.values import INTEGERS, LARGEST_FLOAT, Reader, reader_of
from ondatra_dagster.project.model import EventColumn, EventType

EDGES = {datetime.MINYEAR, datetime.MAXYEAR}
TIMES = {"timestamp", "timestamp_ntz"}
UNREAD = Any  # what only the reader of its column can judge
PLAIN_NAME = re.compile(r'[^"\\\x00-\x1f]*')  # which stands in JSON as it is: msgspec knows no other fields


class _Field(NamedTuple):
    """A field of the type, named by its place: a column may be named as no field can."""

    name: str
    column: str
    type: Any
    is_required: bool


class _Unread(NamedTuple):
    column: str
    read: Reader
    is_required: bool


class QuickLook:
    """Looks at the events of one model."""

    def __init__(self, columns: Sequence[EventColumn], *, required: Sequence[str]) -> None:
        fields = [
            _Field(f"column_{place}", column.name, _type(column.of), column.name in required)
            for place, column in enumerate(columns)
        ]
        self._is_able = _are_plain([column.name for column in columns])
        event = _object(fields if self._is_able else ())
        self._one = msgspec.json.Decoder(event)
        self._many = msgspec.json.Decoder(GenericAlias(list, event))
        self._times = [
            _Time(field.name)
            for field, column in zip(fields, columns, strict=True)
            if column.of.name in TIMES
        ]
        self._unread = [
            _Unread(field.column, reader_of(column.of), field.is_required)
            for field, column in zip(fields, columns, strict=True)
            if field.type is UNREAD
        ]

    def events(self, body: bytes, *, is_batch: bool) -> int | None:
        """How many the body holds, when each of them surely fits."""
        if not self._is_able:
            return None
        try:
            came = self._many.decode(body) if is_batch else [self._one.decode(body)]
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            return None
        if not all(time.is_inside(came) for time in self._times):
            return None
        return len(came) if not self._unread or self._can_be_read(body, is_batch=is_batch) else None

    def _can_be_read(self, body: bytes, *, is_batch: bool) -> bool:
        """Whether the columns that are unread yet fit, as the flush will have them."""
        try:
            came = orjson.loads(body)
        except orjson.JSONDecodeError:
            return False
        events = came if is_batch else [came]
        return all(_fits(column, [event.get(column.column) for event in events]) for column in self._unread)


class _Time:
    """A column of times, none of which a zone may lead out of the years that there are."""

    def __init__(self, name: str) -> None:
        self._value_of = operator.attrgetter(name)
        self._year_of = operator.attrgetter(f"{name}.year")

    def is_inside(self, events: Sequence[Any]) -> bool:
        try:
            return EDGES.isdisjoint(map(self._year_of, events))
        except AttributeError:  # some have none
            return EDGES.isdisjoint(time.year for time in map(self._value_of, events) if time)


def _fits(column: _Unread, values: Sequence[Any]) -> bool:
    notes = _Trouble()
    for value in values:
        if value is not None:
            column.read(value, "", notes)
        if notes.is_there or (value is None and column.is_required):
            return False
    return True


class _Trouble:
    """Whether there was anything to note."""

    is_there = False

    def problem(self, _path: str, _problem: str) -> None:
        self.is_there = True

    def unknown(self, _path: str, _value: Any) -> None:
        self.is_there = True


def _type(of: EventType) -> Any:
    """What is read of a type, where that is all there is to judge."""
    make = TYPES.get(of.name)
    return make(of) if make else UNREAD


def _object(fields: Sequence[_Field]) -> type[msgspec.Struct]:
    """An object that has these fields, and no others."""
    return msgspec.defstruct(
        "Event",
        [
            (field.name, field.type) if field.is_required else (field.name, field.type | None, None)
            for field in fields
        ],
        rename={field.name: field.column for field in fields},
        kw_only=True,
        forbid_unknown_fields=True,
        gc=False,
    )


def _whole(of: EventType) -> Any:
    most = 2 ** (INTEGERS[of.name] - 1) - 1
    return Annotated[int, msgspec.Meta(ge=-most - 1, le=most)]


def _array(of: EventType) -> Any:
    element = _inner(of.parts[0])
    return UNREAD if element is UNREAD else GenericAlias(list, element | None)


def _map(of: EventType) -> Any:
    key, element = of.parts[0], _inner(of.parts[1])
    if element is UNREAD or key.name != "string":
        return UNREAD
    return GenericAlias(dict, (str, element | None))


def _fields(of: EventType) -> Any:
    fields = [
        _Field(f"field_{place}", name, _inner(part), is_required=False)
        for place, (name, part) in enumerate(zip(of.fields, of.parts, strict=True))
    ]
    is_unread = not _are_plain(of.fields) or UNREAD in [field.type for field in fields]
    return UNREAD if is_unread else _object(fields)


def _are_plain(names: Sequence[str]) -> bool:
    return all(PLAIN_NAME.fullmatch(name) for name in names)


def _inner(of: EventType) -> Any:
    """The same for a part of something; a time's year is judged where it is a column."""
    return UNREAD if of.name in TIMES else _type(of)


TYPES: Mapping[str, Callable[[EventType], Any]] = {
    "string": lambda _: str,
    "boolean": lambda _: bool,
    **dict.fromkeys(INTEGERS, _whole),
    "float": lambda _: Annotated[float, msgspec.Meta(ge=-LARGEST_FLOAT, le=LARGEST_FLOAT)],
    "double": lambda _: float,
    "date": lambda _: datetime.date,
    "timestamp": lambda _: datetime.datetime,
    "timestamp_ntz": lambda _: Annotated[datetime.datetime, msgspec.Meta(tz=False)],
    "array": _array,
    "map": _map,
    "struct": _fields,
}
