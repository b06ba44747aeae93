"""Whether many events fit their columns, judged a column at a time, where most are as they should be.

A yes is sure: event_reader would find nothing either. A no only means that it has to look at each of them.
"""

import datetime
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

from ondatra_dagster.collector.values import INTEGERS, LARGEST_FLOAT, SHORTEST_MOMENT, Reader, reader_of
from ondatra_dagster.project.model import EventColumn, EventType

Types: TypeAlias = set[type]
Judge: TypeAlias = Callable[[Sequence[Any], Types], bool]  # a column's values without null, and their types

NOTHING = type(None)
MAPPING = {dict}
EDGES = {datetime.MINYEAR, datetime.MAXYEAR}
YEAR, ZONE = operator.attrgetter("year"), operator.attrgetter("tzinfo")


class _Column(NamedTuple):
    name: str
    value_of: Callable[[Any], Any]  # in an event that has it
    is_required: bool
    judge: Judge


class QuickLook:
    """Judges the events of one model."""

    def __init__(self, columns: Sequence[EventColumn], *, required: Sequence[str]) -> None:
        self._names = {column.name for column in columns}
        self._columns = [
            _Column(column.name, operator.itemgetter(column.name), column.name in required, _judge(column.of))
            for column in columns
        ]

    def fits(self, events: Sequence[Any]) -> bool:
        """Whether each of them surely does."""
        if set(map(type, events)) != MAPPING:
            return False
        fields, found = sum(map(len, events)), 0
        for column in self._columns:
            if found == fields and not column.is_required:
                continue  # each field has been seen, so this column is in no event
            values = _values(events, column)
            types = set(map(type, values))
            if NOTHING in types:
                if column.is_required:
                    return False
                types.discard(NOTHING)
                values = [value for value in values if value is not None]
            found += len(values)
            if types and not column.judge(values, types):
                return False
        return found == fields or set().union(*events) <= self._names


def _values(events: Sequence[Any], column: _Column) -> list[Any]:
    try:
        return list(map(column.value_of, events))
    except KeyError:
        return [event.get(column.name) for event in events]


def _judge(of: EventType) -> Judge:
    make = JUDGES.get(of.name)
    return make(of) if make else _one_by_one(of)


def _only(*allowed: type) -> Callable[[EventType], Judge]:
    """What JSON has no other way of getting wrong than by another type."""
    known = set(allowed)
    return lambda _: lambda _, types: types <= known


def _whole(of: EventType) -> Judge:
    most = 2 ** (INTEGERS[of.name] - 1) - 1
    return lambda values, types: types == {int} and -most - 1 <= min(values) and max(values) <= most


def _number(of: EventType) -> Judge:
    if of.name == "double":  # JSON's reader refuses what is larger
        return _only(int, float)(of)
    most = LARGEST_FLOAT
    return lambda values, types: types <= {int, float} and -most <= min(values) and max(values) <= most


def _moment(of: EventType) -> Judge:
    zones = {None} if of.name == "timestamp_ntz" else None

    def judge(values: Sequence[Any], types: Types) -> bool:
        if types != {str} or min(map(len, values)) < SHORTEST_MOMENT:
            return False
        try:
            times = list(map(datetime.datetime.fromisoformat, values))
        except ValueError:
            return False
        # in the first year and the last a zone may lead out of what there is
        is_inside = EDGES.isdisjoint(map(YEAR, times))
        return is_inside and (zones is None or set(map(ZONE, times)) == zones)

    return judge


def _one_by_one(of: EventType) -> Judge:
    """By the reader itself."""
    read: Reader = reader_of(of)

    def judge(values: Sequence[Any], _types: Types) -> bool:
        notes = _Trouble()
        for value in values:
            read(value, "", notes)
            if notes.is_there:
                return False
        return True

    return judge


class _Trouble:
    """Whether there was anything to note."""

    is_there = False

    def problem(self, _path: str, _problem: str) -> None:
        self.is_there = True

    def unknown(self, _path: str, _value: Any) -> None:
        self.is_there = True


JUDGES: Mapping[str, Callable[[EventType], Judge]] = {
    "string": _only(str),
    "boolean": _only(bool),
    **dict.fromkeys(INTEGERS, _whole),
    "float": _number,
    "double": _number,
    "timestamp": _moment,
    "timestamp_ntz": _moment,
}
