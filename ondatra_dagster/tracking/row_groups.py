"""Row groups of record files in which a search finds something; of the others little or nothing is read."""

import functools
import math
from collections.abc import Iterator, Sequence
from typing import Any, BinaryIO, NamedTuple, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ondatra_dagster.tracking.found import FOUND, OF_THE_QUEUE, Search, Stage
from ondatra_dagster.tracking.parts import Part
from ondatra_dagster.tracking.record import PAYLOAD_COLUMN, REPETITIVE, SCHEMA

_REPETITIVE_TEXTS = [field.name for field in SCHEMA if field.name in REPETITIVE and field.type == pa.string()]

FEW = 100_000  # bytes of a file's records that are read as soon as they are found

Conditions: TypeAlias = Sequence[tuple[str, "_StartsWith | _Is | _IsNothing"]]


class FoundGroup(NamedTuple):
    """A row group with records that a search is after."""

    number: int
    conditions: Conditions  # which of its rows these are
    with_payload: bool
    metadata: Any  # of the file, so that it isn't read twice
    part: Part | None  # the records, where they are few


def found_groups(file: BinaryIO, search: Search) -> list[FoundGroup]:
    """The file's row groups that have what a search is after, the newest first.

    Where so many are in them as are wanted of all files, older ones aren't looked at.
    """
    parquet = _opened(file)
    left = FEW
    missing = math.inf if search.limit is None else search.offset + search.limit
    found: list[FoundGroup] = []
    for number in reversed(range(parquet.num_row_groups)):
        if missing <= 0:
            break
        conditions = _conditions(parquet, number, search)
        count = 0 if conditions is None else _count(parquet, number, conditions)
        if conditions is None or not count:
            continue
        missing -= count
        group = FoundGroup(number, conditions, search.with_payload, parquet.metadata, None)
        told = parquet.metadata.row_group(number)
        size = told.total_byte_size * count // told.num_rows
        if size <= left:
            left -= size
            group = group._replace(part=_read(parquet, group))
        found.append(group)
    return found


def count_found(file: BinaryIO, search: Search) -> int:
    """How many records of the file a search is after; its limit is none."""
    parquet = _opened(file)
    asked = [_conditions(parquet, number, search) for number in range(parquet.num_row_groups)]
    return sum(
        _count(parquet, number, conditions)
        for number, conditions in enumerate(asked)
        if conditions is not None
    )


def read_group(file: BinaryIO, group: FoundGroup) -> Part:
    """The records that were found in it, the newest first."""
    return _read(_opened(file, group.metadata), group)


def _opened(file: BinaryIO, metadata: Any = None) -> Any:
    # what repeats is spelled out for the rows that are wanted, and not for all
    return pq.ParquetFile(file, metadata=metadata, pre_buffer=True, read_dictionary=_REPETITIVE_TEXTS)


def _read(parquet: Any, group: FoundGroup) -> Part:
    columns = [name for name in SCHEMA.names if group.with_payload or name != PAYLOAD_COLUMN]
    table = parquet.read_row_group(group.number, columns=columns, use_threads=False)
    places = pa.array(range(table.num_rows - 1, -1, -1))
    if group.conditions:
        places = pc.indices_nonzero(_holds(table, group.conditions))[::-1]
    records = _whole(table.take(places)).cast(SCHEMA)
    beside = [pa.nulls(records.num_rows, field.type) for field in OF_THE_QUEUE]
    return pa.Table.from_arrays([*records.columns, *beside], schema=FOUND)


def _whole(table: Any) -> Any:
    """The table with a payload, where it was read without."""
    if PAYLOAD_COLUMN in table.column_names:
        return table
    empty = pa.repeat(pa.scalar(""), table.num_rows)
    return table.add_column(SCHEMA.names.index(PAYLOAD_COLUMN), PAYLOAD_COLUMN, empty)


def _count(parquet: Any, number: int, conditions: Conditions) -> int:
    """How many rows of the group fit; only the columns that tell are read."""
    if not conditions:
        return int(parquet.metadata.row_group(number).num_rows)
    columns = [column for column, _ in conditions]
    table = parquet.read_row_group(number, columns=columns, use_threads=False)
    return pc.sum(_holds(table, conditions)).as_py() or 0


def _holds(table: Any, conditions: Conditions) -> Any:
    """Which rows fit."""
    return functools.reduce(pc.and_, [condition.holds(table[column]) for column, condition in conditions])


def _conditions(parquet: Any, number: int, search: Search) -> Conditions | None:
    """What each row of the group has to be asked; None when none of them can fit."""
    asked = []
    for column, condition in _wanted(search):
        bounds = _bounds(parquet, number, column)
        if bounds is not None and not condition.may_hold(*bounds):
            return None
        if bounds is None or not condition.always_holds(*bounds):
            asked.append((column, condition))
    return asked


def _wanted(search: Search) -> Iterator[tuple[str, "_StartsWith | _Is | _IsNothing"]]:
    if search.prefix:
        yield "identifier", _StartsWith(search.prefix)
    if search.stage in (Stage.SUCCEEDED, Stage.REJECTED):  # that a row is invalid its file's name says
        yield "status", _Is(search.stage)
    if search.status is not None:
        yield "status", _Is(search.status)
    if search.change_type is not None:
        yield "__ondatra_change_type", _Is(search.change_type)
    if search.message is not None:
        yield "status_message", _Is(search.message) if search.message else _IsNothing()


class _StartsWith(NamedTuple):
    prefix: str

    def may_hold(self, least: str, most: str) -> bool:
        return least[: len(self.prefix)] <= self.prefix <= most

    def always_holds(self, least: str, most: str) -> bool:
        return False

    def holds(self, column: Any) -> Any:
        return pc.starts_with(column, self.prefix)


class _Is(NamedTuple):
    value: str

    def may_hold(self, least: str, most: str) -> bool:
        return least <= self.value <= most

    def always_holds(self, least: str, most: str) -> bool:
        return least == self.value == most

    def holds(self, column: Any) -> Any:
        return pc.equal(column, self.value)


class _IsNothing(NamedTuple):
    """No text, or an empty one."""

    def may_hold(self, least: str, most: str) -> bool:
        return not least

    def always_holds(self, least: str, most: str) -> bool:
        return not most

    def holds(self, column: Any) -> Any:
        return pc.or_kleene(pc.is_null(column), pc.equal(column, ""))


def _bounds(parquet: Any, number: int, column: str) -> tuple[str, str] | None:
    """The least and the greatest value of a text column in a row group, where the file tells them."""
    place = parquet.schema_arrow.get_field_index(column)
    told = parquet.metadata.row_group(number).column(place).statistics
    return (told.min, told.max) if told and told.has_min_max and not told.null_count else None
