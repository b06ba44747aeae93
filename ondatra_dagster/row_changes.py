"""The values that the warehouse gives to delivery. This module knows no Spark, SQLite or HTTP.

A *payload* is a row as the JSON text of an array: its values in the order of its *layout*. A row is encoded
once, when it leaves the warehouse. After that, batches are made by joining these texts.
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
    type: str  # as Spark spells it: "decimal(10,2)", "array<string>"


@dataclasses.dataclass(frozen=True, slots=True)
class Layout:
    """The columns of a payload in its order: the model's own columns, without the hidden ones."""

    columns: tuple[Column, ...]
    names: tuple[str, ...] = dataclasses.field(init=False, repr=False, compare=False)  # stored, as each row needs them

    def __post_init__(self) -> None:
        object.__setattr__(self, "names", tuple(column.name for column in self.columns))

    def parse_row(self, payload: str) -> dict[str, Json]:
        """Return the payload as a dict, in the order of the columns."""
        return dict(zip(self.names, orjson.loads(payload), strict=True))


class RowChange(NamedTuple):
    """A row of a change feed."""

    key: str  # the delivery key as format_key() writes it: merge the row's, tracked the group's, else the rowid
    rowid: int
    change_type: ChangeType
    version: int
    payload: str
    belongs_to: str = ""  # if the delivery key is the rowid: the value of the key (scd2) or of the partition


class FeedPage(NamedTuple):
    """A page of a change feed, small enough to hold in memory.

    All changes of one key follow each other over the pages of one segment, the oldest version first.
    """

    layout: Layout
    changes: Sequence[RowChange]


class FeedSegment(NamedTuple):
    """The versions of a feed after `after_version` up to `last_version`, which one layout can read."""

    after_version: int
    last_version: int
    pages: Iterable[FeedPage]


class InvalidRow(NamedTuple):
    """A row that was found invalid before the write."""

    key: str
    reason: str  # NULL or DUPLICATE
    version: int
    rowid: int
    payload: str  # a JSON object: an invalid row keeps its own column names


def format_key(values: Sequence[Json]) -> str:
    """Return the text that names a row to users and in the queue: the one value, or a JSON array of several.

    Two different keys never have the same text. So a single null is [null]. A single text that begins with [ is
    written as an array too. So is a text with a NUL, where SQLite would cut it.
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
    """Return the value, or a word for a value that JSON doesn't have. Both zeros give the same key."""
    return "NaN" if math.isnan(value) else _INFINITY_TEXTS.get(value, value + 0.0)


_INTEGER_TYPES = frozenset({"tinyint", "smallint", "int", "bigint", "byte", "short", "integer", "long"})


def normalize_key_type(column_type: str) -> str:
    """Return the same name for types that write a value the same way. If it stays the same, so do identifiers."""
    name = column_type.casefold().replace(" ", "")
    if name in _INTEGER_TYPES:
        return "integer"
    return f"decimal, scale {name.rstrip(')').partition(',')[2] or 0}" if name.startswith("decimal") else name


def comparable_content(row: Mapping[str, Json]) -> Hashable:
    """Return the content of a row, comparable across layouts. A missing column counts as null."""
    return frozenset((name, _to_hashable(value)) for name, value in row.items() if value is not None)


def _to_hashable(value: Json) -> Hashable:
    if isinstance(value, dict):
        return frozenset((name, _to_hashable(item)) for name, item in value.items())
    return tuple(map(_to_hashable, value)) if isinstance(value, list) else value
