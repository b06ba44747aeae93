"""An event read as a row of its model's table, by the columns that the model defines now.

The door reads to judge, the flush to write: what one lets in, the other can place, unless the model changed.
"""

import dataclasses
import datetime
from collections.abc import Sequence
from typing import Any, NamedTuple

import orjson

from ondatra_dagster.collector.quick_look import QuickLook
from ondatra_dagster.collector.values import Reader, reader_of, spellings
from ondatra_dagster.project.model import EventColumn, EventType

RECEIVED_AT = "received_at"
TIMESTAMP = EventType(name="timestamp")


@dataclasses.dataclass(frozen=True, slots=True)
class FieldProblem:
    """Why a field of an event can't be taken."""

    index: int  # of the event in its batch, from 0
    field: str  # "" for the event itself
    problem: str


class Reading:
    """What is noted while the events of one request are read."""

    __slots__ = ("extra", "index", "problems")

    def __init__(self) -> None:
        self.index = 0
        self.problems: list[FieldProblem] = []
        self.extra: dict[str, Any] = {}  # of the event that is being read: fields that no column is for

    def problem(self, path: str, problem: str) -> None:
        self.problems.append(FieldProblem(self.index, path, problem))

    def unknown(self, path: str, value: Any) -> None:
        if path in self.extra:
            self.problem(path, "comes twice")
        self.extra[path] = value


class _Column(NamedTuple):
    place: int
    read: Reader


class _Required(NamedTuple):
    place: int
    name: str
    of: str


class EventReader:
    """Reads the events of one model."""

    def __init__(self, columns: Sequence[EventColumn], *, keeps_unknown: bool = True) -> None:
        self._columns = {column.name: _Column(n, reader_of(column.of)) for n, column in enumerate(columns)}
        self._spelled = spellings([column.name for column in columns])
        self._blank: list[Any] = [None] * (len(columns) + 1)
        self._keeps_unknown = keeps_unknown
        self._received_at = next(
            (n for n, c in enumerate(columns) if c.name.casefold() == RECEIVED_AT and c.of == TIMESTAMP), None
        )
        self._required = [
            _Required(place, column.name, str(column.of))
            for place, column in enumerate(columns)
            if column.is_required and place != self._received_at
        ]
        self._quick = QuickLook(columns, required=[column.name for column in self._required])

    def quick_look(self, body: bytes, *, is_batch: bool) -> int | None:
        """How many events a body holds, when all of them surely fit; when not, each has to be read."""
        return self._quick.events(body, is_batch=is_batch)

    def read(self, event: Any, reading: Reading, received_at: datetime.datetime | None = None) -> list[Any]:
        """The event's values in the order of the columns, and last the JSON of _extra; problems are noted."""
        values = self._blank.copy()
        if type(event) is not dict:
            reading.problem("", "is no object; an event is one: {…}")
            return values
        self._read_fields(event, values, reading)
        for column in self._required:
            if values[column.place] is None:
                _tell_missing(column, event, reading)
        if self._received_at is not None and values[self._received_at] is None:
            values[self._received_at] = received_at
        if reading.extra:
            values[-1] = self._take_extra(reading)
        return values

    def _read_fields(self, event: dict[str, Any], values: list[Any], reading: Reading) -> None:
        columns = self._columns
        for name, value in event.items():
            column = columns.get(name)
            if column is None:
                self._other(name, value, event, values, reading)
            elif value is not None:
                values[column.place] = column.read(value, name, reading)

    def _other(
        self, name: str, value: Any, event: dict[str, Any], values: list[Any], reading: Reading
    ) -> None:
        """A field that is spelled in other letters, or that no column is for."""
        known = self._spelled.get(name.casefold())
        if known is None:
            reading.unknown(name, value)
        elif known in event or values[self._columns[known].place] is not None:
            reading.problem(name, f"comes twice, as {known!r} too" if known in event else "comes twice")
        elif value is not None:
            column = self._columns[known]
            values[column.place] = column.read(value, name, reading)

    def _take_extra(self, reading: Reading) -> str | None:
        extra, reading.extra = reading.extra, {}
        if not self._keeps_unknown:
            for path in extra:
                reading.problem(path, "is no column of the model, which takes no others")
            return None
        try:
            return orjson.dumps(extra).decode()
        except TypeError:  # it can be read deeper than it can be written
            for path in extra:
                reading.problem(path, "is nested too deep, or too large a number")
            return None


def _tell_missing(column: _Required, event: dict[str, Any], reading: Reading) -> None:
    """Note that a column has to have a value; one that misfits has been told of."""
    given = next((each for each in event if each.casefold() == column.name.casefold()), None)
    if given is None:
        reading.problem(column.name, f"is missing; it is {column.of} NOT NULL")
    elif event[given] is None:
        reading.problem(given, f"is null; it is {column.of} NOT NULL")
