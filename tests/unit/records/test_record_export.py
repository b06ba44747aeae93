"""The export of found records, read back with the programs that users open the files with."""

import csv
import json
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.files.sample_records import FIRST_RUN_AT, RECORDS_SYNC, build_found_record, build_record

from ondatra_dagster.records.record_export import EXPORT_WRITERS, write_export
from ondatra_dagster.records.record_export import stream_export as pieces
from ondatra_dagster.records.record_query import RESULT_SCHEMA, ResultRecord
from ondatra_dagster.records.record_schema import RECORD_SCHEMA
from ondatra_dagster.records.search_result_chunks_and_reason_counts import RecordChunk, chunk_records

ENDED = build_found_record("r1", build_record("7", status="rejected", status_message='no "such", \nplan'))
WAITING = ResultRecord(
    **ENDED._asdict()
    | {
        "status": "waiting",
        "status_message": None,
        "batch_started_at": None,
        "batch_ended_at": None,
        "run_id": None,
        "rowid": -5,
        "attempts": 2,
        "next_try_at": FIRST_RUN_AT + timedelta(seconds=1.5),
    }
)


def download(path: Path, *records: ResultRecord) -> int:
    return write_export(chunk_records(records), path)


def read_csv(path: Path) -> list[dict[str, str]]:
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def test_a_csv_has_one_line_per_record(tmp_path: Path) -> None:
    """It has all columns, at every stage of a record."""
    path = tmp_path / "records.csv"
    assert 2 == download(path, WAITING, ENDED)
    waiting, ended = read_csv(path)
    assert RESULT_SCHEMA.names == list(ended)
    assert ('no "such", \nplan', '{"id":"x"}', "2026-11-18 12:00:00.000000Z", "", "") == (
        ended["status_message"],
        ended["record_payload"],
        ended["batch_ended_at"],
        ended["attempts"],
        ended["next_try_at"],
    )
    assert ("", "-5", "2", "2026-11-18 12:00:01.500000Z") == (
        waiting["sync_run_id"],
        waiting["__ondatra_rowid"],
        waiting["attempts"],
        waiting["next_try_at"],
    )


@pytest.mark.parametrize("text", ["=1+1", "+1", "-1", "@SUM(A1)", "\t=1", "\r=1", "=", '=HYPERLINK("http://x")'])
def test_a_csv_has_no_formulas(tmp_path: Path, text: str) -> None:
    """A customer's name could be a formula, and a spreadsheet would execute it."""
    path = tmp_path / "records.csv"
    download(path, ENDED._replace(identifier=text, payload=text, status_message=text))
    (line,) = read_csv(path)
    assert [f"'{text}"] * 3 == [line[name] for name in ("identifier", "record_payload", "status_message")]


@pytest.mark.parametrize("text", ["", "1-1", "a=b", "'=1", " =1", "é", "\n=1"])
def test_other_texts_are_not_changed_in_a_csv(tmp_path: Path, text: str) -> None:
    """An additional apostrophe would change the value."""
    path = tmp_path / "records.csv"
    download(path, ENDED._replace(identifier=text))
    assert [text] == [line["identifier"] for line in read_csv(path)]


def test_json_is_an_array_of_objects_with_payloads_as_objects(tmp_path: Path) -> None:
    """Numbers keep all their digits, because the payload is copied without changes."""
    path = tmp_path / "records.json"
    payload = '{"id":12345678901234567890,"nested":{"a":[1,null]}}'
    assert 2 == download(path, WAITING, ENDED._replace(payload=payload))
    waiting, ended = json.loads(path.read_text())
    assert RESULT_SCHEMA.names == list(ended)
    assert json.loads(payload) == ended["record_payload"]
    assert ("2026-11-18T12:00:00.000000Z", None) == (ended["batch_ended_at"], ended["attempts"])
    assert ("2026-11-18T12:00:01.500000Z", 2, None) == (
        waiting["next_try_at"],
        waiting["attempts"],
        waiting["sync_run_id"],
    )


