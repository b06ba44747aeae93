"""The records of a log: one line, or further lines with a mark. No message can forge another record."""

import logging
from pathlib import Path

import pytest

from ondatra_dagster.app.error_traces import store_trace
from ondatra_dagster.log_line_escaping import CONTINUATION_PREFIX, escape_log_text
from ondatra_dagster.orchestration.in_process_run import log_to_folder

FORGED = "2026-11-19 15:00:00 ERROR ondatra all rows of sync.pay were deleted"
LINE_ENDS = ("\n", "\r\n", "\r", "\v", "\f", "\x1c", "\x85", "\u2028", "\u2029")
ORDERS = ("\x1b[2J", "\x1b]0;OWNED\x07", "\x9b2J", "\x00", "\x7f", "\u202e", "\u2066", "\u200f")


def log_of(folder: Path, message: str) -> str:
    with log_to_folder(folder):
        logging.getLogger("ondatra_dagster").error("%s", message)
    return (folder / "ondatra.log").read_text(encoding="utf-8")


@pytest.mark.parametrize("end", LINE_ENDS)
def test_a_message_forges_no_record(end: str, tmp_path: Path) -> None:
    """Push functions print an API's answer, or it is a row's error."""
    lines = log_of(tmp_path, f"x{end}{FORGED}").splitlines()

    assert lines[0].endswith("x") or len(lines) == 1
    assert all(line.startswith(CONTINUATION_PREFIX) for line in lines[1:])


@pytest.mark.parametrize("order", ORDERS)
def test_control_characters_in_the_log_are_escaped(order: str, tmp_path: Path) -> None:
    text = log_of(tmp_path, f"before {order} after")

    assert "before \\" in text
    assert text.endswith(" after\n")
    assert not {letter for letter in order if not letter.isprintable()} & set(text)


def test_half_a_character_is_written_as_an_escape() -> None:
    """A log in UTF-8 can't contain it in another way."""
    assert "before \\ud800 after" == escape_log_text("before \ud800 after")


@pytest.mark.parametrize("text", ["", "plain", "ä 漢字 😀 \t é", "a\\nb"])
def test_other_texts_are_logged_unchanged(text: str) -> None:
    assert escape_log_text(text) == text


def test_a_traceback_is_one_record(tmp_path: Path) -> None:
    """Its message may contain an API's answer, and its further lines are marked."""
    store_trace(ValueError(f"bad answer\n{FORGED}\x1b[2J"), tmp_path)
    store_trace(ValueError("another"), tmp_path)

    lines = (tmp_path / "logs" / "errors.log").read_text(encoding="utf-8").splitlines()
    assert [line for line in lines if not line.startswith(CONTINUATION_PREFIX)] == [
        "ValueError: bad answer",
        "ValueError: another",
    ]
    assert f"{CONTINUATION_PREFIX}{FORGED}\\x1b[2J" in lines


def test_the_lines_of_a_logged_traceback_are_marked(tmp_path: Path) -> None:
    with log_to_folder(tmp_path):
        error = ValueError(f"bad\n{FORGED}")
        logging.getLogger("ondatra_dagster").error("it failed", exc_info=error)

    first, *others = (tmp_path / "ondatra.log").read_text(encoding="utf-8").splitlines()
    assert first.endswith("it failed")
    assert all(line.startswith(CONTINUATION_PREFIX) for line in others)
    assert f"{CONTINUATION_PREFIX}{FORGED}" in others
