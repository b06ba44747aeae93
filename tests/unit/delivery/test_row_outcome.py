"""The statuses that push() returns, parsed into a verdict and a message."""

import pytest

from ondatra_dagster.delivery.row_outcome import MAX_MESSAGE_LENGTH, RowOutcome, Verdict


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        ("ok", RowOutcome(Verdict.OK)),
        ("warn: slow", RowOutcome(Verdict.WARN, "slow")),
        ("error: 503: busy", RowOutcome(Verdict.ERROR, "503: busy")),
        ("reject:no such team", RowOutcome(Verdict.REJECT, "no such team")),
        (" ok ", RowOutcome(Verdict.OK)),
    ],
)
def test_a_status_is_a_verdict_and_a_message(status: str, expected: RowOutcome) -> None:
    """The message may contain colons, and white space around a status is ignored."""
    assert expected == RowOutcome.parse_status(status)


@pytest.mark.parametrize("status", ["skipped", "OK", "", None, True, 200, {"ok": True}, ["ok"]])
def test_an_unknown_status_is_an_error_that_is_retried(status: object) -> None:
    """A typo in a `.star` file must never count as delivered, nor as rejected."""
    outcome = RowOutcome.parse_status(status)

    assert (Verdict.ERROR, False) == (outcome.verdict, outcome.is_from_push)
    assert repr(status) in outcome.message
    assert "'reject: …'" in outcome.message


def test_a_very_long_message_is_cut_and_says_so() -> None:
    """It is stored once for each row: an error page of 1 MB would take 100 MB for a batch of a hundred."""
    outcome = RowOutcome.parse_status("error: " + "x" * 1_000_000)

    assert ("x" * MAX_MESSAGE_LENGTH + "… (cut: it has 1,000,000 characters)") == outcome.message
    assert "x" * MAX_MESSAGE_LENGTH == RowOutcome.parse_status("warn: " + "x" * MAX_MESSAGE_LENGTH).message


def test_the_message_of_a_row_without_status_has_its_key() -> None:
    """The user looks for that key in the loop of the `.star` file."""
    outcome = RowOutcome.for_missing_status("7:insert")

    assert (Verdict.ERROR, False) == (outcome.verdict, outcome.is_from_push)
    assert "'7:insert'" in outcome.message


def test_a_long_wrong_status_is_cut() -> None:
    """An API's HTML page must not fill a record."""
    assert len(RowOutcome.parse_status("<html>" * 1000).message) < 400
