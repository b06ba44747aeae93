"""Which changes of columns a table takes."""

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
def test_wider_types_are_taken_and_narrower_ones_fit(old: DataType, new: DataType) -> None:
    assert ColumnChanges(widened_columns=(StructField("a", new),)) == plan_column_changes(
        columns(a=old), columns(a=new)
    )
    assert ColumnChanges() == plan_column_changes(columns(a=new), columns(a=old))
    assert is_assignable(old, into=new)
    assert not is_assignable(new, into=old)


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
def test_other_types_are_refused_with_a_way_out(old: DataType, new: DataType) -> None:
    with pytest.raises(WarehouseError, match=r"CAST it to .*, give it another name with AS, or run with --full"):
        plan_column_changes(columns(a=old), columns(a=new))


def test_columns_come_and_go_without_regard_to_case_or_order() -> None:
    table, query = columns(a=IntegerType(), gone=StringType()), columns(New=StringType(), A=IntegerType())
    change = plan_column_changes(table, query)
    assert ColumnChanges(added_columns=(StructField("New", StringType()),), dropped_columns=("gone",)) == change
    assert not plan_column_changes(columns(a=IntegerType()), columns(A=IntegerType()))


def test_all_refusals_come_together() -> None:
    old, new = columns(a=StringType(), b=StringType()), columns(a=IntegerType(), b=IntegerType())
    with pytest.raises(WarehouseError, match=r"'a'.*'b'"):
        plan_column_changes(old, new)


def test_a_type_is_written_out_with_its_odd_names() -> None:
    nested = StructType([StructField("a b", ArrayType(StructType([StructField("c`d", DecimalType(5, 1))])))])
    assert "struct<`a b`: array<struct<`c``d`: decimal(5,1)>>>" == ddl_type(nested)


def test_a_conversion_casts_what_is_of_another_type() -> None:
    """A full refresh may: its values are kept as far as they can be cast."""
    change = plan_column_changes(
        columns(a=StringType(), b=LongType()), columns(A=IntegerType(), b=LongType()), converts=True
    )
    assert ColumnChanges(retyped_columns=(StructField("a", IntegerType()),)) == change
    assert change.changes_hashes
