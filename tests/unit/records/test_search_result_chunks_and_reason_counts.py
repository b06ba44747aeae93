"""The chunks of found records: merged in one order, sliced, and spooled to a file."""

from collections.abc import Iterator
from datetime import timedelta

import pytest
from support.files.sample_records import FIRST_RUN_AT, build_found_record, build_record

from ondatra_dagster.records import parquet_files, search_result_chunks_and_reason_counts
from ondatra_dagster.records.record_query import RecordStage, ResultRecord
from ondatra_dagster.records.search_result_chunks_and_reason_counts import (
    RecordChunk,
    SpooledChunks,
    chunk_records,
    iterate_records,
    merge_newest_first,
    slice_chunks,
)

NEXT_TRY = FIRST_RUN_AT + timedelta(minutes=5)


def records(*seconds: int) -> list[ResultRecord]:
    return [
        build_found_record("r", build_record(str(second), batch_ended_at=FIRST_RUN_AT + timedelta(seconds=second)))
        for second in seconds
    ]


def names(of: Iterator[RecordChunk]) -> list[str]:
    return [record.identifier for record in iterate_records(of)]


@pytest.fixture
def _small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parquet_files, "ROWS_IN_MEMORY", 2)


def test_records_are_read_back_unchanged() -> None:
    """Ended records and waiting ones keep all their values."""
    waiting = build_found_record("", build_record())._replace(
        status="waiting", run_id=None, batch_started_at=None, batch_ended_at=None, attempts=2, next_try_at=NEXT_TRY
    )
    several = [*records(1, 2), waiting]
    assert several == list(iterate_records(chunk_records(several)))
    assert [RecordStage.SUCCEEDED, RecordStage.SUCCEEDED, RecordStage.WAITING] == [record.stage for record in several]


@pytest.mark.usefixtures("_small_parts")
@pytest.mark.parametrize(
    ("offset", "limit", "expected"),
    [(0, None, "54321"), (0, 0, ""), (0, 3, "543"), (1, 3, "432"), (4, 9, "1"), (5, 1, ""), (9, None, "")],
)
def test_a_page_is_sliced_from_chunks(offset: int, limit: int | None, expected: str) -> None:
    """The chunk boundaries don't matter."""
    some = chunk_records(records(5, 4, 3, 2, 1))
    assert list(expected) == names(slice_chunks(some, offset=offset, limit=limit))


@pytest.mark.usefixtures("_small_parts")
def test_only_the_chunks_of_the_page_are_read() -> None:
    """Each chunk may be a file in a remote store."""
    chunks = []

    def some() -> Iterator[RecordChunk]:
        for part in chunk_records(records(5, 4, 3, 2, 1)):
            chunks.append(part)
            yield part

    assert ["5", "4"] == names(slice_chunks(some(), limit=2))
    assert 1 == len(chunks)


@pytest.mark.usefixtures("_small_parts")
def test_streams_are_merged_by_time() -> None:
    """The records may be distributed unevenly over the streams."""
    streams = [records(9, 8, 1), records(7, 6, 5, 4, 3, 2), [], records(10)]
    merged = merge_newest_first([chunk_records(stream) for stream in streams])
    assert ["10", "9", "8", "7", "6", "5", "4", "3", "2", "1"] == names(merged)


def test_records_with_the_same_time_keep_their_order() -> None:
    """Threads settle batches almost in the order of their ends, so each chunk is sorted."""
    several = [record._replace(identifier=name) for record, name in zip(records(3, 3, 4, 3, 2), "badce", strict=True)]
    assert list("dbace") == names(merge_newest_first([chunk_records(several)]))


@pytest.mark.usefixtures("_small_parts")
@pytest.mark.parametrize("in_memory", [1, 10_000_000])
def test_spooled_chunks_are_read_back(in_memory: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are in memory, or in a file if they are larger."""
    monkeypatch.setattr(search_result_chunks_and_reason_counts, "MAX_MEMORY_BYTES", in_memory)
    assert records(3, 2, 1) == list(iterate_records(SpooledChunks(chunk_records(records(3, 2, 1)))))
    assert [] == list(SpooledChunks(()))
