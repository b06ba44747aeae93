"""The reading and writing of Parquet files, each with a digest of its whole content in its footer.

Parquet's page checksums leave out the footer and the pages' headers. The digest covers all bytes of the file;
the bytes of the digest itself count as zeros. The digest is one of the footer's key-value pairs, so other
readers of Parquet ignore it.
"""

import hashlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, BinaryIO, Final, TypeVar

import pyarrow as pa
import pyarrow.parquet as pq

DIGEST_KEY: Final = "ondatra.digest"
_DIGEST_LENGTH = 32  # hexadecimal digits
EMPTY_DIGEST: Final = "0" * _DIGEST_LENGTH


# Thrift's encoding of the key-value pair: the key, then a string field (0x18) and the string's length
_DIGEST_PREFIX = DIGEST_KEY.encode() + bytes((0x18, _DIGEST_LENGTH))
_TAIL_BYTES = 8  # bytes after the footer: its length, and the magic number
_READ_BYTES = 8 << 20  # bytes per read, so that a record file takes few requests to a bucket


class DigestError(pa.ArrowInvalid):  # type: ignore[misc]  # pyarrow has no types
    """The error of a file whose bytes don't match its digest."""


def write_digest(file: BinaryIO) -> None:
    """Write a Parquet file's digest in place of EMPTY_DIGEST; the file must be open for reading and writing."""
    position, digest = _compute_digest(file)
    file.seek(position)
    file.write(digest)
    file.seek(0, 2)


def verify_digest(file: BinaryIO) -> None:
    """Raise DigestError if the file's bytes don't match its digest; otherwise seek to the file's beginning."""
    position, digest = _compute_digest(file)
    file.seek(position)
    if file.read(_DIGEST_LENGTH) != digest:
        raise DigestError("its digest shows that it is damaged")
    file.seek(0)


def read_digest(file: BinaryIO) -> tuple[int, bytes]:
    """Return a file's size and the digest stored in it, without verifying it; seek to the file's beginning."""
    position, size = _find_digest(file), file.seek(0, 2)
    file.seek(position)
    digest = file.read(_DIGEST_LENGTH)
    file.seek(0)
    return size, digest


def _compute_digest(file: BinaryIO) -> tuple[int, bytes]:
    """Return the position of the stored digest in the file, and the digest computed from the file's bytes."""
    position = _find_digest(file)
    digest = hashlib.blake2b(digest_size=_DIGEST_LENGTH // 2)
    file.seek(0)
    for chunk in _read_chunks(file, position):
        digest.update(chunk)
    file.seek(position + _DIGEST_LENGTH)
    digest.update(EMPTY_DIGEST.encode())
    for chunk in _read_chunks(file, None):
        digest.update(chunk)
    return position, digest.hexdigest().encode()


def _find_digest(file: BinaryIO) -> int:
    size = file.seek(0, 2)
    file.seek(max(size - _TAIL_BYTES, 0))
    tail = file.read(_TAIL_BYTES)
    footer_length = int.from_bytes(tail[:4], "little")
    if len(tail) < _TAIL_BYTES or footer_length + _TAIL_BYTES > size:
        raise DigestError("it has no footer")
    file.seek(size - _TAIL_BYTES - footer_length)
    # the last match, because earlier matches may be texts of the user
    offset = file.read(footer_length).rfind(_DIGEST_PREFIX)
    if offset < 0:
        raise DigestError("it has no digest")
    return size - _TAIL_BYTES - footer_length + offset + len(_DIGEST_PREFIX)


def _read_chunks(file: BinaryIO, upto: int | None) -> Iterator[bytes]:
    """Yield the file's next bytes in chunks: `upto` bytes, or all bytes until the end if `upto` is None."""
    remaining_bytes = upto
    while chunk := file.read(_READ_BYTES if remaining_bytes is None else min(remaining_bytes, _READ_BYTES)):
        yield chunk
        if remaining_bytes is not None:
            remaining_bytes -= len(chunk)


Row = TypeVar("Row", bound=tuple[Any, ...])
ROWS_IN_MEMORY = 10_000
CHARACTERS_IN_MEMORY = 16_000_000  # a second limit, on the length of the rows' texts: one row may be a whole invoice


def chunk_rows(rows: Iterable[Row], weigh: Callable[[Row], int]) -> Iterator[list[Row]]:
    """Yield the rows in lists that fit in memory; the same rows always give the same lists."""
    chunk: list[Row] = []
    weight = 0
    for row in rows:
        chunk.append(row)
        weight += weigh(row)
        if len(chunk) == ROWS_IN_MEMORY or weight >= CHARACTERS_IN_MEMORY:
            yield chunk
            chunk, weight = [], 0
    if chunk:
        yield chunk


def build_batches(rows: Iterable[Row], schema: pa.Schema, weigh: Callable[[Row], int]) -> Iterator[pa.RecordBatch]:
    """Yield the rows as Arrow record batches, each with as many rows as fit in memory."""
    for chunk in chunk_rows(rows, weigh):
        columns = zip(zip(*chunk, strict=True), schema, strict=True)
        yield pa.RecordBatch.from_arrays([pa.array(column, field.type) for column, field in columns], schema=schema)


def write_file(
    file: BinaryIO,
    schema: pa.Schema,
    batches: Iterable[pa.RecordBatch],
    *,
    repetitive: Collection[str] = (),
    notes: Mapping[str, str] | None = None,
) -> None:
    """Write the batches as a Parquet file with a digest. Each batch is a row group; equal rows give equal bytes.

    `repetitive` columns are stored as a dictionary of their values, `notes` as the file's key-value pairs.
    """
    notes_with_digest = {**(notes or {}), DIGEST_KEY: EMPTY_DIGEST}
    for _ in write_batches(file, schema, batches, repetitive=repetitive, notes=notes_with_digest):
        pass
    write_digest(file)


def write_batches(
    file: BinaryIO,
    schema: pa.Schema,
    batches: Iterable[pa.RecordBatch],
    *,
    repetitive: Collection[str] = (),
    notes: Mapping[str, str] | None = None,
) -> Iterator[None]:
    """Write the batches as a Parquet file without a digest.

    Yield after each batch, so that the caller can drain the bytes written so far. The parameters are those of
    write_file().
    """
    # without Arrow's copy of the schema, the file looks like a file of any other program
    options = {"compression": "zstd", "use_dictionary": list(repetitive), "store_schema": False}
    with pq.ParquetWriter(file, schema, **options) as writer:
        for batch in batches:
            writer.write_batch(batch)
            yield
        if notes:
            writer.add_key_value_metadata(dict(notes))


def read_notes(file: BinaryIO) -> dict[str, str]:
    """Return the key-value pairs in a Parquet file's footer."""
    pairs = pq.ParquetFile(file).metadata.metadata or {}
    return {key.decode(): value.decode() for key, value in pairs.items()}


def read_rows(file: BinaryIO, columns: Sequence[str]) -> Iterator[tuple[Any, ...]]:
    """Yield the rows of a Parquet file one by one, with only these columns."""
    for batch in pq.ParquetFile(file).iter_batches(columns=list(columns), batch_size=ROWS_IN_MEMORY):
        yield from zip(*(batch.column(name).to_pylist() for name in columns), strict=True)
