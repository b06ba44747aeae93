"""The rows of a Delta table without a JVM: its Parquet files, with the names and types that the table has.

What isn't surely read as Spark reads it raises BeyondUsError; then Spark has to be asked.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from ondatra_dagster.planning.delta_schema import ROWID, is_hidden
from ondatra_dagster.planning.live_files import BeyondUsError, LiveFile, LiveTable
from ondatra_dagster.planning.s3_objects import s3_files, s3_path
from ondatra_dagster.project.settings.addresses import S3_SCHEMES, s3_access, scheme_of

PLAIN: Mapping[str, pa.DataType] = {
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
PARTITIONED_BY = (
    "string",
    "long",
    "integer",
    "short",
    "byte",
    "boolean",
    "date",
)  # whose texts mean one thing
DECIMAL = re.compile(r"decimal\((\d+), *(-?\d+)\)")
PHYSICAL = "delta.columnMapping.physicalName"
OLD_CALENDAR = (b"org.apache.spark.legacyDateTime", b"org.apache.spark.legacyINT96")


def rows_of(table: LiveTable, address: str, *, limit: int | None = None) -> Iterator[pa.Table]:
    """The table's rows in pages, without the hidden columns; at least one page, which may be empty."""
    is_ours = any(field["name"] == ROWID for field in table.fields)
    fields = [field for field in table.fields if not (is_ours and is_hidden(field["name"]))]
    schema = pa.schema([pa.field(field["name"], arrow_type(field["type"])) for field in fields])
    left = limit
    for file in table.files:
        for page in _pages(table, file, address, fields, schema):
            yield page if left is None else page.slice(0, left)
            left = None if left is None else left - page.num_rows
            if left is not None and left <= 0:
                return
    yield schema.empty_table()


def arrow_type(written: Any) -> pa.DataType:
    """A type of a Delta schema as Arrow has it; raises BeyondUsError."""
    if isinstance(written, str):
        decimal = DECIMAL.fullmatch(written)
        if decimal:
            return pa.decimal128(int(decimal.group(1)), int(decimal.group(2)))
        if written not in PLAIN:
            raise BeyondUsError(f"the type {written}")
        return PLAIN[written]
    if written["type"] == "array":
        return pa.list_(arrow_type(written["elementType"]))
    if written["type"] == "map":
        return pa.map_(arrow_type(written["keyType"]), arrow_type(written["valueType"]))
    if written["type"] == "struct":
        return pa.struct([pa.field(field["name"], arrow_type(field["type"])) for field in written["fields"]])
    raise BeyondUsError(f"the type {written['type']}")


def _pages(
    table: LiveTable, file: LiveFile, address: str, fields: Sequence[Mapping[str, Any]], schema: pa.Schema
) -> Iterator[pa.Table]:
    try:
        with _opened(file, address) as parquet:
            if any(name in (parquet.schema_arrow.metadata or {}) for name in OLD_CALENDAR):
                raise BeyondUsError("dates of the old calendar")
            for batch in parquet.iter_batches():
                columns = [_column(table, file, batch, field) for field in fields]
                yield pa.Table.from_arrays(columns, schema=schema)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError) as error:
        raise BeyondUsError(f"{file.path}: {error}") from error


def _opened(file: LiveFile, address: str) -> pq.ParquetFile:
    source: Any = file.path
    if scheme_of(file.path) in S3_SCHEMES:
        source = s3_files(s3_access(address)).open_input_file(s3_path(file.path))
    return pq.ParquetFile(source, coerce_int96_timestamp_unit="us")


def _column(table: LiveTable, file: LiveFile, batch: pa.RecordBatch, field: Mapping[str, Any]) -> pa.Array:
    """One of the table's columns in this batch: as it stands there, from the file's folder, or null."""
    wanted = arrow_type(field["type"])
    physical = _physical(field, is_mapped=table.is_mapped)
    if field["name"] in table.partition_columns:
        return _partition_value(file.partition.get(physical), field["type"], batch.num_rows)
    place = batch.schema.get_field_index(physical)
    if place < 0:
        return pa.nulls(batch.num_rows, wanted)
    found = batch.column(place)
    if table.is_mapped:
        found = found.view(_renamed(found.type, field["type"]))
    return found if found.type == wanted else found.cast(wanted)


def _partition_value(text: str | None, written: Any, times: int) -> pa.Array:
    if written not in PARTITIONED_BY:
        raise BeyondUsError(f"partitions by {written}")
    given = pa.scalar(text or None, pa.string())  # Delta has no empty text there: it means null
    return pa.repeat(given.cast(PLAIN[written]), times)


def _physical(field: Mapping[str, Any], *, is_mapped: bool) -> str:
    name: str = field["metadata"][PHYSICAL] if is_mapped else field["name"]
    return name


def _renamed(found: pa.DataType, written: Any) -> pa.DataType:
    """A file's own type, but for the names of fields, which become those that the table has."""
    if isinstance(written, str):
        return found
    if written["type"] == "array":
        return pa.list_(_renamed(found.value_type, written["elementType"]))
    if written["type"] == "map":
        return pa.map_(
            _renamed(found.key_type, written["keyType"]), _renamed(found.item_type, written["valueType"])
        )
    named = {_physical(field, is_mapped=True): field for field in written["fields"]}
    return pa.struct(
        [
            pa.field(named[part.name]["name"], _renamed(part.type, named[part.name]["type"]))
            if part.name in named
            else part
            for part in found
        ]
    )
