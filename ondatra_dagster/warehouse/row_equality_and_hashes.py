"""The comparison of two rows, for every type that a table can have.

Spark's own `<=>` can't compare maps. Spark's hashes can't read maps, skip nulls inside arrays and structs, and treat 1
like true. So a nested value is compared by a canonical form, in which each part says whether it is null. A hash also
includes the column of each value. NaN equals NaN and -0.0 equals 0.0, as in Spark.
"""

import zlib
from collections.abc import Sequence
from functools import reduce
from typing import NamedTuple

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 - as all of Spark's documentation calls it
from pyspark.sql.types import ArrayType, DataType, MapType, StructField, StructType

from ondatra_dagster.project.sql.input_references import quote_name

ROW_COUNT = "__ondatra_rows"
# two hashes of 64 bits each, because with only one, rows of large tables would have equal hashes by chance
SALTS = (0, 1)
HASH_COLUMNS = ("__ondatra_hash_0", "__ondatra_hash_1")
PART_BITS = 22  # hashes are summed in parts of so many bits: the sums fit into 64 bits for trillions of rows
PARTS = 3


def column_of(name: str, table: str | None = None) -> Column:
    """Return the column with this name, which may contain any characters."""
    return F.col(f"{table}.{quote_name(name)}" if table else quote_name(name))


def same_rows(fields: Sequence[StructField], left: str, right: str) -> Column:
    """Return whether the rows of two aliases are equal in all fields. A null equals a null."""
    is_same = F.lit(True)
    for field in fields:
        left_value, right_value = (
            canonical_value(column_of(field.name, alias), field.dataType) for alias in (left, right)
        )
        is_same &= left_value.eqNullSafe(right_value)
    return is_same


def same_keys(names: Sequence[str], left: str, right: str) -> Column:
    """Return whether the rows of two aliases have the same key. A null equals a null."""
    return reduce(Column.__and__, [column_of(name, left).eqNullSafe(column_of(name, right)) for name in names])


def canonical_value(value: Column, data_type: DataType) -> Column:
    """Return the value in a form that Spark compares and hashes correctly. A value of a plain type isn't changed."""
    if isinstance(data_type, StructType):
        member_values = [
            member_value
            for field in data_type.fields
            for member_value in _with_presence(value.getField(field.name), field.dataType)
        ]
        members = [member_value.alias(f"p{index}") for index, member_value in enumerate(member_values)]
        return F.when(value.isNotNull(), F.struct(F.lit(len(member_values)).alias("n"), *members))
    if isinstance(data_type, ArrayType):
        return _canonical_array(value, data_type.elementType)
    if isinstance(data_type, MapType):
        entries = F.transform(
            F.map_entries(value),
            lambda entry: F.struct(
                canonical_value(entry["key"], data_type.keyType).alias("k"),
                *_named_presence(entry["value"], data_type.valueType),
            ),
        )
        return F.when(value.isNotNull(), F.struct(F.size(value).alias("n"), F.array_sort(entries).alias("e")))
    return value


def row_hashes(fields: Sequence[StructField]) -> list[Column]:
    """Return two hashes of a row. A null doesn't change them, so a new column of nulls doesn't change any hash.

    The hashes identify the column of each value by a number, because hashing the column's name for every row is slower.
    """
    hashed_values: list[Column] = []
    for field in fields:
        value = column_of(field.name)
        hashed_values.append(F.when(value.isNotNull(), F.lit(zlib.crc32(field.name.casefold().encode()))))
        hashed_values.append(canonical_value(value, field.dataType))
    return [F.xxhash64(F.lit(salt), *hashed_values) for salt in SALTS]


def content_sums(frame: DataFrame, fields: Sequence[StructField]) -> tuple[DataFrame, list[Column]]:
    """Return the frame with two hashes per row, and aggregates that sum up the hashes in any order."""
    sums = [
        F.sum(number).alias(f"{name}_{index}") for name in HASH_COLUMNS for index, number in enumerate(_sum_parts(name))
    ]
    return _with_hashes(frame, fields), [F.count(F.lit(1)).alias(ROW_COUNT), *sums]


