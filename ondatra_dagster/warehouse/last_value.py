"""What {{ last_value }} stands for, as a literal: the highest value among the results of earlier runs."""

from collections.abc import Mapping

from pyspark.sql import functions as F  # noqa: N812 - as all of Spark's documentation calls it
from pyspark.sql.types import (
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    ShortType,
    StringType,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from ondatra_dagster.errors import WarehouseError
from ondatra_dagster.planning.delta_log import read_table_state
from ondatra_dagster.project.model import Incremental, Model
from ondatra_dagster.warehouse.column_types import ddl
from ondatra_dagster.warehouse.comparison import column_of
from ondatra_dagster.warehouse.inputs import query_over
from ondatra_dagster.warehouse.spark_session import Warehouse

# the value that no other is below: what an incremental query starts from when nothing else is said
LOWEST: Mapping[type[DataType], str] = {
    BinaryType: "",
    BooleanType: "false",
    ByteType: "-128",
    ShortType: "-32768",
    IntegerType: "-2147483648",
    LongType: "-9223372036854775808",
    FloatType: "-Infinity",
    DoubleType: "-Infinity",
    StringType: "",
    DateType: "0001-01-01",
    TimestampType: "0001-01-01 00:00:00",
    TimestampNTZType: "0001-01-01 00:00:00",
}


def last_value(
    warehouse: Warehouse, model: Model, views: Mapping[str, str], *, from_start: bool
) -> str | None:
    """The literal to write into the model's query; None for a model that isn't incremental."""
    if model.incremental is None:
        return None
    if from_start:
        return _initial(warehouse, model, model.incremental, views)
    return _highest(warehouse, model, model.incremental) or _initial(
        warehouse, model, model.incremental, views
    )


def _highest(warehouse: Warehouse, model: Model, incremental: Incremental) -> str | None:
    """From the table; None when it has no value yet."""
    path = warehouse.table_path(model.id)
    state = read_table_state(path)
    if state is None or incremental.column.casefold() not in {c.name.casefold() for c in state.columns}:
        return None
    rows = warehouse.session.read.format("delta").load(path)
    value = F.max(column_of(incremental.column))
    highest = rows.agg(value.cast("string").alias("text"), value.alias("value"))
    text = highest.collect()[0]["text"]
    return None if text is None else _literal(text, highest.schema["value"].dataType)


def _initial(warehouse: Warehouse, model: Model, incremental: Incremental, views: Mapping[str, str]) -> str:
    """What the header says, or else what nothing is below, in the type that the query gives the column."""
    of = _type_in(query_over(warehouse.session, model, views).schema, incremental)
    if incremental.initial is None:
        return _literal(_lowest(of, incremental), of)
    literal = _literal(incremental.initial, of)
    if (
        warehouse.session.sql(f"select try_cast({_text(incremental.initial)} as {ddl(of)})").collect()[0][0]
        is None
    ):
        raise WarehouseError(
            f"@incremental_initial {incremental.initial!r} is no {ddl(of)}, as {incremental.column!r} is;"
            " write a value of that type"
        )
    return literal


def _type_in(schema: StructType, incremental: Incremental) -> DataType:
    for field in schema.fields:
        if field.name.casefold() == incremental.column.casefold():
            return field.dataType
    there = ", ".join(field.name for field in schema.fields)
    raise WarehouseError(
        f"@incremental {incremental.column!r} is no column of the query, which has {there}; select it too"
    )


def _lowest(of: DataType, incremental: Incremental) -> str:
    if isinstance(of, DecimalType):
        return "-" + "9" * (of.precision - of.scale) + "." + "9" * of.scale
    if type(of) not in LOWEST:
        raise WarehouseError(
            f"@incremental {incremental.column!r} is a {ddl(of)}, which has no order; choose another column"
        )
    return LOWEST[type(of)]


def _literal(text: str, of: DataType) -> str:
    return f"CAST({_text(text)} AS {ddl(of)})"


def _text(value: str) -> str:
    return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"
