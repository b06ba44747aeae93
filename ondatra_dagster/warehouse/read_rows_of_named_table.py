"""The rows of any table that a user can name, read from its files if that is safe, otherwise with Spark."""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from ondatra_dagster.deltalog.active_files import ActiveFile, TableSnapshot, UnsupportedTableError, read_table_snapshot
from ondatra_dagster.errors import WarehouseError
from ondatra_dagster.planning.find_table_and_columns import NamedTable
from ondatra_dagster.project.model import SourceInput
from ondatra_dagster.project.settings.read_settings_and_defaults import Settings
from ondatra_dagster.project.settings.storage_access import S3_SCHEMES, local_path, s3_access_of, scheme_of
from ondatra_dagster.project.sql.output_and_system_columns import ROWID_COLUMN, is_hidden_column
from ondatra_dagster.row_changes import Json
from ondatra_dagster.storage.s3_filesystem_and_listing import bucket_path, open_s3_filesystem
from ondatra_dagster.warehouse.arrow_to_json import json_columns, object_texts


class TableRows(NamedTuple):
    columns: list[str]
    pages: Iterator[pa.Table]
    row_count: int | None  # the number of rows in the table; None if it is unknown

    def json_rows(self) -> Iterator[tuple[Json, ...]]:
        """Yield each row as JSON values."""
        for page in self.pages:
            yield from zip(*json_columns(page), strict=True)

    def json_objects(self) -> Iterator[str]:
        """Yield each row as the text of a JSON object."""
        for page in self.pages:
            yield from object_texts(self.columns, json_columns(page))


def read_table_rows(settings: Settings, table: NamedTable, *, limit: int | None = None) -> TableRows:
    """Return at most `limit` rows of the table, without the hidden columns. Raises WarehouseError."""
    try:
        return _read_from_files(table, limit)
    except UnsupportedTableError:
        rows = _read_from_spark(settings, table, limit)
        return TableRows(rows.column_names, iter([rows]), None)


def _read_from_files(table: NamedTable, limit: int | None) -> TableRows:
    if table.address is None:
        raise UnsupportedTableError("a catalog's table")
    snapshot = read_table_snapshot(table.address)
    if snapshot is None:
        path = local_path(table.address)
        if table.source and (path is None or path.is_dir()):
            raise UnsupportedTableError("no Delta table")
        raise WarehouseError(f"{table.name}: {table.remedy}")
    pages = read_row_pages(snapshot, table.address, limit=limit)
    try:
        # most unsupported content is found in the first page, and Spark can still be used then
        first_page = next(pages)
    except FileNotFoundError as error:
        raise _changed_table_error(table, error) from error
    return TableRows(first_page.column_names, _chain_pages(first_page, pages, table), snapshot.rows)


def _chain_pages(first: pa.Table, next_pages: Iterator[pa.Table], table: NamedTable) -> Iterator[pa.Table]:
    yield first
    try:
        yield from next_pages
    except UnsupportedTableError as error:
        raise WarehouseError(f"{table.name} can't be read to its end: {error}") from error
    except FileNotFoundError as error:
        raise _changed_table_error(table, error) from error


def _changed_table_error(table: NamedTable, error: FileNotFoundError) -> WarehouseError:
    return WarehouseError(f"{table.name} changed while it was read ({error}); try again")


def _read_from_spark(settings: Settings, table: NamedTable, limit: int | None) -> pa.Table:
    """Return the rows without the hidden columns. A Spark session is started and ended for this."""
    # imported only here, because pyspark takes a second to load
    from ondatra_dagster.warehouse.query_inputs.pinned_views import drop_hidden_columns, read_source
    from ondatra_dagster.warehouse.spark.error_messages import explain_spark_errors
    from ondatra_dagster.warehouse.spark.session import Warehouse

    with Warehouse(settings) as warehouse, explain_spark_errors(table.name):
        if isinstance(table.source, SourceInput):
            rows = read_source(warehouse, table.source, None)
        else:
            rows = warehouse.session.read.format("delta").load(str(table.address))
        if ROWID_COLUMN in rows.columns:
            rows = drop_hidden_columns(rows)
        return (rows if limit is None else rows.limit(limit)).toArrow()


