"""The columns that a query gives beside those that its table has: what may be, and what has to be changed.

Only types and names are looked at here. How a table is altered is in target_table.
"""

import dataclasses
import re
from collections.abc import Collection, Iterator, Sequence
from itertools import starmap

from pyspark.sql.types import (
    ArrayType,
    ByteType,
    CharType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StructField,
    StructType,
    TimestampNTZType,
    VarcharType,
)

from ondatra_dagster.deltalog.system_columns import is_hidden_column
from ondatra_dagster.errors import WarehouseError
from ondatra_dagster.project.sql.input_references import quote_name
from ondatra_dagster.project.sql.output_columns import is_reserved_name

UNSUPPORTED_TYPES = {  # by the first word of the type's name
    "void": "give it a type: CAST(NULL AS STRING)",
    "interval": "CAST it to STRING",
    "variant": "turn it into text with to_json(…), or into columns",
    "geography": "turn it into text or binary",
    "geometry": "turn it into text or binary",
    "time": "CAST it to STRING",
}
INTEGERS = (ByteType, ShortType, IntegerType, LongType)
INTEGER_DIGITS = {ByteType: 3, ShortType: 5, IntegerType: 10, LongType: 20}


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ColumnChanges:
    """What a table needs before it can take the rows of a query."""

    added_columns: tuple[StructField, ...] = ()
    dropped_columns: tuple[str, ...] = ()
    widened_columns: tuple[StructField, ...] = ()
    retyped_columns: tuple[StructField, ...] = ()  # whose values have to be cast

    def __bool__(self) -> bool:
        return bool(self.added_columns or self.dropped_columns or self.widened_columns or self.retyped_columns)

    @property
    def changes_hashes(self) -> bool:
        """Whether a row that stays the same has another hash afterwards."""
        return bool(self.dropped_columns or self.widened_columns or self.retyped_columns)


def visible_fields(schema: StructType) -> list[StructField]:
    """The model's own columns."""
    return [field for field in schema.fields if not is_hidden_column(field.name)]


def check_columns(schema: StructType, *, own: Collection[str] = ()) -> None:
    """Raise WarehouseError with every column that a table can't have; `own` are those of its kind."""
    problems = [problem for field in schema.fields for problem in _column_problems(field)]
    problems += [
        f"column {field.name!r} is the kind's own: rename it with AS"
        for field in schema.fields
        if field.name.casefold() in own
    ]
    names = [field.name.casefold() for field in schema.fields]
    problems += [
        f"column {name!r} comes more than once; name each with AS"
        for name in sorted({name for name in names if names.count(name) > 1})
    ]
    if not names:
        problems.append("the query has no columns; select at least one")
    if problems:
        raise WarehouseError("; ".join(problems))


def plan_column_changes(
    table: Sequence[StructField], query: Sequence[StructField], *, converts: bool = False
) -> ColumnChanges:
    """What has to be changed for the table to take the query's rows.

    Raises WarehouseError for a column that would have to be cast, unless it `converts`.
    """
    ours = {field.name.casefold(): field for field in table}
    theirs = {field.name.casefold(): field for field in query}
    widened = []
    retyped = []
    for name in ours.keys() & theirs.keys():
        old, new = ours[name].dataType, theirs[name].dataType
        if is_assignable(new, into=old):
            continue
        if _may_widen(old, new):
            widened.append(StructField(ours[name].name, new))
        else:
            retyped.append((ours[name], StructField(ours[name].name, new)))
    if retyped and not converts:
        raise WarehouseError("; ".join(sorted(starmap(_type_change_message, retyped))))
    return ColumnChanges(
        added_columns=tuple(field for field in query if field.name.casefold() not in ours),
        dropped_columns=tuple(field.name for field in table if field.name.casefold() not in theirs),
        widened_columns=tuple(sorted(widened, key=lambda field: field.name)),
        retyped_columns=tuple(sorted((new for _, new in retyped), key=lambda field: field.name)),
    )


def _type_change_message(old: StructField, new: StructField) -> str:
    return (
        f"column {old.name!r} was {ddl_type(old.dataType)} and would be {ddl_type(new.dataType)}:"
        f" CAST it to {ddl_type(old.dataType)}, give it another name with AS, or run with --full-refresh"
    )


def is_assignable(new: DataType, *, into: DataType) -> bool:
    """Whether every value of a type is one of another just as it stands."""
    return ddl_type(new) == ddl_type(into) or _may_widen(new, into)


def ddl_type(of: DataType) -> str:
    """The type as a statement names it: names of fields are quoted, and nothing is cut short."""
    if isinstance(of, StructType):
        return f"struct<{', '.join(f'{quote_name(field.name)}: {ddl_type(field.dataType)}' for field in of.fields)}>"
    if isinstance(of, ArrayType):
        return f"array<{ddl_type(of.elementType)}>"
    if isinstance(of, MapType):
        return f"map<{ddl_type(of.keyType)}, {ddl_type(of.valueType)}>"
    if isinstance(of, CharType | VarcharType):
        return "string"
    return of.simpleString()


def _may_widen(old: DataType, new: DataType) -> bool:
    """Whether a wider type holds all values of the narrower, by the rules of Delta's type widening."""
    if isinstance(old, INTEGERS):
        if isinstance(new, INTEGERS):
            return INTEGERS.index(type(old)) < INTEGERS.index(type(new))
        if isinstance(new, DecimalType):
            return new.precision - new.scale >= INTEGER_DIGITS[type(old)]
        return isinstance(new, DoubleType) and not isinstance(old, LongType)
    if isinstance(old, DecimalType) and isinstance(new, DecimalType):
        return new.scale >= old.scale and new.precision - new.scale >= old.precision - old.scale
    if isinstance(old, FloatType):
        return isinstance(new, DoubleType)
    return isinstance(old, DateType) and isinstance(new, TimestampNTZType)


def _column_problems(field: StructField) -> Iterator[str]:
    if is_reserved_name(field.name):
        yield f"column {field.name!r} can't be a model's: rename it with AS"
    if "`" in field.name:  # Delta's MERGE takes its name apart there
        yield f"column {field.name!r} has a backtick in its name, which a table can't have: rename it with AS"
    for part in _plain_types(field.dataType):
        written = part.simpleString()
        word = re.split(r"[ (]", written)[0]
        if word in UNSUPPORTED_TYPES:
            yield f"column {field.name!r} is of type {written}, which a table can't have; {UNSUPPORTED_TYPES[word]}"


def _plain_types(of: DataType) -> Iterator[DataType]:
    """The plain types in a type."""
    if isinstance(of, ArrayType):
        yield from _plain_types(of.elementType)
    elif isinstance(of, MapType):
        yield from _plain_types(of.keyType)
        yield from _plain_types(of.valueType)
    elif isinstance(of, StructType):
        for field in of.fields:
            yield from _plain_types(field.dataType)
    else:
        yield of
