"""The event file: accepted events stay, each number is used once, and one process writes."""

import random
import resource
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from ondatra_dagster.collector.event_store import (
    EventRequest,
    EventStore,
    PendingSummary,
    StoreResult,
    event_store_path,
    open_locked_store,
    read_page_after,
    read_sequence_id,
    summarize_pending,
)
from ondatra_dagster.errors import BusyError, DiskFullError
from ondatra_dagster.project.settings.read_settings_and_defaults import Settings, read_settings

MODEL = "events.views"


def an_intake(*, model: str = MODEL, events: int = 1, key: str | None = None, body: bytes = b"{}") -> EventRequest:
    return EventRequest(model, 1_800_000_000_000_000, events, body, key)


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return read_settings(tmp_path, {})


@pytest.fixture
def file(settings: Settings) -> Iterator[EventStore]:
    with open_locked_store(settings, "a test") as file:
        yield file


def numbers(settings: Settings, model: str = MODEL) -> list[int]:
    return [intake.number for intake in read_page_after(event_store_path(settings), model, 0, limit=1000)]


def test_a_number_is_never_used_twice(file: EventStore, settings: Settings) -> None:
    """A table remembers the numbers that it has, so a new event with an old number would be lost."""
    file.store_requests([an_intake(), an_intake()])
    assert [1, 2] == numbers(settings)
    while file.delete_up_to(MODEL, 2):
        pass
    assert [] == numbers(settings)
    file.store_requests([an_intake()])
    assert [3] == numbers(settings)


def test_numbers_continue_after_those_in_the_table(file: EventStore, settings: Settings) -> None:
    """The user may have restored an older copy of the file."""
    file.raise_last_number(7)
    file.store_requests([an_intake()])
    file.raise_last_number(3)
    file.store_requests([an_intake()])
    assert [8, 9] == numbers(settings)


def test_another_file_has_another_sequence_id(settings: Settings) -> None:
    """It counts from one again, and its events must not be confused with earlier ones."""
    with open_locked_store(settings, "a test"):
        first = read_sequence_id(event_store_path(settings))
    event_store_path(settings).unlink()
    with open_locked_store(settings, "a test"):
        assert first != read_sequence_id(event_store_path(settings))


def test_waiting_events_are_counted_by_model_after_a_number(file: EventStore, settings: Settings) -> None:
    file.store_requests([an_intake(events=2), an_intake(model="events.other"), an_intake(events=5)])
    path, numbering = event_store_path(settings), file.sequence_id
    assert PendingSummary(7, 1.8e9, f"{numbering}@1") == summarize_pending(path, MODEL, 0)
    assert PendingSummary(5, 1.8e9, f"{numbering}@3") == summarize_pending(path, MODEL, 1)
    assert PendingSummary() == summarize_pending(path, MODEL, 3)
    assert {MODEL: 7, "events.other": 1} == file.count_events()
    assert {MODEL: 1.8e9} == file.read_oldest_times([MODEL, "events.none"])


def test_a_key_is_known_until_it_is_deleted(file: EventStore) -> None:
    """This holds within one commit too, and for each model separately."""
    again, other = an_intake(key="k"), an_intake(key="k", body=b'{"a":1}')
    elsewhere = an_intake(key="k", model="events.other")
    assert [StoreResult.NEW, StoreResult.REPEATED, StoreResult.KEY_CONFLICT, StoreResult.NEW] == file.store_requests(
        [again, again, other, elsewhere]
    )
    file.delete_keys(an_intake().received_at + 1)
    assert [StoreResult.NEW] == file.store_requests([again])


def test_one_process_writes_the_file_and_the_message_says_which(file: EventStore, settings: Settings) -> None:
    """Two would use the same numbers, and SQLite's log has a bug that needs two writers."""
    with (
        pytest.raises(BusyError, match=r"events\.sqlite is held by process \d+ \(a test\)"),
        open_locked_store(settings, "2"),
    ):
        pass


def test_accepted_events_stay_on_a_full_disk_and_new_ones_are_accepted_later(
    file: EventStore, settings: Settings
) -> None:
    """A transaction that doesn't fit is rolled back as a whole. The next one that fits is stored."""
    file.store_requests([an_intake()])
    pages = file._store.fetch_rows("pragma page_count")[0][0]
    file._store.fetch_rows(f"pragma max_page_count = {pages + 2}")
    with pytest.raises(DiskFullError, match=r"events\.sqlite can't be written: the disk at /\S* is full; make room"):
        file.store_requests([an_intake(body=random.Random(1).randbytes(100_000))])
    assert [1] == numbers(settings)
    assert [StoreResult.NEW] == file.store_requests([an_intake()])


def test_a_file_that_can_not_grow_is_closed_with_all_accepted_events(settings: Settings) -> None:
    """The log has them until there is room, so a collector can end without an error on a full disk."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    try:
        with open_locked_store(settings, "a test") as file:
            file.store_requests([an_intake(body=random.Random(1).randbytes(100_000)) for _ in range(3)])
            resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, limits[1]))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert [1, 2, 3] == numbers(settings)


def test_commits_wait_for_the_disk(file: EventStore) -> None:
    """With a weaker setting, a power cut would lose an acknowledged event."""
    assert [("wal",)] == file._store.fetch_rows("pragma journal_mode")
    assert [(2,)] == file._store.fetch_rows("pragma synchronous")  # full


def test_a_file_without_tables_counts_as_no_file(settings: Settings) -> None:
    """The process that created it was killed before it created the tables."""
    path = event_store_path(settings)
    path.parent.mkdir()
    sqlite3.connect(path).close()
    path.touch()
    assert (None, PendingSummary(), []) == (
        read_sequence_id(path),
        summarize_pending(path, MODEL, 0),
        read_page_after(path, MODEL, 0, limit=1),
    )
