"""A status that push() returned, as a value."""

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
    """The message may hold colons; white space means nothing."""
    assert expected == RowOutcome.parse_status(status)


@pytest.mark.parametrize("status", ["skipped", "OK", "", None, True, 200, {"ok": True}, ["ok"]])
def test_what_is_no_status_is_an_error_to_retry(status: object) -> None:
    """A typo in a .star file must never count as delivered, nor as rejected."""
    outcome = RowOutcome.parse_status(status)

    assert (Verdict.ERROR, False) == (outcome.verdict, outcome.is_from_push)
    assert repr(status) in outcome.message
    assert "'reject: …'" in outcome.message


def test_a_message_that_is_a_whole_page_is_cut_and_says_so() -> None:
    """It is kept once for each row: an error page of a megabyte was a hundred for a batch of a hundred."""
    outcome = RowOutcome.parse_status("error: " + "x" * 1_000_000)

    assert ("x" * MAX_MESSAGE_LENGTH + "… (cut: it has 1,000,000 characters)") == outcome.message
    assert "x" * MAX_MESSAGE_LENGTH == RowOutcome.parse_status("warn: " + "x" * MAX_MESSAGE_LENGTH).message


def test_a_row_without_status_is_named() -> None:
    """Whoever reads the message looks for the key in the .star file's loop."""
    outcome = RowOutcome.for_missing_status("7:insert")

    assert (Verdict.ERROR, False) == (outcome.verdict, outcome.is_from_push)
    assert "'7:insert'" in outcome.message


def test_a_long_wrong_status_is_cut() -> None:
    """An API's page of HTML shouldn't fill a record."""
    assert len(RowOutcome.parse_status("<html>" * 1000).message) < 400
