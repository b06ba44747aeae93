"""The export of found records to a CSV, JSON or Parquet file, one chunk at a time.

A CSV contains no formulas: a spreadsheet would execute text that a customer wrote.
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

FORMULA_START = r"^[=+\-@\t\r]"  # a spreadsheet takes a text that begins like this for a formula
FORMULA_ESCAPE = "'"


def write_export(parts: Iterable[RecordChunk], path: Path) -> int:
    """Write the records to a file, or replace it; return how many records there were.

    The ending of its name is a key of EXPORT_WRITERS and gives the format. The file appears when it is
    complete, or never. Raise OSError if it can't be written.
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
    """Yield the same file in chunks, for a download: only one chunk is in memory at a time."""
    sink = _DrainedBuffer()
    for _ in EXPORT_WRITERS[suffix](sink, parts):
        yield sink.drain()
    yield sink.drain()


class _DrainedBuffer(io.BytesIO):
    """A file whose written bytes can be drained; positions in it keep counting."""

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
    """Write a line of names, then a line for each record; null and an empty text are distinct."""
    with pa.csv.CSVWriter(file, RESULT_SCHEMA) as writer:
        for chunk in parts:
            writer.write_table(
                pa.Table.from_arrays([_escape_formulas(column) for column in chunk.columns], schema=RESULT_SCHEMA)
            )
            yield


def _escape_formulas(column: Any) -> Any:
    """Escape the formulas in a text column; numbers, negative ones too, are no formulas."""
    if not pa.types.is_string(column.type):
        return column
    is_formula = pc.match_substring_regex(column, FORMULA_START)
    if not pc.any(is_formula).as_py():
        return column
    return pc.if_else(is_formula, pc.binary_join_element_wise(FORMULA_ESCAPE, column, ""), column)


def write_json(file: BinaryIO, parts: Iterable[RecordChunk]) -> Iterator[None]:
    """Write one array, with a line for each object."""
    separator = b"[\n"
    for chunk in parts:
        for line in format_json_lines([chunk]):
            file.write(separator + line)
            separator = b",\n"
        yield
    file.write(b"\n]\n" if separator == b",\n" else b"[]\n")


def format_json_lines(parts: Iterable[RecordChunk]) -> Iterator[bytes]:
    """Yield each record as a JSON object; its payload, which is JSON already, is in it unchanged."""
    for chunk in parts:
        columns = [_to_json_values(name, chunk[name]) for name in RESULT_SCHEMA.names]
        for values in zip(*columns, strict=True):
            yield orjson.dumps(dict(zip(RESULT_SCHEMA.names, values, strict=True)))


def _to_json_values(name: str, column: Any) -> Iterator[Any]:
    if name == PAYLOAD_COLUMN:
        return map(orjson.Fragment, column.to_pylist())
    if pa.types.is_timestamp(column.type):
        # as text at once: to make a datetime of each takes longer than all the rest
        column = pc.binary_replace_slice(column.cast(pa.string()), 10, 11, "T")
    return iter(column.to_pylist())


def write_parquet(file: BinaryIO, parts: Iterable[RecordChunk]) -> Iterator[None]:
    """Write the columns and types of the published files, without the columns about waiting rows."""
    batches = (batch for chunk in parts for batch in chunk.select(RECORD_SCHEMA.names).to_batches())
    yield from parquet_files.write_batches(file, RECORD_SCHEMA, batches, repetitive=DICTIONARY_COLUMNS)


# each yields now and then, so that the bytes so far can be drained
EXPORT_WRITERS: Mapping[str, Callable[[BinaryIO, Iterable[RecordChunk]], Iterator[None]]] = {
    ".csv": write_csv,
    ".json": write_json,
    ".parquet": write_parquet,
}
