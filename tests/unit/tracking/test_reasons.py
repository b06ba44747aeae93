"""Why records ended as they did, counted by what was said of them."""

from collections.abc import Iterator

from support.record_stores import a_record, found

from ondatra_dagster.tracking.parts import Part, parts_of
from ondatra_dagster.tracking.reasons import Reason, Reasons, reasons_of


def parts(*said: tuple[str, str, str | None]) -> Iterator[Part]:
    """A part a record."""
    for identifier, status, text in said:
        yield from parts_of([found("r1", a_record(identifier, status=status, status_message=text))])


def test_reasons_are_counted_the_most_frequent_first() -> None:
    """With the newest record of each as an example."""
    records = parts(
        ("9", "rejected", "no plan"),
        ("8", "rejected", "no"),
        ("7", "rejected", "no plan"),
        ("6", "NULL", None),
        ("5", "rejected", None),
    )
    assert Reasons(
        listed=(
            Reason("rejected", "no plan", 2, "9"),
            Reason("rejected", "no", 1, "8"),
            Reason("NULL", None, 1, "6"),
            Reason("rejected", None, 1, "5"),
        )
    ) == reasons_of(records)


def test_reasons_of_one_part_are_counted_together() -> None:
    """A part has thousands of records."""
    records = [
        found("r1", a_record(str(number), status="rejected", status_message="odd" if number % 2 else "even"))
        for number in range(1001)
    ]
    even, odd = reasons_of(parts_of(records)).listed
    assert (Reason("rejected", "even", 501, "0"), Reason("rejected", "odd", 500, "1")) == (even, odd)


def test_messages_that_all_differ_stay_in_bounds() -> None:
    """An API that puts the key into its message has a million of them."""
    records = parts(*((str(number), "rejected", f"row {number % 5}") for number in range(20)))
    told = reasons_of(records, most=2)
    assert [("row 0", 4), ("row 1", 4)] == [(reason.message, reason.records) for reason in told.listed]
    assert (12, 20) == (told.others, told.records)


def test_nothing_has_no_reasons() -> None:
    assert Reasons(listed=()) == reasons_of(parts())
