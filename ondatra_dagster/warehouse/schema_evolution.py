"""The differences between a query's columns and its table's: which are allowed, and which ALTERs they need.

A table keeps its rows, rowids and change feed. create_and_write_target_table.py decides when a table is altered.
"""

import contextlib
import dataclasses
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import starmap

from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession
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

from ondatra_dagster.deltalog.log_reader import read_table_state
from ondatra_dagster.errors import WarehouseError
from ondatra_dagster.project.sql.input_references import quote_name
from ondatra_dagster.project.sql.output_and_system_columns import is_hidden_column, is_reserved_name

UNSUPPORTED_TYPES = {  # by the first word of the type's name, with the remedy
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
    """The changes that a table needs before it can store the rows of a query."""

    added_columns: tuple[StructField, ...] = ()
    dropped_columns: tuple[str, ...] = ()
    widened_columns: tuple[StructField, ...] = ()
    retyped_columns: tuple[StructField, ...] = ()  # columns whose values have to be cast

    def __bool__(self) -> bool:
        return bool(self.added_columns or self.dropped_columns or self.widened_columns or self.retyped_columns)

    @property
    def changes_hashes(self) -> bool:
        """Return whether the hash of an unchanged row differs after these changes."""
        return bool(self.dropped_columns or self.widened_columns or self.retyped_columns)


def visible_fields(schema: StructType) -> list[StructField]:
    """Return the model's own columns in the schema, without the hidden ones."""
    return [field for field in schema.fields if not is_hidden_column(field.name)]


def check_columns(schema: StructType, *, own: Collection[str] = ()) -> None:
    """Raise WarehouseError with every column that a table can't have. `own` are the columns that the kind adds."""
    problems = [problem for field in schema.fields for problem in _column_problems(field)]
    problems += [
        f"column {field.name!r} is the kind's own: rename it with AS"
        for field in schema.fields
        if field.name.casefold() in own
    ]
    names = [field.name.casefold() for field in schema.fields]
    problems += [
        f"column {name!r} is a duplicate; name each with AS"
        for name in sorted({name for name in names if names.count(name) > 1})
    ]
    if not names:
        problems.append("the query has no columns; select at least one")
    if problems:
        raise WarehouseError("; ".join(problems))


def plan_column_changes(
    table: Sequence[StructField], query: Sequence[StructField], *, converts: bool = False
) -> ColumnChanges:
    """Return the changes that the table needs for the query's rows.

    Raises WarehouseError for a column that would have to be cast, unless `converts` is set.
    """
    table_fields = {field.name.casefold(): field for field in table}
    query_fields = {field.name.casefold(): field for field in query}
    widened_fields = []
    retyped_fields = []
    for name in table_fields.keys() & query_fields.keys():
        old, new = table_fields[name].dataType, query_fields[name].dataType
        if is_assignable(new, target=old):
            continue
        if _may_widen(old, new):
            widened_fields.append(StructField(table_fields[name].name, new))
        else:
            retyped_fields.append((table_fields[name], StructField(table_fields[name].name, new)))
    if retyped_fields and not converts:
        raise WarehouseError("; ".join(sorted(starmap(_type_change_message, retyped_fields))))
    return ColumnChanges(
        added_columns=tuple(field for field in query if field.name.casefold() not in table_fields),
        dropped_columns=tuple(field.name for field in table if field.name.casefold() not in query_fields),
        widened_columns=tuple(sorted(widened_fields, key=lambda field: field.name)),
        retyped_columns=tuple(sorted((new for _, new in retyped_fields), key=lambda field: field.name)),
    )


def _type_change_message(old: StructField, new: StructField) -> str:
    return (
        f"column {old.name!r} was {ddl_type(old.dataType)} and would be {ddl_type(new.dataType)}:"
        f" CAST it to {ddl_type(old.dataType)}, give it another name with AS, or run with --full-refresh"
    )


def is_assignable(new: DataType, *, target: DataType) -> bool:
    """Return whether every value of type `new` fits into type `target` without a change."""
    return ddl_type(new) == ddl_type(target) or _may_widen(new, target)


def ddl_type(data_type: DataType) -> str:
    """Return the type in SQL, with quoted field names. The text is never shortened."""
    if isinstance(data_type, StructType):
        fields = (f"{quote_name(field.name)}: {ddl_type(field.dataType)}" for field in data_type.fields)
        return f"struct<{', '.join(fields)}>"
    if isinstance(data_type, ArrayType):
        return f"array<{ddl_type(data_type.elementType)}>"
    if isinstance(data_type, MapType):
        return f"map<{ddl_type(data_type.keyType)}, {ddl_type(data_type.valueType)}>"
    if isinstance(data_type, CharType | VarcharType):
        return "string"
    return data_type.simpleString()


def _may_widen(old: DataType, new: DataType) -> bool:
    """Return whether type `new` holds all values of type `old`, by the rules of Delta's type widening."""
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
    if "`" in field.name:  # Delta's MERGE splits the name at a backtick
        yield f"column {field.name!r} has a backtick in its name, which a table can't have: rename it with AS"
    for plain_type in _plain_types(field.dataType):
        type_name = plain_type.simpleString()
        prefix = re.split(r"[ (]", type_name)[0]
        if prefix in UNSUPPORTED_TYPES:
            yield f"column {field.name!r} is of type {type_name}, which a table can't have; {UNSUPPORTED_TYPES[prefix]}"


def _plain_types(data_type: DataType) -> Iterator[DataType]:
    """Yield the plain types that a type contains, at any depth."""
    if isinstance(data_type, ArrayType):
        yield from _plain_types(data_type.elementType)
    elif isinstance(data_type, MapType):
        yield from _plain_types(data_type.keyType)
        yield from _plain_types(data_type.valueType)
    elif isinstance(data_type, StructType):
        for field in data_type.fields:
            yield from _plain_types(field.dataType)
    else:
        yield data_type


# a property of the table: its rows' stored hashes were computed from other columns
STALE_HASHES = "ondatra.stale_hashes"
CAST_PREFIX = "__ondatra_cast_"  # the prefix of a temporary column with the cast values of the old column


class TableAlterer:
    """The ALTER statements of a table. Each is one commit.

    finish_interrupted_casts() completes those of a killed run.
    """

    def __init__(self, session: SparkSession, path: str) -> None:
        self._session = session
        self._path = path
        self._table = f"delta.{quote_name(path)}"

    def finish_interrupted_casts(self) -> bool:
        """Finish or undo the casts that a killed run has begun. Return whether there were such casts."""
        names = {name.casefold(): name for name in self._column_names()}
        cast_columns = [name for name in names.values() if name.startswith(CAST_PREFIX)]
        for name in cast_columns:
            final_name = name.removeprefix(CAST_PREFIX)
            if final_name.casefold() in names:  # the old column still exists, with all its values
                self._run_alter(f"drop columns ({quote_name(name)})")
            else:
                self._run_alter(f"rename column {quote_name(name)} to {quote_name(final_name)}")
        return bool(cast_columns)

    def prepare_conversion(self, own_columns: Mapping[str, str], first_values: Mapping[str, str]) -> None:
        """Prepare the table for another kind or key.

        If the run is killed here, the table's kind and key haven't changed.

        The hashes that the rows store for the old kind are marked as stale, because the new kind can't use them.
        """
        self.set_properties({STALE_HASHES: "true"})
        existing_names = {name.casefold() for name in self._column_names()}
        missing_types = {name: type_ for name, type_ in own_columns.items() if name.casefold() not in existing_names}
        if missing_types:
            column_list = ", ".join(f"{quote_name(name)} {type_}" for name, type_ in missing_types.items())
            self._run_alter(f"add columns ({column_list})")
        if first_values:
            state = read_table_state(self._path)
            version = (state.version_offset + state.log_version if state else 0) + 1
            values = ", ".join(f"{quote_name(n)} = {v.format(version=version)}" for n, v in first_values.items())
            is_unset = " and ".join(f"{quote_name(name)} is null" for name in first_values)
            self._session.sql(f"update {self._table} set {values} where {is_unset}").collect()

    def set_properties(self, properties: Mapping[str, str]) -> None:
        """Set these properties of the table. Its other properties don't change."""
        self._run_alter(f"set tblproperties ({property_literals(properties)})")

    def mark_hashes_valid(self) -> None:
        """Mark the rows' hashes as valid, now that all of them were computed from the table's current columns."""
        self._run_alter(f"unset tblproperties if exists ({text_literal(STALE_HASHES)})")

    def alter_columns(self, change: ColumnChanges) -> None:
        """Apply the changes to the table's columns. The table keeps its rows."""
        if change.changes_hashes:
            self.set_properties({STALE_HASHES: "true", "delta.enableTypeWidening": "true"})
        if change.added_columns:
            column_list = ", ".join(
                f"{quote_name(field.name)} {ddl_type(field.dataType)}" for field in change.added_columns
            )
            self._run_alter(f"add columns ({column_list})")
        for field in change.widened_columns:
            self._run_alter(f"alter column {quote_name(field.name)} type {ddl_type(field.dataType)}")
        if change.dropped_columns:
            self._run_alter(f"drop columns ({', '.join(map(quote_name, change.dropped_columns))})")
        for field in change.retyped_columns:
            self._cast_column(field)

    def _cast_column(self, field: StructField) -> None:
        """Change a column's type. Values that can't be cast become null."""
        old_name, new_name, type_ = (
            quote_name(field.name),
            quote_name(CAST_PREFIX + field.name),
            ddl_type(field.dataType),
        )
        self._run_alter(f"add columns ({new_name} {type_})")
        if self._is_castable(old_name, type_):
            self._session.sql(f"update {self._table} set {new_name} = try_cast({old_name} as {type_})").collect()
        self._run_alter(f"drop columns ({old_name})")
        self._run_alter(f"rename column {new_name} to {old_name}")

    def _is_castable(self, column: str, data_type: str) -> bool:
        with contextlib.suppress(AnalysisException):
            self._session.sql(f"select try_cast({column} as {data_type}) from {self._table}")
            return True
        return False

    def _column_names(self) -> list[str]:
        return self._session.sql(f"select * from {self._table} limit 0").columns

    def _run_alter(self, action: str) -> None:
        self._session.sql(f"alter table {self._table} {action}").collect()


def property_literals(properties: Mapping[str, str]) -> str:
    """Return the properties as they are written in SQL: 'name' = 'value', 'name' = 'value'."""
    return ", ".join(f"{text_literal(name)} = {text_literal(value)}" for name, value in properties.items())


def text_literal(value: str) -> str:
    """Return a text as an SQL literal."""
    return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"
