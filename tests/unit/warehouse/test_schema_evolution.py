"""The changes of columns that a table accepts."""

import pytest
from pyspark.sql.types import (
    ArrayType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
)

from ondatra_dagster.errors import WarehouseError
from ondatra_dagster.warehouse.schema_evolution import ColumnChanges, ddl_type, is_assignable, plan_column_changes

A = StructField("a", IntegerType())


def columns(**types: DataType) -> list[StructField]:
    return [StructField(name, of) for name, of in types.items()]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (ShortType(), LongType()),
        (IntegerType(), DoubleType()),
        (IntegerType(), DecimalType(12, 2)),
        (LongType(), DecimalType(20, 0)),
        (FloatType(), DoubleType()),
        (DecimalType(10, 2), DecimalType(12, 4)),
        (DateType(), TimestampNTZType()),
    ],
)
def test_a_wider_type_widens_the_column_and_a_narrower_one_fits(old: DataType, new: DataType) -> None:
    assert ColumnChanges(widened_columns=(StructField("a", new),)) == plan_column_changes(
        columns(a=old), columns(a=new)
    )
    assert ColumnChanges() == plan_column_changes(columns(a=new), columns(a=old))
    assert is_assignable(old, target=new)
    assert not is_assignable(new, target=old)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (StringType(), IntegerType()),
        (IntegerType(), StringType()),
        (LongType(), DoubleType()),
        (IntegerType(), DecimalType(10, 2)),
        (DecimalType(10, 2), DecimalType(10, 4)),
        (ArrayType(IntegerType()), ArrayType(LongType())),
    ],
)
def test_other_type_changes_are_refused_with_a_remedy(old: DataType, new: DataType) -> None:
    with pytest.raises(WarehouseError, match=r"CAST it to .*, give it another name with AS, or run with --full"):
        plan_column_changes(columns(a=old), columns(a=new))


def test_columns_are_added_and_dropped_in_any_case_and_order() -> None:
    table, query = columns(a=IntegerType(), gone=StringType()), columns(New=StringType(), A=IntegerType())
    change = plan_column_changes(table, query)
    assert ColumnChanges(added_columns=(StructField("New", StringType()),), dropped_columns=("gone",)) == change
    assert not plan_column_changes(columns(a=IntegerType()), columns(A=IntegerType()))


def test_all_refusals_are_reported_together() -> None:
    old, new = columns(a=StringType(), b=StringType()), columns(a=IntegerType(), b=IntegerType())
    with pytest.raises(WarehouseError, match=r"'a'.*'b'"):
        plan_column_changes(old, new)


def test_the_ddl_of_a_type_quotes_unusual_names() -> None:
    nested = StructType([StructField("a b", ArrayType(StructType([StructField("c`d", DecimalType(5, 1))])))])
    assert "struct<`a b`: array<struct<`c``d`: decimal(5,1)>>>" == ddl_type(nested)


def test_a_conversion_casts_columns_with_another_type() -> None:
    """A full refresh may convert. Values are kept as far as they can be cast."""
    change = plan_column_changes(
        columns(a=StringType(), b=LongType()), columns(A=IntegerType(), b=LongType()), converts=True
    )
    assert ColumnChanges(retyped_columns=(StructField("a", IntegerType()),)) == change
    assert change.changes_hashes
