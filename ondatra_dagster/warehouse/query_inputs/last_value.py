"""The value of {{ last_value }}, as an SQL literal: the highest value among the results of earlier runs."""

from collections.abc import Mapping

from pyspark.sql import functions as F  # noqa: N812 - as all of Spark's documentation calls it
from pyspark.sql.types import DataType, DecimalType, StructType

from ondatra_dagster.deltalog.log_reader import read_table_state
from ondatra_dagster.errors import WarehouseError
from ondatra_dagster.project.model import Incremental, Model
from ondatra_dagster.warehouse.query_inputs.pinned_views import build_query
from ondatra_dagster.warehouse.row_equality_and_hashes import column_of
from ondatra_dagster.warehouse.schema_evolution import ddl_type, text_literal
from ondatra_dagster.warehouse.spark.session import Warehouse

# by the name of a type: its lowest value, from which an incremental query starts unless the header has another
LOWEST_VALUES: Mapping[str, str] = {  # by the type's name
    "binary": "",
    "boolean": "false",
    "byte": "-128",
    "short": "-32768",
    "integer": "-2147483648",
    "long": "-9223372036854775808",
    "float": "-Infinity",
    "double": "-Infinity",
    "string": "",
    "date": "0001-01-01",
    "timestamp": "0001-01-01 00:00:00",
    "timestamp_ntz": "0001-01-01 00:00:00",
}


def last_value_literal(warehouse: Warehouse, model: Model, views: Mapping[str, str], *, from_start: bool) -> str | None:
    """Return the literal that replaces {{ last_value }} in the query; None for a model that isn't incremental."""
    if model.incremental is None:
        return None
    highest = None if from_start else _highest_literal(warehouse, model, model.incremental)
    return highest or _initial_literal(warehouse, model, model.incremental, views)


def _highest_literal(warehouse: Warehouse, model: Model, incremental: Incremental) -> str | None:
    """Return the highest value in the table's column as a literal; None if the column has no value yet."""
    path = warehouse.table_path(model.id)
    state = read_table_state(path)
    if state is None or incremental.column.casefold() not in {column.name.casefold() for column in state.columns}:
        return None
    rows = warehouse.session.read.format("delta").load(path)
    value = F.max(column_of(incremental.column))
    highest_row = rows.agg(value.cast("string").alias("text"), value.alias("value"))
    text = highest_row.collect()[0]["text"]
    return None if text is None else _cast_literal(text, highest_row.schema["value"].dataType)


def _initial_literal(warehouse: Warehouse, model: Model, incremental: Incremental, views: Mapping[str, str]) -> str:
    """Return the initial value in the header as a literal, or else the lowest value of the column's type."""
    type_ = _incremental_type(build_query(warehouse.session, model, views).schema, incremental)
    if incremental.initial is None:
        return _cast_literal(_lowest_text(type_, incremental), type_)
    cast_result = warehouse.session.sql(f"select try_cast({text_literal(incremental.initial)} as {ddl_type(type_)})")
    if cast_result.collect()[0][0] is None:
        raise WarehouseError(
            f"@incremental_initial {incremental.initial!r} isn't a {ddl_type(type_)}, as {incremental.column!r} is;"
            " write a value of that type"
        )
    return _cast_literal(incremental.initial, type_)


def _incremental_type(schema: StructType, incremental: Incremental) -> DataType:
    for field in schema.fields:
        if field.name.casefold() == incremental.column.casefold():
            return field.dataType
    column_list = ", ".join(field.name for field in schema.fields)
    raise WarehouseError(
        f"@incremental {incremental.column!r} isn't a column of the query: {column_list}; add it to the SELECT"
    )


def _lowest_text(data_type: DataType, incremental: Incremental) -> str:
    if isinstance(data_type, DecimalType):
        return "-" + "9" * (data_type.precision - data_type.scale) + "." + "9" * data_type.scale
    if data_type.typeName() not in LOWEST_VALUES:
        raise WarehouseError(
            f"@incremental {incremental.column!r} is a {ddl_type(data_type)}, which has no order; choose another column"
        )
    return LOWEST_VALUES[data_type.typeName()]


def _cast_literal(text: str, data_type: DataType) -> str:
    return f"CAST({text_literal(text)} AS {ddl_type(data_type)})"
