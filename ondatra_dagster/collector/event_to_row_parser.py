"""A parser of events. It makes each event a row of its model's table, by the columns that the model defines now.

The application parses events to validate them, the flush to write them. A valid event can be written unless the
model changes before the flush.
"""

import datetime
from collections.abc import Sequence
from typing import Any, NamedTuple

import orjson

from ondatra_dagster.collector.fast_event_validation import FastEventValidator
from ondatra_dagster.collector.json_value_parsers import ParseNotes, ValueParser, build_parser, names_by_casefold
from ondatra_dagster.project.model import EventColumn, EventType

RECEIVED_AT_COLUMN = "received_at"
TIMESTAMP_TYPE = EventType(name="timestamp")


class _ColumnParser(NamedTuple):
    value_index: int
    parse: ValueParser


class _RequiredColumn(NamedTuple):
    value_index: int
    name: str
    type_name: str


class EventParser:
    """A parser of one model's events."""

    def __init__(self, columns: Sequence[EventColumn], *, keeps_unknown: bool = True) -> None:
        self._columns = {
            column.name: _ColumnParser(n, build_parser(column.event_type)) for n, column in enumerate(columns)
        }
        self._names_by_casefold = names_by_casefold([column.name for column in columns])
        self._empty_row: list[Any] = [None] * (len(columns) + 1)
        self._keeps_unknown = keeps_unknown
        received_at_column = (RECEIVED_AT_COLUMN, TIMESTAMP_TYPE)
        received_at = [
            n for n, column in enumerate(columns) if (column.name.casefold(), column.event_type) == received_at_column
        ]
        self._received_at_index = received_at[0] if received_at else None
        self._required = [
            _RequiredColumn(index, column.name, str(column.event_type))
            for index, column in enumerate(columns)
            if column.is_required and index != self._received_at_index
        ]
        self._fast_validator = FastEventValidator(columns, required_names=[column.name for column in self._required])

    def count_if_all_valid(self, body: bytes, *, is_batch: bool) -> int | None:
        """Return how many events a body has if all are certainly valid; None if each event has to be parsed."""
        return self._fast_validator.count_if_all_valid(body, is_batch=is_batch)

    def parse_event(self, event: Any, notes: ParseNotes, received_at: datetime.datetime | None = None) -> list[Any]:
        """Return the event's values in the order of the columns, then the JSON for _extra; add problems to `notes`."""
        values = self._empty_row.copy()
        if type(event) is not dict:
            notes.add_problem("", "isn't an object; an event is one: {…}")
            return values
        self._parse_fields(event, values, notes)
        for column in self._required:
            if values[column.value_index] is None:
                _add_missing_problem(column, event, notes)
        if self._received_at_index is not None and values[self._received_at_index] is None:
            values[self._received_at_index] = received_at
        if notes.extra:
            values[-1] = self._format_extra(notes)
        return values

    def _parse_fields(self, event: dict[str, Any], values: list[Any], notes: ParseNotes) -> None:
        columns = self._columns
        for name, value in event.items():
            column = columns.get(name)
            if column is None:
                self._parse_other_field(name, value, event, values, notes)
            elif value is not None:
                values[column.value_index] = column.parse(value, name, notes)

    def _parse_other_field(
        self, name: str, value: Any, event: dict[str, Any], values: list[Any], notes: ParseNotes
    ) -> None:
        """Parse a field whose name differs in case from its column's, or that has no column."""
        column_name = self._names_by_casefold.get(name.casefold())
        if column_name is None:
            notes.add_unknown(name, value)
        elif column_name in event or values[self._columns[column_name].value_index] is not None:
            notes.add_problem(
                name, f"is given twice, as {column_name!r} too" if column_name in event else "is given twice"
            )
        elif value is not None:
            column = self._columns[column_name]
            values[column.value_index] = column.parse(value, name, notes)

    def _format_extra(self, notes: ParseNotes) -> str | None:
        extra, notes.extra = notes.extra, {}
        if not self._keeps_unknown:
            for path in extra:
                notes.add_problem(path, "isn't a column of the model, which accepts no others")
            return None
        try:
            return orjson.dumps(extra).decode()
        except TypeError:  # orjson reads deeper nesting and larger numbers than it writes
            for path in extra:
                notes.add_problem(path, "is nested too deeply, or is too large a number")
            return None


def _add_missing_problem(column: _RequiredColumn, event: dict[str, Any], notes: ParseNotes) -> None:
    """Note that a required column has no value. If its value doesn't fit, that has been noted already."""
    field_name = next((field for field in event if field.casefold() == column.name.casefold()), None)
    if field_name is None:
        notes.add_problem(column.name, f"is missing; it is {column.type_name} NOT NULL")
    elif event[field_name] is None:
        notes.add_problem(field_name, f"is null; it is {column.type_name} NOT NULL")