PLAIN_TYPES: Mapping[str, pa.DataType] = {
    "string": pa.string(),
    "long": pa.int64(),
    "integer": pa.int32(),
    "short": pa.int16(),
    "byte": pa.int8(),
    "float": pa.float32(),
    "double": pa.float64(),
    "boolean": pa.bool_(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", "UTC"),
    "timestamp_ntz": pa.timestamp("us"),
}
# in these types, each partition value has only one text
PARTITION_TYPES = ("string", "long", "integer", "short", "byte", "boolean", "date")
DECIMAL_PATTERN = re.compile(r"decimal\((\d+), *(-?\d+)\)")
PHYSICAL_NAME = "delta.columnMapping.physicalName"
LEGACY_CALENDAR_KEYS = (b"org.apache.spark.legacyDateTime", b"org.apache.spark.legacyINT96")


def read_row_pages(table: TableSnapshot, address: str, *, limit: int | None = None) -> Iterator[pa.Table]:
    """Yield the table's rows in pages, without the hidden columns. There is at least one page, which may be empty."""
    is_model_table = any(field["name"] == ROWID_COLUMN for field in table.fields)
    fields = [field for field in table.fields if not (is_model_table and is_hidden_column(field["name"]))]
    schema = pa.schema([pa.field(field["name"], arrow_type(field["type"])) for field in fields])
    remaining = limit
    for file in table.files:
        for page in _read_file_pages(table, file, address, fields, schema):
            yield page if remaining is None else page.slice(0, remaining)
            remaining = None if remaining is None else remaining - page.num_rows
            if remaining is not None and remaining <= 0:
                return
    yield schema.empty_table()


def arrow_type(table_type: Any) -> pa.DataType:
    """Return the Arrow type of a Delta schema's type. Raises UnsupportedTableError."""
    if isinstance(table_type, str):
        decimal_match = DECIMAL_PATTERN.fullmatch(table_type)
        if decimal_match:
            return pa.decimal128(int(decimal_match.group(1)), int(decimal_match.group(2)))
        if table_type not in PLAIN_TYPES:
            raise UnsupportedTableError(f"the type {table_type}")
        return PLAIN_TYPES[table_type]
    if table_type["type"] == "array":
        return pa.list_(arrow_type(table_type["elementType"]))
    if table_type["type"] == "map":
        return pa.map_(arrow_type(table_type["keyType"]), arrow_type(table_type["valueType"]))
    if table_type["type"] == "struct":
        return pa.struct([pa.field(field["name"], arrow_type(field["type"])) for field in table_type["fields"]])
    raise UnsupportedTableError(f"the type {table_type['type']}")


def _read_file_pages(
    table: TableSnapshot, file: ActiveFile, address: str, fields: Sequence[Mapping[str, Any]], schema: pa.Schema
) -> Iterator[pa.Table]:
    try:
        with _open_parquet(file, address) as parquet:
            if any(name in (parquet.schema_arrow.metadata or {}) for name in LEGACY_CALENDAR_KEYS):
                raise UnsupportedTableError("dates of the old calendar")
            for batch in parquet.iter_batches():
                columns = [_read_column(table, file, batch, field) for field in fields]
                yield pa.Table.from_arrays(columns, schema=schema)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError) as error:
        raise UnsupportedTableError(f"{file.path}: {error}") from error


def _open_parquet(file: ActiveFile, address: str) -> pq.ParquetFile:
    source: Any = file.path
    if scheme_of(file.path) in S3_SCHEMES:
        source = open_s3_filesystem(s3_access_of(address)).open_input_file(bucket_path(file.path))
    return pq.ParquetFile(source, coerce_int96_timestamp_unit="us")


def _read_column(table: TableSnapshot, file: ActiveFile, batch: pa.RecordBatch, field: Mapping[str, Any]) -> pa.Array:
    """Return a column of the table for a batch of a file's rows.

    It comes from the batch or from the file's partition; otherwise all its values are null.
    """
    column_type = arrow_type(field["type"])
    physical_name = _physical_name(field, is_mapped=table.is_mapped)
    if field["name"] in table.partition_columns:
        return _partition_value(file.partition.get(physical_name), field["type"], batch.num_rows)
    column_index = batch.schema.get_field_index(physical_name)
    if column_index < 0:
        return pa.nulls(batch.num_rows, column_type)
    values = batch.column(column_index)
    if table.is_mapped:
        values = values.view(_rename_fields(values.type, field["type"]))
    return values if values.type == column_type else values.cast(column_type)


def _partition_value(text: str | None, table_type: Any, times: int) -> pa.Array:
    if table_type not in PARTITION_TYPES:
        raise UnsupportedTableError(f"partitions by {table_type}")
    value = pa.scalar(text or None, pa.string())  # an empty text in a Delta partition means null
    return pa.repeat(value.cast(PLAIN_TYPES[table_type]), times)


def _physical_name(field: Mapping[str, Any], *, is_mapped: bool) -> str:
    name: str = field["metadata"][PHYSICAL_NAME] if is_mapped else field["name"]
    return name


def _rename_fields(file_type: pa.DataType, table_type: Any) -> pa.DataType:
    """Return the type of a file's column, with the field names of the table's column."""
    if isinstance(table_type, str):
        return file_type
    if table_type["type"] == "array":
        return pa.list_(_rename_fields(file_type.value_type, table_type["elementType"]))
    if table_type["type"] == "map":
        return pa.map_(
            _rename_fields(file_type.key_type, table_type["keyType"]),
            _rename_fields(file_type.item_type, table_type["valueType"]),
        )
    fields_by_name = {_physical_name(field, is_mapped=True): field for field in table_type["fields"]}
    return pa.struct(
        [
            pa.field(fields_by_name[child.name]["name"], _rename_fields(child.type, fields_by_name[child.name]["type"]))
            if child.name in fields_by_name
            else child
            for child in file_type
        ]
    )
