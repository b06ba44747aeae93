"""The file of events: what is taken stays, numbers never come twice, one process writes."""

import random
import resource
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from ondatra_dagster.collector.event_file import (
    EventFile,
    Intake,
    Taken,
    Waiting,
    event_path,
    held_file,
    numbering_of,
    page_after,
    waiting_after,
)
from ondatra_dagster.errors import BusyError, FullError
from ondatra_dagster.project.settings.settings import Settings, read_settings

MODEL = "events.views"


def an_intake(*, model: str = MODEL, events: int = 1, key: str | None = None, body: bytes = b"{}") -> Intake:
    return Intake(model, 1_800_000_000_000_000, events, body, key)


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return read_settings(tmp_path, {})


@pytest.fixture
def file(settings: Settings) -> Iterator[EventFile]:
    with held_file(settings, "a test") as file:
        yield file


def numbers(settings: Settings, model: str = MODEL) -> list[int]:
    return [intake.number for intake in page_after(event_path(settings), model, 0, most=1000)]


def test_a_number_is_never_given_twice(file: EventFile, settings: Settings) -> None:
    """A table knows by it what it has: under an old number a new event would be lost."""
    file.take([an_intake(), an_intake()])
    assert [1, 2] == numbers(settings)
    while file.forget(MODEL, 2):
        pass
    assert [] == numbers(settings)
    file.take([an_intake()])
    assert [3] == numbers(settings)


def test_numbers_go_on_after_those_that_a_table_has(file: EventFile, settings: Settings) -> None:
    """Somebody has put an older copy of the file back."""
    file.number_from(7)
    file.take([an_intake()])
    file.number_from(3)
    file.take([an_intake()])
    assert [8, 9] == numbers(settings)


def test_another_file_is_another_numbering(settings: Settings) -> None:
    """It begins to count anew, and nothing of it may pass for what came before."""
    with held_file(settings, "a test"):
        first = numbering_of(event_path(settings))
    event_path(settings).unlink()
    with held_file(settings, "a test"):
        assert first != numbering_of(event_path(settings))


def test_what_waits_is_counted_by_model_after_a_number(file: EventFile, settings: Settings) -> None:
    file.take([an_intake(events=2), an_intake(model="events.other"), an_intake(events=5)])
    path, numbering = event_path(settings), file.numbering
    assert Waiting(7, 1.8e9, f"{numbering}@1") == waiting_after(path, MODEL, 0)
    assert Waiting(5, 1.8e9, f"{numbering}@3") == waiting_after(path, MODEL, 1)
    assert Waiting() == waiting_after(path, MODEL, 3)
    assert {MODEL: 7, "events.other": 1} == file.events()
    assert {MODEL: 1.8e9} == file.oldest([MODEL, "events.none"])


def test_a_key_is_known_while_it_is_kept(file: EventFile) -> None:
    """Also within one commit, and for each model by itself."""
    again, other = an_intake(key="k"), an_intake(key="k", body=b'{"a":1}')
    elsewhere = an_intake(key="k", model="events.other")
    assert [Taken.NEW, Taken.REPEATED, Taken.OTHER_BODY, Taken.NEW] == file.take(
        [again, again, other, elsewhere]
    )
    file.forget_keys(an_intake().received_at + 1)
    assert [Taken.NEW] == file.take([again])


def test_one_process_writes_the_file_and_the_message_says_which(file: EventFile, settings: Settings) -> None:
    """Two would give the same numbers, and SQLite's log has a fault that two writers meet."""
    with (
        pytest.raises(BusyError, match=r"events\.sqlite is held by process \d+ \(a test\)"),
        held_file(settings, "2"),
    ):
        pass


def test_a_full_disk_keeps_what_was_taken_and_takes_the_rest_later(
    file: EventFile, settings: Settings
) -> None:
    """A transaction that doesn't fit is gone as a whole; the next that fits is taken."""
    file.take([an_intake()])
    pages = file._store.rows("pragma page_count")[0][0]
    file._store.rows(f"pragma max_page_count = {pages + 2}")
    with pytest.raises(
        FullError, match=r"events\.sqlite can't be written: the disk at /\S* is full; make room"
    ):
        file.take([an_intake(body=random.Random(1).randbytes(100_000))])
    assert [1] == numbers(settings)
    assert [Taken.NEW] == file.take([an_intake()])


def test_a_file_that_can_not_grow_is_let_go_with_all_that_was_taken(settings: Settings) -> None:
    """The log holds it until there is room: a collector that is told to end on a full disk ends well."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    try:
        with held_file(settings, "a test") as file:
            file.take([an_intake(body=random.Random(1).randbytes(100_000)) for _ in range(3)])
            resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, limits[1]))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert [1, 2, 3] == numbers(settings)


def test_commits_wait_for_the_disk(file: EventFile) -> None:
    """With anything less, an acknowledged event is lost when the power goes."""
    assert [("wal",)] == file._store.rows("pragma journal_mode")
    assert [(2,)] == file._store.rows("pragma synchronous")  # full


def test_a_file_without_tables_yet_counts_as_none(settings: Settings) -> None:
    """Its maker was killed in the middle of it."""
    path = event_path(settings)
    path.parent.mkdir()
    sqlite3.connect(path).close()
    path.touch()
    assert (None, Waiting(), []) == (
        numbering_of(path),
        waiting_after(path, MODEL, 0),
        page_after(path, MODEL, 0, most=1),
    )
