"""The digest in ondatra's Parquet files, and how other readers see it."""

import io

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ondatra_dagster.records import parquet_files
from ondatra_dagster.records.parquet_files import DigestError

ROWS = pa.table({"key": [str(key) for key in range(50)], "version": list(range(50))})


def a_file(**notes: str) -> bytes:
    file = io.BytesIO()
    parquet_files.write_file(file, ROWS.schema, ROWS.to_batches(), notes=notes)
    return file.getvalue()


def test_a_changed_bit_anywhere_in_a_file_is_detected() -> None:
    """The bit may be in the pages, their headers, the footer, the digest or the bytes around it."""
    content = a_file()

    for place in range(len(content)):
        changed = bytearray(content)
        changed[place] ^= 1 << place % 8
        with pytest.raises(DigestError):
            parquet_files.verify_digest(io.BytesIO(changed))


def test_a_truncated_file_is_detected() -> None:
    """It is detected at any length, and also when the file is empty."""
    content = a_file()

    for length in range(len(content)):
        with pytest.raises(DigestError):
            parquet_files.verify_digest(io.BytesIO(content[:length]))


def test_any_parquet_reader_can_read_a_file_with_a_digest() -> None:
    """The digest is one of the file's key-value pairs."""
    content = a_file(of="the user")

    read = pq.read_table(io.BytesIO(content), page_checksum_verification=True)

    assert ROWS.equals(read.replace_schema_metadata(None))
    assert b"the user" == read.schema.metadata[b"of"]


def test_a_text_in_a_file_is_never_read_as_the_digest() -> None:
    """This is also true for a text that looks exactly like a digest."""
    text = parquet_files.DIGEST_KEY + "\x18 " + parquet_files.EMPTY_DIGEST
    content = a_file(first=text, zlast=text)

    parquet_files.verify_digest(io.BytesIO(content))

    with pytest.raises(DigestError):
        parquet_files.verify_digest(io.BytesIO(content.replace(b"first", b"First")))
