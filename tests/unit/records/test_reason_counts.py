"""The reasons why records ended, counted by message."""

from collections.abc import Iterator

from support.files.sample_records import build_found_record, build_record

from ondatra_dagster.records.search_result_chunks_and_reason_counts import (
    ReasonCount,
    ReasonCounts,
    RecordChunk,
    chunk_records,
    count_reasons,
)


def parts(*said: tuple[str, str, str | None]) -> Iterator[RecordChunk]:
    """Yield chunks of one record each."""
    for identifier, status, text in said:
        yield from chunk_records(
            [build_found_record("r1", build_record(identifier, status=status, status_message=text))]
        )


def test_reasons_are_counted_with_the_most_frequent_first() -> None:
    """Each reason has its newest record as an example."""
    records = parts(
        ("9", "rejected", "no plan"),
        ("8", "rejected", "no"),
        ("7", "rejected", "no plan"),
        ("6", "NULL", None),
        ("5", "rejected", None),
    )
    assert ReasonCounts(
        most_frequent=(
            ReasonCount("rejected", "no plan", 2, "9"),
            ReasonCount("rejected", "no", 1, "8"),
            ReasonCount("NULL", None, 1, "6"),
            ReasonCount("rejected", None, 1, "5"),
        )
    ) == count_reasons(records)


def test_reasons_of_one_chunk_are_counted_together() -> None:
    """A chunk has thousands of records."""
    records = [
        build_found_record(
            "r1", build_record(str(number), status="rejected", status_message="odd" if number % 2 else "even")
        )
        for number in range(1001)
    ]
    even, odd = count_reasons(chunk_records(records)).most_frequent
    assert (ReasonCount("rejected", "even", 501, "0"), ReasonCount("rejected", "odd", 500, "1")) == (even, odd)


def test_the_number_of_different_messages_is_limited() -> None:
    """An API that writes the key into its message produces a million different messages."""
    records = parts(*((str(number), "rejected", f"row {number % 5}") for number in range(20)))
    counts = count_reasons(records, max_reasons=2)
    assert [("row 0", 4), ("row 1", 4)] == [(reason.message, reason.records) for reason in counts.most_frequent]
    assert (12, 20) == (counts.other_records, counts.records)


def test_no_records_have_no_reasons() -> None:
    assert ReasonCounts(most_frequent=()) == count_reasons(parts())
