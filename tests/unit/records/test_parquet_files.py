"""The digest inside of Parquet files of ours, and what other readers see of it."""

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


def test_a_changed_bit_anywhere_in_a_file_is_noticed() -> None:
    """In its pages, their headers, the footer, the digest itself and the bytes around it."""
    content = a_file()

    for place in range(len(content)):
        changed = bytearray(content)
        changed[place] ^= 1 << place % 8
        with pytest.raises(DigestError):
            parquet_files.verify_digest(io.BytesIO(changed))


def test_a_file_that_was_cut_off_is_noticed() -> None:
    """At any length, none included."""
    content = a_file()

    for length in range(len(content)):
        with pytest.raises(DigestError):
            parquet_files.verify_digest(io.BytesIO(content[:length]))


def test_any_reader_of_parquet_reads_a_file_with_its_digest() -> None:
    """It is a key-value pair among others."""
    content = a_file(of="the user")

    read = pq.read_table(io.BytesIO(content), page_checksum_verification=True)

    assert ROWS.equals(read.replace_schema_metadata(None))
    assert b"the user" == read.schema.metadata[b"of"]


def test_a_text_in_a_file_passes_for_no_digest() -> None:
    """Also one that is spelled as a digest is."""
    text = parquet_files.DIGEST_KEY + "\x18 " + parquet_files.EMPTY_DIGEST
    content = a_file(first=text, zlast=text)

    parquet_files.verify_digest(io.BytesIO(content))

    with pytest.raises(DigestError):
        parquet_files.verify_digest(io.BytesIO(content.replace(b"first", b"First")))
