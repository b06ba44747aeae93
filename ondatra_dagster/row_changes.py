"""The values that cross from the warehouse to delivery, and nothing that knows Spark, SQLite or HTTP.

A *payload* is a row as the JSON text of an array: its values in the order of its *layout*. So a row is
encoded once, on its way out of the warehouse, and from there on batches are made by joining texts.
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
    """What Delta's change feed says of a row."""

    INSERT = "insert"
    UPDATE_PREIMAGE = "update_preimage"
    UPDATE_POSTIMAGE = "update_postimage"
    DELETE = "delete"


class Column(NamedTuple):
    name: str
    type: str  # as Spark spells it: "decimal(10,2)", "array<string>"


@dataclasses.dataclass(frozen=True, slots=True)
class Layout:
    """The columns of a payload, in its order: the model's own, none of the hidden ones."""

    columns: tuple[Column, ...]
    names: tuple[str, ...] = dataclasses.field(init=False, repr=False, compare=False)  # asked for by each row

    def __post_init__(self) -> None:
        object.__setattr__(self, "names", tuple(column.name for column in self.columns))

    def parse_row(self, payload: str) -> dict[str, Json]:
        """The payload as a dict, in the order of the columns."""
        return dict(zip(self.names, orjson.loads(payload), strict=True))


class RowChange(NamedTuple):
    """One line of a change feed."""

    key: str  # the delivery key, see identifier(): merge the row's key, tracked the group's, else the rowid
    rowid: int
    change_type: ChangeType
    version: int
    payload: str
    belongs_to: str = ""  # where the delivery key is the rowid: the key's value (scd2), the partition's


class FeedPage(NamedTuple):
    """A part of a change feed small enough to hold in memory.

    All changes of one key stand next to each other over the pages of one segment, oldest version first.
    """

    layout: Layout
    changes: Sequence[RowChange]


class FeedSegment(NamedTuple):
    """Versions after `after` up to `upto` of a feed that can be read with one layout."""

    after_version: int
    last_version: int
    pages: Iterable[FeedPage]


class InvalidRow(NamedTuple):
    """A row that was set aside before the write."""

    key: str
    reason: str  # NULL or DUPLICATE
    version: int
    rowid: int
    payload: str  # a JSON object: an invalid row keeps its own column names


def format_key(values: Sequence[Json]) -> str:
    """The text that names a row to people and to the queue: the one value, or a JSON array of several.

    No two keys have the same: so a null alone is [null], and a text that might pass for an array, or that
    SQLite would cut at a NUL, stands in one.
    """
    if len(values) == 1:
        value = values[0]
        if isinstance(value, str):
            return orjson.dumps([value]).decode() if value[:1] == "[" or "\0" in value else value
        if isinstance(value, float):
            value = _normalize_float(value)
            return value if isinstance(value, str) else orjson.dumps(value).decode()
        return "[null]" if value is None else orjson.dumps(value).decode()
    plain = [_normalize_float(value) if isinstance(value, float) else value for value in values]
    return orjson.dumps(plain).decode()


def _normalize_float(value: float) -> float | str:
    """The value, or a word where JSON has none; both zeros are one key."""
    return "NaN" if math.isnan(value) else _INFINITY_TEXTS.get(value, value + 0.0)


_INTEGER_TYPES = frozenset({"tinyint", "smallint", "int", "bigint", "byte", "short", "integer", "long"})


def normalize_key_type(column_type: str) -> str:
    """What types share that write a value alike: where it stays the same, identifiers do."""
    name = column_type.casefold().replace(" ", "")
    if name in _INTEGER_TYPES:
        return "integer"
    return f"decimal, scale {name.rstrip(')').partition(',')[2] or 0}" if name.startswith("decimal") else name


def comparable_content(row: Mapping[str, Json]) -> Hashable:
    """What rows of different layouts share that say the same; a missing column counts as null."""
    return frozenset((name, _to_hashable(value)) for name, value in row.items() if value is not None)


def _to_hashable(value: Json) -> Hashable:
    if isinstance(value, dict):
        return frozenset((name, _to_hashable(each)) for name, each in value.items())
    return tuple(map(_to_hashable, value)) if isinstance(value, list) else value