def test_parquet_has_the_columns_and_types_of_the_published_files(tmp_path: Path) -> None:
    """One query can read both."""
    path = tmp_path / "records.parquet"
    download(path, WAITING, ENDED)
    table = pq.read_table(path)
    assert RECORD_SCHEMA.equals(table.schema.remove_metadata())
    assert [RECORDS_SYNC, RECORDS_SYNC] == table["sync_configuration_id"].to_pylist()
    assert [None, "r1"] == table["sync_run_id"].to_pylist()


@pytest.mark.parametrize("suffix", EXPORT_WRITERS)
def test_duckdb_reads_any_format_even_without_records(tmp_path: Path, suffix: str) -> None:
    """The documentation queries records with DuckDB."""
    reader = {".csv": "read_csv", ".json": "read_json", ".parquet": "read_parquet"}[suffix]
    path = tmp_path / f"records{suffix}"
    query = f"select identifier from {reader}('{path}')"
    download(path, *[ENDED] * 3)
    assert 3 == len(duckdb.sql(query).fetchall())
    download(path)
    if suffix == ".json":  # an empty array has no column names
        assert [] == json.loads(path.read_text())
    else:
        assert [] == duckdb.sql(query).fetchall()


@pytest.mark.parametrize("suffix", EXPORT_WRITERS)
def test_a_download_is_complete_or_missing(tmp_path: Path, suffix: str) -> None:
    """An earlier file remains until the new one is complete."""
    path = tmp_path / f"records{suffix}"
    path.write_text("before")

    def broken() -> Iterator[RecordChunk]:
        yield from chunk_records([ENDED])
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_export(broken(), path)
    assert [("before", path)] == [(file.read_text(), file) for file in tmp_path.iterdir()]
    assert 1 == download(path, ENDED)
    assert "before" != path.read_bytes()[:6]


def test_a_link_remains_a_link(tmp_path: Path) -> None:
    """Users link to a disk with enough space."""
    (tmp_path / "there").mkdir()
    link = tmp_path / "records.csv"
    link.symlink_to(tmp_path / "there" / "large.csv")
    download(link, ENDED)
    assert link.is_symlink()
    assert 1 == len(read_csv(tmp_path / "there" / "large.csv"))


def test_a_folder_is_neither_replaced_nor_created(tmp_path: Path) -> None:
    """Both would be a mistake in the user's path."""
    (tmp_path / "records.csv").mkdir()
    with pytest.raises(IsADirectoryError):
        download(tmp_path / "records.csv", ENDED)
    with pytest.raises(FileNotFoundError):
        download(tmp_path / "nope" / "records.csv", ENDED)
    assert ["records.csv"] == [path.name for path in tmp_path.iterdir()]


def test_many_records_are_written_in_chunks(tmp_path: Path) -> None:
    """The memory that a download needs doesn't grow with its size."""
    chunk_count = 0

    def many() -> Iterator[RecordChunk]:
        nonlocal chunk_count
        (part,) = chunk_records([ENDED] * 1_000)
        before = pa.total_allocated_bytes()
        for _ in range(100):
            chunk_count += 1
            yield part.slice(0)
            assert pa.total_allocated_bytes() < before + 5_000_000

    assert 100_000 == write_export(many(), tmp_path / "records.csv")
    assert 100 == chunk_count


@pytest.mark.parametrize("ending", EXPORT_WRITERS)
def test_a_streamed_download_is_the_same_file(tmp_path: Path, ending: str) -> None:
    """It is sent in chunks. None of them is the whole file, which may be larger than the memory."""
    records = [ENDED._replace(identifier=str(number), payload='{"id":"x"}') for number in range(25_000)]
    path = tmp_path / f"records{ending}"
    download(path, *records)
    chunks = list(pieces(chunk_records(records), ending))
    assert path.read_bytes() == b"".join(chunks)
    assert 3 <= len(chunks)
    assert max(map(len, chunks)) < len(path.read_bytes())


@pytest.mark.parametrize("ending", EXPORT_WRITERS)
def test_a_download_without_records_is_complete_too(tmp_path: Path, ending: str) -> None:
    path = tmp_path / f"records{ending}"
    download(path)
    assert path.read_bytes() == b"".join(pieces(chunk_records([]), ending))
