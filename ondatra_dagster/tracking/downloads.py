"""Found records as a file for people and their programs: CSV, JSON or Parquet, a part at a time.

A CSV has no formulas in it: a spreadsheet that opens it would do what the text of a customer says.
"""

import io
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO

import orjson
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

from ondatra_dagster.tracking import parquet_files
from ondatra_dagster.tracking.files import LocalFolder
from ondatra_dagster.tracking.found import FOUND
from ondatra_dagster.tracking.parts import Part
from ondatra_dagster.tracking.record import PAYLOAD_COLUMN, REPETITIVE, SCHEMA

FORMULA = r"^[=+\-@\t\r]"  # what a spreadsheet takes a text for that begins so
HARMLESS = "'"


def write_download(parts: Iterable[Part], path: Path) -> int:
    """Put the records into a file, in place of one that is there; how many they were.

    The format is the one of FORMATS that its name ends on. The file is seen when it is whole, or never.
    Raises OSError where it can't be written.
    """
    whole = path.resolve()  # a link stays one
    if whole.is_dir():
        raise IsADirectoryError(21, "it is a folder", str(path))
    if not whole.parent.is_dir():
        raise FileNotFoundError(2, "there is no such folder", str(whole.parent))
    counted = _Counted(parts)
    with LocalFolder(whole.parent).writing(whole.name) as file:
        for _ in FORMATS[path.suffix.lower()](file, counted):
            pass
    return counted.records


def download(parts: Iterable[Part], ending: str) -> Iterator[bytes]:
    """The same file piece by piece, for who sends it on: no more of it is in memory than a part."""
    sink = _Sink()
    for _ in FORMATS[ending](sink, parts):
        yield sink.take()
    yield sink.take()


class _Sink(io.BytesIO):
    """A file of which what was written is taken away; its places go on counting."""

    def __init__(self) -> None:
        super().__init__()
        self._taken = 0

    def tell(self) -> int:
        return self._taken + super().tell()

    def take(self) -> bytes:
        piece = self.getvalue()
        self._taken += len(piece)
        self.seek(0)
        self.truncate()
        return piece


class _Counted:
    """Parts that are counted as they go by."""

    def __init__(self, parts: Iterable[Part]) -> None:
        self.records = 0
        self._parts = parts

    def __iter__(self) -> Iterator[Part]:
        for part in self._parts:
            self.records += part.num_rows
            yield part


def write_csv(file: BinaryIO, parts: Iterable[Part]) -> Iterator[None]:
    """A line of names, then a line a record; nothing and an empty text can be told apart."""
    with pa.csv.CSVWriter(file, FOUND) as writer:
        for part in parts:
            writer.write_table(
                pa.Table.from_arrays([_harmless(column) for column in part.columns], schema=FOUND)
            )
            yield


def _harmless(column: Any) -> Any:
    """The column without formulas; a number is none, below zero neither."""
    if not pa.types.is_string(column.type):
        return column
    is_formula = pc.match_substring_regex(column, FORMULA)
    if not pc.any(is_formula).as_py():
        return column
    return pc.if_else(is_formula, pc.binary_join_element_wise(HARMLESS, column, ""), column)


def write_json(file: BinaryIO, parts: Iterable[Part]) -> Iterator[None]:
    """One array, an object a line."""
    between = b"[\n"
    for part in parts:
        for line in json_lines([part]):
            file.write(between + line)
            between = b",\n"
        yield
    file.write(b"\n]\n" if between == b",\n" else b"[]\n")


def json_lines(parts: Iterable[Part]) -> Iterator[bytes]:
    """Each record as a JSON object; its payload, which is one already, is in it as it is."""
    for part in parts:
        columns = [_for_json(name, part[name]) for name in FOUND.names]
        for values in zip(*columns, strict=True):
            yield orjson.dumps(dict(zip(FOUND.names, values, strict=True)))


def _for_json(name: str, column: Any) -> Iterator[Any]:
    if name == PAYLOAD_COLUMN:
        return map(orjson.Fragment, column.to_pylist())
    if pa.types.is_timestamp(column.type):
        # as text at once: to make a datetime of each takes longer than all the rest
        column = pc.binary_replace_slice(column.cast(pa.string()), 10, 11, "T")
    return iter(column.to_pylist())


def write_parquet(file: BinaryIO, parts: Iterable[Part]) -> Iterator[None]:
    """The columns and types of the published files; what is known of rows that wait has no column there."""
    batches = (batch for part in parts for batch in part.select(SCHEMA.names).to_batches())
    yield from parquet_files.writing(file, SCHEMA, batches, repetitive=REPETITIVE)


# each stops now and then on its way: what is written by then may be taken away
FORMATS: Mapping[str, Callable[[BinaryIO, Iterable[Part]], Iterator[None]]] = {
    ".csv": write_csv,
    ".json": write_json,
    ".parquet": write_parquet,
}
