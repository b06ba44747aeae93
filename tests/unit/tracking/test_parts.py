"""Found records in parts: put in one order, cut out, put aside."""

from collections.abc import Iterator
from datetime import timedelta

import pytest
from support.record_stores import BEGAN, a_record, found

from ondatra_dagster.tracking import parquet_files, parts
from ondatra_dagster.tracking.found import FoundRecord, Stage
from ondatra_dagster.tracking.parts import Aside, Part, newest_first, parts_of, records_of, window

NEXT_TRY = BEGAN + timedelta(minutes=5)


def records(*seconds: int) -> list[FoundRecord]:
    return [
        found("r", a_record(str(each), batch_ended_at=BEGAN + timedelta(seconds=each))) for each in seconds
    ]


def names(of: Iterator[Part]) -> list[str]:
    return [record.identifier for record in records_of(of)]


@pytest.fixture
def _small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parquet_files, "ROWS_IN_MEMORY", 2)


def test_records_come_back_as_they_were() -> None:
    """Those that ended and those that haven't, with what is known of each."""
    waiting = found("", a_record())._replace(
        status="waiting",
        run_id=None,
        batch_started_at=None,
        batch_ended_at=None,
        attempts=2,
        next_try_at=NEXT_TRY,
    )
    several = [*records(1, 2), waiting]
    assert several == list(records_of(parts_of(several)))
    assert [Stage.SUCCEEDED, Stage.SUCCEEDED, Stage.WAITING] == [record.stage for record in several]


@pytest.mark.usefixtures("_small_parts")
@pytest.mark.parametrize(
    ("offset", "limit", "expected"),
    [(0, None, "54321"), (0, 0, ""), (0, 3, "543"), (1, 3, "432"), (4, 9, "1"), (5, 1, ""), (9, None, "")],
)
def test_a_window_is_cut_out_of_parts(offset: int, limit: int | None, expected: str) -> None:
    """Wherever a part happens to end."""
    some = parts_of(records(5, 4, 3, 2, 1))
    assert list(expected) == names(window(some, offset=offset, limit=limit))


@pytest.mark.usefixtures("_small_parts")
def test_no_more_parts_are_made_than_a_window_takes() -> None:
    """Each of them may be a file far away."""
    made = []

    def some() -> Iterator[Part]:
        for part in parts_of(records(5, 4, 3, 2, 1)):
            made.append(part)
            yield part

    assert ["5", "4"] == names(window(some(), limit=2))
    assert 1 == len(made)


@pytest.mark.usefixtures("_small_parts")
def test_streams_become_one_in_the_order_of_time() -> None:
    """However unevenly they are spread."""
    streams = [records(9, 8, 1), records(7, 6, 5, 4, 3, 2), [], records(10)]
    merged = newest_first([parts_of(each) for each in streams])
    assert ["10", "9", "8", "7", "6", "5", "4", "3", "2", "1"] == names(merged)


def test_what_ended_together_keeps_its_order() -> None:
    """Threads settle their batches nearly in the order of their ends: within a part it is put right."""
    several = [
        record._replace(identifier=name) for record, name in zip(records(3, 3, 4, 3, 2), "badce", strict=True)
    ]
    assert list("dbace") == names(newest_first([parts_of(several)]))


@pytest.mark.usefixtures("_small_parts")
@pytest.mark.parametrize("in_memory", [1, 10_000_000])
def test_what_is_put_aside_comes_back(in_memory: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """From memory, or from a file where it is more."""
    monkeypatch.setattr(parts, "IN_MEMORY", in_memory)
    assert records(3, 2, 1) == list(records_of(Aside(parts_of(records(3, 2, 1)))))
    assert [] == list(Aside(()))
