"""The export of found records to a CSV, JSON or Parquet file, one chunk at a time.

The CSV export escapes formulas, because a spreadsheet would execute a text that a customer wrote.
"""

import io
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO

import orjson
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

from ondatra_dagster.records import parquet_files
from ondatra_dagster.records.local_storage import LocalStorage
from ondatra_dagster.records.record_query import RESULT_SCHEMA
from ondatra_dagster.records.record_schema import DICTIONARY_COLUMNS, PAYLOAD_COLUMN, RECORD_SCHEMA
from ondatra_dagster.records.search_result_chunks_and_reason_counts import RecordChunk

FORMULA_START = r"^[=+\-@\t\r]"  # the beginning of a text that a spreadsheet executes as a formula
FORMULA_ESCAPE = "'"


def write_export(parts: Iterable[RecordChunk], path: Path) -> int:
    """Write the records to a new file, or replace the file; return the number of records.

    The suffix of `path` is a key of EXPORT_WRITERS and determines the format. The file gets its name only
    when it is complete. Raise OSError if the file can't be written.
    """
    resolved_path = path.resolve()  # a link stays a link
    if resolved_path.is_dir():
        raise IsADirectoryError(21, "it is a folder", str(path))
    if not resolved_path.parent.is_dir():
        raise FileNotFoundError(2, "there is no such folder", str(resolved_path.parent))
    records = 0

    def count_chunks() -> Iterator[RecordChunk]:
        nonlocal records
        for chunk in parts:
            records += chunk.num_rows
            yield chunk

    with LocalStorage(resolved_path.parent).open_writer(resolved_path.name) as file:
        for _ in EXPORT_WRITERS[path.suffix.lower()](file, count_chunks()):
            pass
    return records


def stream_export(parts: Iterable[RecordChunk], suffix: str) -> Iterator[bytes]:
    """Yield the content of an export file in chunks, for a download. Only one chunk is in memory at a time."""
    sink = _DrainedBuffer()
    for _ in EXPORT_WRITERS[suffix](sink, parts):
        yield sink.drain()
    yield sink.drain()


class _DrainedBuffer(io.BytesIO):
    """A file in memory from which written bytes can be drained. Its positions still count the drained bytes."""

    def __init__(self) -> None:
        super().__init__()
        self._drained_bytes = 0

    def tell(self) -> int:
        return self._drained_bytes + super().tell()

    def drain(self) -> bytes:
        content = self.getvalue()
        self._drained_bytes += len(content)
        self.seek(0)
        self.truncate()
        return content


def write_csv(file: BinaryIO, parts: Iterable[RecordChunk]) -> Iterator[None]:
    """Write a line with the column names, then a line for each record. A null differs from an empty text."""
    with pa.csv.CSVWriter(file, RESULT_SCHEMA) as writer:
        for chunk in parts:
            writer.write_table(
                pa.Table.from_arrays([_escape_formulas(column) for column in chunk.columns], schema=RESULT_SCHEMA)
            )
            yield


def _escape_formulas(column: Any) -> Any:
    """Escape the formulas in a text column. Columns of other types are unchanged, such as negative numbers."""
    if not pa.types.is_string(column.type):
        return column
    is_formula = pc.match_substring_regex(column, FORMULA_START)
    if not pc.any(is_formula).as_py():
        return column
    return pc.if_else(is_formula, pc.binary_join_element_wise(FORMULA_ESCAPE, column, ""), column)


def write_json(file: BinaryIO, parts: Iterable[RecordChunk]) -> Iterator[None]:
    """Write the records as one JSON array, with each object on its own line."""
    separator = b"[\n"
    for chunk in parts:
        for line in format_json_lines([chunk]):
            file.write(separator + line)
            separator = b",\n"
        yield
    file.write(b"\n]\n" if separator == b",\n" else b"[]\n")


def format_json_lines(parts: Iterable[RecordChunk]) -> Iterator[bytes]:
    """Yield each record as a JSON object. Its payload, which is JSON already, is inserted unchanged."""
    for chunk in parts:
        columns = [_to_json_values(name, chunk[name]) for name in RESULT_SCHEMA.names]
        for values in zip(*columns, strict=True):
            yield orjson.dumps(dict(zip(RESULT_SCHEMA.names, values, strict=True)))


def _to_json_values(name: str, column: Any) -> Iterator[Any]:
    if name == PAYLOAD_COLUMN:
        return map(orjson.Fragment, column.to_pylist())
    if pa.types.is_timestamp(column.type):
        # converted to text as a column: a datetime object for each value takes longer than the rest of the export
        column = pc.binary_replace_slice(column.cast(pa.string()), 10, 11, "T")
    return iter(column.to_pylist())


def write_parquet(file: BinaryIO, parts: Iterable[RecordChunk]) -> Iterator[None]:
    """Write the records with the columns of published record files, without the columns about pending rows."""
    batches = (batch for chunk in parts for batch in chunk.select(RECORD_SCHEMA.names).to_batches())
    yield from parquet_files.write_batches(file, RECORD_SCHEMA, batches, repetitive=DICTIONARY_COLUMNS)


# each writer yields after each chunk, so that the caller can drain the bytes
EXPORT_WRITERS: Mapping[str, Callable[[BinaryIO, Iterable[RecordChunk]], Iterator[None]]] = {
    ".csv": write_csv,
    ".json": write_json,
    ".parquet": write_parquet,
}
