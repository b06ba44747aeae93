"""Why records ended as they did, counted by what was said of them."""

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
    """A part a record."""
    for identifier, status, text in said:
        yield from chunk_records(
            [build_found_record("r1", build_record(identifier, status=status, status_message=text))]
        )


def test_reasons_are_counted_the_most_frequent_first() -> None:
    """With the newest record of each as an example."""
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


def test_reasons_of_one_part_are_counted_together() -> None:
    """A part has thousands of records."""
    records = [
        build_found_record(
            "r1", build_record(str(number), status="rejected", status_message="odd" if number % 2 else "even")
        )
        for number in range(1001)
    ]
    even, odd = count_reasons(chunk_records(records)).most_frequent
    assert (ReasonCount("rejected", "even", 501, "0"), ReasonCount("rejected", "odd", 500, "1")) == (even, odd)


def test_messages_that_all_differ_stay_in_bounds() -> None:
    """An API that puts the key into its message has a million of them."""
    records = parts(*((str(number), "rejected", f"row {number % 5}") for number in range(20)))
    told = count_reasons(records, most=2)
    assert [("row 0", 4), ("row 1", 4)] == [(reason.message, reason.records) for reason in told.most_frequent]
    assert (12, 20) == (told.other_records, told.records)


def test_nothing_has_no_reasons() -> None:
    assert ReasonCounts(most_frequent=()) == count_reasons(parts())
