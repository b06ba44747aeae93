"""The cause of an alert: which failures have the same cause, and how often a new cause sends a message."""

from pathlib import Path

import pytest

from ondatra_dagster.operations.alert_rules import evaluate_crash, evaluate_failure, normalize_cause
from ondatra_dagster.operations.alert_store import MAX_CAUSES, Alert, AlertState, AlertStore, RuleResult, SubjectType

SAME = [
    ("nothing was delivered of 20 attempted rows", "nothing was delivered of 3 attempted rows"),
    ("a row has waited for 24.1 hours, longer than @max_lag", "a row has waited for 30 hours, longer than @max_lag"),
    (
        "models/sync/crm.sql:8: column `lastnme` cannot be resolved",
        "models/sync/crm.sql:9: column `lastnme` cannot be resolved",
    ),
    ("the value 'ada@example.com' can't be cast", "the value 'bob' can't be cast"),
    ("it is held until 2026-11-19T18:00:00Z", "it is held until 2026-11-20T06:30:00Z"),
]
DIFFERENT = [
    ("nothing was delivered of 2 attempted rows (HTTP 401)", "nothing was delivered of 2 attempted rows (HTTP 409)"),
    ("crm.sql:8: column `lastnme` cannot be resolved", "crm.sql:8: column `emial` cannot be resolved"),
    ("lib/crm.star needs CRM_TOKEN; set it in .env", "lib/crm.star needs CRM_KEY; set it in .env"),
    ("it isn't there and can't be read", "it isn't there and can't be written"),
]


@pytest.mark.parametrize(("one", "other"), SAME)
def test_numbers_times_and_values_do_not_change_the_cause(one: str, other: str) -> None:
    """Otherwise each run of a failing sync would send a message."""
    assert normalize_cause(one) == normalize_cause(other)


@pytest.mark.parametrize(("one", "other"), DIFFERENT)
def test_a_different_reason_is_a_different_cause(one: str, other: str) -> None:
    """An HTTP status and a name in backticks are part of the cause."""
    assert normalize_cause(one) != normalize_cause(other)


@pytest.mark.parametrize(
    ("detail", "told"),
    [
        ("HTTP 401: ada@example.com has no access", " (HTTP 401)"),
        ('lib/crm.star:33: Key "ada@example.com" was not found', " (lib/crm.star:33)"),
        ("push() returned 'ada@example.com' for this row", " (push() returned)"),
        ("ada@example.com is no address", ""),
    ],
)
def test_an_alert_does_not_contain_the_words_of_the_api(detail: str, told: str) -> None:
    """Only the kind of the error is sent. `ondatra status` shows the whole message."""
    reading = evaluate_failure(SubjectType.SYNC, "sync.crm", ["nothing was delivered"], detail=detail)
    assert f"nothing was delivered{told}" == reading.sentence
    assert f"nothing was delivered: {detail}" == reading.local_sentence


def note(book: AlertStore, *sentences: str) -> list[AlertState]:
    """Return the states of the alerts that these failures cause, one after the other."""
    states: list[AlertState] = []

    def make(reading: RuleResult, state: AlertState) -> Alert:
        states.append(state)
        return Alert(f"{reading.sentence}{len(book.read_unsent())}", "2026-11-19T18:00:00+00:00", {})

    for sentence in sentences:
        book.apply_results([evaluate_failure(SubjectType.SYNC, "sync.crm", [sentence])], make)
    return states


def test_each_cause_sends_one_message_and_the_newest_cause_is_shown(tmp_path: Path) -> None:
    """Two causes that alternate would flood the receiver as well."""
    book = AlertStore(tmp_path / "alerts.sqlite")
    states = note(book, "the API is down", "3 rows rejected", "the API is down", "4 rows rejected")
    assert [AlertState.FIRED, AlertState.CHANGED] == states
    (alert,) = book.read_active_alerts()
    assert ("4 rows rejected", 4) == (alert.sentence, alert.occurrences)
    assert 2 == len(book.read_unsent())


def test_an_alert_with_ever_new_causes_stops_sending_messages(tmp_path: Path) -> None:
    """The causes never repeat if, for example, each message contains a customer's name."""
    names = [f"{first}{last} is no customer" for first in "abcdefgh" for last in "xyz"]
    states = note(AlertStore(tmp_path / "alerts.sqlite"), *names)
    assert MAX_CAUSES == len(states) < len(names)


def test_a_crash_sends_no_message_about_a_sync_that_already_fails(tmp_path: Path) -> None:
    """After an unforeseen error, the run looks like a killed one."""
    book = AlertStore(tmp_path / "alerts.sqlite")
    states = note(book, "lib/crm.star has an error")
    assert 0 == book.apply_results([evaluate_crash("sync.crm")], lambda *_: Alert("2", "", {}))
    (alert,) = book.read_active_alerts()
    assert ([AlertState.FIRED], "lib/crm.star has an error") == (states, alert.sentence)


def test_an_alert_does_not_end_if_its_failure_occurred_again(tmp_path: Path) -> None:
    """Another process has seen the failure again since the alert was read."""
    book = AlertStore(tmp_path / "alerts.sqlite")
    note(book, "the API is down")
    alerts = book.read_active_alerts()
    note(book, "the API is down")
    over = evaluate_failure(SubjectType.SYNC, "sync.crm", [])
    assert 0 == book.apply_results([over], lambda *_: Alert("2", "", {}), known_alerts=alerts)
    assert 1 == book.apply_results([over], lambda *_: Alert("2", "", {}), known_alerts=book.read_active_alerts())
    assert [] == book.read_active_alerts()
