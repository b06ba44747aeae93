"""Rows into Parquet and back, a bounded part at a time. What the columns mean, the modules beside know."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, BinaryIO, TypeVar

import pyarrow as pa
import pyarrow.parquet as pq

from ondatra_dagster.tracking import file_digest

Row = TypeVar("Row", bound=tuple[Any, ...])

ROWS_IN_MEMORY = 10_000
CHARACTERS_IN_MEMORY = 16_000_000  # of the long texts of those rows: one row may be a whole invoice


def in_parts(rows: Iterable[Row], weigh: Callable[[Row], int]) -> Iterator[list[Row]]:
    """The rows in lists that fit in memory; the same rows always fall into the same lists."""
    part: list[Row] = []
    weight = 0
    for row in rows:
        part.append(row)
        weight += weigh(row)
        if len(part) == ROWS_IN_MEMORY or weight >= CHARACTERS_IN_MEMORY:
            yield part
            part, weight = [], 0
    if part:
        yield part


def arrays(part: Sequence[tuple[Any, ...]], fields: Iterable[pa.Field]) -> list[pa.Array]:
    """The columns of some rows."""
    columns = zip(*part, strict=True)
    return [pa.array(column, field.type) for column, field in zip(columns, fields, strict=True)]


def write(
    file: BinaryIO,
    schema: pa.Schema,
    batches: Iterable[pa.RecordBatch],
    *,
    repetitive: Collection[str] = (),
    notes: Mapping[str, str] | None = None,
) -> None:
    """A Parquet file of the batches, a row group each, with its digest; the same bytes for the same rows.

    `repetitive` columns are stored as a dictionary of their values, `notes` as the file's key-value pairs.
    """
    signed = {**(notes or {}), file_digest.KEY: file_digest.UNSIGNED}
    for _ in writing(file, schema, batches, repetitive=repetitive, notes=signed):
        pass
    file_digest.sign(file)


def writing(
    file: BinaryIO,
    schema: pa.Schema,
    batches: Iterable[pa.RecordBatch],
    *,
    repetitive: Collection[str] = (),
    notes: Mapping[str, str] | None = None,
) -> Iterator[None]:
    """The same without a digest, stopping after each batch: what is written by then may be taken away."""
    # without Arrow's own copy of the schema in it the file is as any other program would write it
    options = {"compression": "zstd", "use_dictionary": list(repetitive), "store_schema": False}
    with pq.ParquetWriter(file, schema, **options) as writer:
        for batch in batches:
            writer.write_batch(batch)
            yield
        if notes:
            writer.add_key_value_metadata(dict(notes))


def count(file: BinaryIO) -> int:
    """How many rows there are; they aren't read."""
    return int(pq.ParquetFile(file).metadata.num_rows)


def notes_of(file: BinaryIO) -> dict[str, str]:
    """The key-value pairs that `write` left in the file."""
    pairs = pq.ParquetFile(file).metadata.metadata or {}
    return {key.decode(): value.decode() for key, value in pairs.items()}


def read(file: BinaryIO, columns: Sequence[str]) -> Iterator[tuple[Any, ...]]:
    """The rows, just those columns of them, one after the other."""
    for batch in pq.ParquetFile(file).iter_batches(columns=list(columns), batch_size=ROWS_IN_MEMORY):
        yield from zip(*(batch.column(name).to_pylist() for name in columns), strict=True)
