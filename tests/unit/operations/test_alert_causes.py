"""What counts as another cause of a failure, and how often its change is told."""

from pathlib import Path

import pytest

from ondatra_dagster.operations.alert_book import (
    MOST_CAUSES,
    Alert,
    AlertBook,
    Reading,
    State,
    SubjectType,
)
from ondatra_dagster.operations.alerts import cause_of, read_crash, read_failure

SAME = [
    ("nothing was delivered of 20 attempted rows", "nothing was delivered of 3 attempted rows"),
    (
        "a row has waited for 24.1 hours, longer than @max_lag",
        "a row has waited for 30 hours, longer than @max_lag",
    ),
    (
        "models/sync/crm.sql:8: column `lastnme` cannot be resolved",
        "models/sync/crm.sql:9: column `lastnme` cannot be resolved",
    ),
    ("the value 'ada@example.com' can't be cast", "the value 'bob' can't be cast"),
    ("it is held until 2026-11-19T18:00:00Z", "it is held until 2026-11-20T06:30:00Z"),
]
DIFFERENT = [
    (
        "nothing was delivered of 2 attempted rows (HTTP 401)",
        "nothing was delivered of 2 attempted rows (HTTP 409)",
    ),
    ("crm.sql:8: column `lastnme` cannot be resolved", "crm.sql:8: column `emial` cannot be resolved"),
    ("lib/crm.star needs CRM_TOKEN; set it in .env", "lib/crm.star needs CRM_KEY; set it in .env"),
    ("it isn't there and can't be read", "it isn't there and can't be written"),
]


@pytest.mark.parametrize(("one", "other"), SAME)
def test_numbers_times_and_values_make_no_other_cause(one: str, other: str) -> None:
    """Else each run of a sync that fails would send a message."""
    assert cause_of(one) == cause_of(other)


@pytest.mark.parametrize(("one", "other"), DIFFERENT)
def test_another_reason_is_another_cause(one: str, other: str) -> None:
    """A status and a name in backticks are part of the cause."""
    assert cause_of(one) != cause_of(other)


@pytest.mark.parametrize(
    ("detail", "told"),
    [
        ("HTTP 401: ada@example.com has no access", " (HTTP 401)"),
        ('lib/crm.star:33: Key "ada@example.com" was not found', " (lib/crm.star:33)"),
        ("push() returned 'ada@example.com' for this row", " (push() returned)"),
        ("ada@example.com is no address", ""),
    ],
)
def test_an_api_s_words_stay_on_this_machine(detail: str, told: str) -> None:
    """Only what kind of error it was is sent; `ondatra status` shows all of it."""
    reading = read_failure(SubjectType.SYNC, "sync.crm", ["nothing was delivered"], detail=detail)
    assert f"nothing was delivered{told}" == reading.sentence
    assert f"nothing was delivered: {detail}" == reading.local_sentence


def note(book: AlertBook, *sentences: str) -> list[State]:
    """The states of the alerts that these failures, one after the other, make."""
    states: list[State] = []

    def make(reading: Reading, state: State) -> Alert:
        states.append(state)
        return Alert(f"{reading.sentence}{len(book.outgoing())}", "2026-11-19T18:00:00+00:00", {})

    for sentence in sentences:
        book.note([read_failure(SubjectType.SYNC, "sync.crm", [sentence])], make)
    return states


def test_each_cause_is_told_once_and_the_newest_is_shown(tmp_path: Path) -> None:
    """Two causes by turns would flood the receiver as well."""
    book = AlertBook(tmp_path / "alerts.sqlite")
    states = note(book, "the API is down", "3 rows rejected", "the API is down", "4 rows rejected")
    assert [State.FIRED, State.CHANGED] == states
    (standing,) = book.standing()
    assert ("4 rows rejected", 4) == (standing.sentence, standing.found)
    assert 2 == len(book.outgoing())


def test_causes_without_end_flood_nobody(tmp_path: Path) -> None:
    """As of a message with a customer's name in it."""
    names = [f"{first}{last} is no customer" for first in "abcdefgh" for last in "xyz"]
    states = note(AlertBook(tmp_path / "alerts.sqlite"), *names)
    assert MOST_CAUSES == len(states) < len(names)


def test_a_crash_says_nothing_new_of_what_fails_already(tmp_path: Path) -> None:
    """An unforeseen error leaves a run that looks like a killed one."""
    book = AlertBook(tmp_path / "alerts.sqlite")
    states = note(book, "lib/crm.star has an error")
    assert 0 == book.note([read_crash("sync.crm")], lambda *_: Alert("2", "", {}))
    (standing,) = book.standing()
    assert ([State.FIRED], "lib/crm.star has an error") == (states, standing.sentence)


def test_an_alert_ends_only_as_it_was_known(tmp_path: Path) -> None:
    """Another process has found the failure again since."""
    book = AlertBook(tmp_path / "alerts.sqlite")
    note(book, "the API is down")
    known = book.standing()
    note(book, "the API is down")
    over = read_failure(SubjectType.SYNC, "sync.crm", [])
    assert 0 == book.note([over], lambda *_: Alert("2", "", {}), known=known)
    assert 1 == book.note([over], lambda *_: Alert("2", "", {}), known=book.standing())
    assert [] == book.standing()
