"""The values that the warehouse gives to delivery. This module doesn't know Spark, SQLite or HTTP.

A *payload* is a row as the JSON text of an array: its values in the order of its *layout*. A row is encoded once, when
the warehouse reads it. After that, batches are made by joining these texts.
"""

import dataclasses
import enum
import math
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import NamedTuple, TypeAlias

import orjson

_INFINITY_TEXTS = {math.inf: "Infinity", -math.inf: "-Infinity"}

Json: TypeAlias = bool | int | float | str | list["Json"] | dict[str, "Json"] | None


class ChangeType(enum.StrEnum):
    """The change types of Delta's change feed."""

    INSERT = "insert"
    UPDATE_PREIMAGE = "update_preimage"
    UPDATE_POSTIMAGE = "update_postimage"
    DELETE = "delete"


class Column(NamedTuple):
    name: str
    type: str  # in Spark's spelling: "decimal(10,2)", "array<string>"


@dataclasses.dataclass(frozen=True, slots=True)
class Layout:
    """The columns of a payload, in the payload's order: the model's own columns, without the hidden ones."""

    columns: tuple[Column, ...]
    # computed once, because every row needs the names
    names: tuple[str, ...] = dataclasses.field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "names", tuple(column.name for column in self.columns))

    def parse_row(self, payload: str) -> dict[str, Json]:
        """Return the payload's row as a dict, in the order of the columns."""
        return dict(zip(self.names, orjson.loads(payload), strict=True))


class RowChange(NamedTuple):
    """A row of a change feed."""

    # the delivery key as format_key() writes it: for merge of the row, for tracked of the group, otherwise the rowid
    key: str
    rowid: int
    change_type: ChangeType
    version: int
    payload: str
    belongs_to: str = ""  # only if the delivery key is the rowid: the value of the row's key (scd2) or of its partition


class FeedPage(NamedTuple):
    """A page of a change feed, small enough to hold in memory.

    In a segment, all changes of one delivery key follow each other, the oldest version first. They may continue on the
    next page.
    """

    layout: Layout
    changes: Sequence[RowChange]


class FeedSegment(NamedTuple):
    """The versions of a feed after `after_version`, up to and including `last_version`. All have the same layout."""

    after_version: int
    last_version: int
    pages: Iterable[FeedPage]


class InvalidRow(NamedTuple):
    """A row that was found invalid before it could be written."""

    key: str
    reason: str  # NULL or DUPLICATE
    version: int
    rowid: int
    payload: str  # a JSON object, because an invalid row keeps its own column names


def format_key(values: Sequence[Json]) -> str:
    """Return the text that names a row to users and in the queue: the only value, or a JSON array of several values.

    Two different keys of the same columns never have the same text. So a single null is [null]. A single text that
    begins with [ is also written as an array. So is a text with a NUL, where SQLite would cut the text.
    """
    if len(values) == 1:
        value = values[0]
        if isinstance(value, str):
            return orjson.dumps([value]).decode() if value[:1] == "[" or "\0" in value else value
        if isinstance(value, float):
            value = _normalize_float(value)
            return value if isinstance(value, str) else orjson.dumps(value).decode()
        return "[null]" if value is None else orjson.dumps(value).decode()
    json_values = [_normalize_float(value) if isinstance(value, float) else value for value in values]
    return orjson.dumps(json_values).decode()


def _normalize_float(value: float) -> float | str:
    """Return the value, or a word for a value that JSON doesn't have, such as NaN. Return 0.0 for -0.0."""
    return "NaN" if math.isnan(value) else _INFINITY_TEXTS.get(value, value + 0.0)


_INTEGER_TYPES = frozenset({"tinyint", "smallint", "int", "bigint", "byte", "short", "integer", "long"})


def normalize_key_type(column_type: str) -> str:
    """Return one name for all types that write a value in the same way.

    If the name of a key's type stays the same, its identifiers stay the same too.
    """
    name = column_type.casefold().replace(" ", "")
    if name in _INTEGER_TYPES:
        return "integer"
    return f"decimal, scale {name.rstrip(')').partition(',')[2] or 0}" if name.startswith("decimal") else name


def comparable_content(row: Mapping[str, Json]) -> Hashable:
    """Return the content of a row in a form that can be compared across layouts. A missing column counts as null."""
    return frozenset((name, _to_hashable(value)) for name, value in row.items() if value is not None)


def _to_hashable(value: Json) -> Hashable:
    if isinstance(value, dict):
        return frozenset((name, _to_hashable(item)) for name, item in value.items())
    return tuple(map(_to_hashable, value)) if isinstance(value, list) else value
