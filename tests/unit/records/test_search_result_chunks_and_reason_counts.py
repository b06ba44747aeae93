"""Found records in parts: put in one order, cut out, put aside."""

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
        build_found_record("r", build_record(str(each), batch_ended_at=FIRST_RUN_AT + timedelta(seconds=each)))
        for each in seconds
    ]


def names(of: Iterator[RecordChunk]) -> list[str]:
    return [record.identifier for record in iterate_records(of)]


@pytest.fixture
def _small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parquet_files, "ROWS_IN_MEMORY", 2)


def test_records_come_back_as_they_were() -> None:
    """Those that ended and those that haven't, with what is known of each."""
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
def test_a_window_is_cut_out_of_parts(offset: int, limit: int | None, expected: str) -> None:
    """Wherever a part happens to end."""
    some = chunk_records(records(5, 4, 3, 2, 1))
    assert list(expected) == names(slice_chunks(some, offset=offset, limit=limit))


@pytest.mark.usefixtures("_small_parts")
def test_no_more_parts_are_made_than_a_window_takes() -> None:
    """Each of them may be a file far away."""
    made = []

    def some() -> Iterator[RecordChunk]:
        for part in chunk_records(records(5, 4, 3, 2, 1)):
            made.append(part)
            yield part

    assert ["5", "4"] == names(slice_chunks(some(), limit=2))
    assert 1 == len(made)


@pytest.mark.usefixtures("_small_parts")
def test_streams_become_one_in_the_order_of_time() -> None:
    """However unevenly they are spread."""
    streams = [records(9, 8, 1), records(7, 6, 5, 4, 3, 2), [], records(10)]
    merged = merge_newest_first([chunk_records(each) for each in streams])
    assert ["10", "9", "8", "7", "6", "5", "4", "3", "2", "1"] == names(merged)


def test_what_ended_together_keeps_its_order() -> None:
    """Threads settle their batches nearly in the order of their ends: within a part it is put right."""
    several = [record._replace(identifier=name) for record, name in zip(records(3, 3, 4, 3, 2), "badce", strict=True)]
    assert list("dbace") == names(merge_newest_first([chunk_records(several)]))


@pytest.mark.usefixtures("_small_parts")
@pytest.mark.parametrize("in_memory", [1, 10_000_000])
def test_what_is_put_aside_comes_back(in_memory: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """From memory, or from a file where it is more."""
    monkeypatch.setattr(search_result_chunks_and_reason_counts, "MAX_MEMORY_BYTES", in_memory)
    assert records(3, 2, 1) == list(iterate_records(SpooledChunks(chunk_records(records(3, 2, 1)))))
    assert [] == list(SpooledChunks(()))