def _sum_parts(name: str) -> list[Column]:
    """Return a 64-bit number in parts, to be summed separately. The sum as one decimal takes five times as long."""
    numbers = [F.shiftright(name, index * PART_BITS) for index in range(PARTS)]
    return [number.bitwiseAND((1 << PART_BITS) - 1) for number in numbers[:-1]] + numbers[-1:]


def content_hash() -> Column:
    """Return the digest of a group's content as one short text, from the aggregates of content_sums."""
    sums = [F.col(f"{name}_{index}") for name in HASH_COLUMNS for index in range(PARTS)]
    return F.md5(F.concat_ws(":", *(total.cast("string") for total in (F.col(ROW_COUNT), *sums))))


def content_fingerprint(frame: DataFrame, fields: Sequence[StructField]) -> tuple[int, str]:
    """Return the number of rows, and a text that is the same for the same rows in any order."""
    rows_with_hashes, sums = content_sums(frame, fields)
    rows, *totals = rows_with_hashes.agg(*sums).collect()[0]
    return rows, ":".join(str(total or 0) for total in totals)


def _canonical_array(value: Column, element: DataType) -> Column:
    elements = F.transform(value, lambda item: F.struct(*_named_presence(item, element)))
    return F.when(value.isNotNull(), F.struct(F.size(value).alias("n"), elements.alias("e")))


def _with_presence(value: Column, data_type: DataType) -> tuple[Column, Column]:
    """Return whether a part of a nested value is null, and the part itself.

    Both are needed because hashes skip nulls.
    """
    return value.isNull(), canonical_value(value, data_type)


def _named_presence(value: Column, data_type: DataType) -> tuple[Column, Column]:
    is_null, canonical = _with_presence(value, data_type)
    return is_null.alias("is_null"), canonical.alias("v")


SURPLUS_COLUMN, PLACE_COLUMN = "__ondatra_surplus", "__ondatra_place"


class RowDifference(NamedTuple):
    """The rows that only one side has.

    If one side has a row twice and the other has it once, the difference has it once.
    """

    only_left: DataFrame  # the rows that only the left side has, with the left side's columns
    only_right: DataFrame


def row_difference(left_rows: DataFrame, right_rows: DataFrame, fields: Sequence[StructField]) -> RowDifference:
    """Return the rows that each side has in addition to the other, compared by `fields`. Both sides are read twice."""
    left, right = _with_hashes(left_rows, fields), _with_hashes(right_rows, fields)
    signed_rows = left.select(*HASH_COLUMNS, F.lit(1).alias(SURPLUS_COLUMN)).unionAll(
        right.select(*HASH_COLUMNS, F.lit(-1).alias(SURPLUS_COLUMN))
    )
    surplus_counts = signed_rows.groupBy(*HASH_COLUMNS).agg(F.sum(SURPLUS_COLUMN).alias(SURPLUS_COLUMN))
    return RowDifference(
        _surplus_rows(left, surplus_counts.where(F.col(SURPLUS_COLUMN) > 0)),
        _surplus_rows(right, surplus_counts.where(F.col(SURPLUS_COLUMN) < 0)),
    )


def _with_hashes(rows: DataFrame, fields: Sequence[StructField]) -> DataFrame:
    return rows.withColumns(dict(zip(HASH_COLUMNS, row_hashes(fields), strict=True)))


def _surplus_rows(rows: DataFrame, surplus: DataFrame) -> DataFrame:
    """Return the surplus rows: if one side has n more equal rows than the other, return n of them."""
    hash_window = Window.partitionBy(*HASH_COLUMNS).orderBy(HASH_COLUMNS[0])
    candidates = rows.join(surplus, list(HASH_COLUMNS)).withColumn(PLACE_COLUMN, F.row_number().over(hash_window))
    return candidates.where(F.col(PLACE_COLUMN) <= F.abs(SURPLUS_COLUMN)).drop(
        *HASH_COLUMNS, SURPLUS_COLUMN, PLACE_COLUMN
    )
