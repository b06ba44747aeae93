"""The last line of a terminal while a run goes on, and its absence on a pipe."""

import io
import sys
import threading

import pytest
from support.projects.shop_project import ShopProject

from ondatra_dagster.cli.run_output import TextProgress
from ondatra_dagster.cli.status_line import CLEAR_LINE, StatusLine

PATIENCE_SECONDS = 20


class FakeTerminal(io.StringIO):
    """A terminal."""

    def isatty(self) -> bool:
        return True


class StatusTexts:
    """What is to be shown; a test waits until it was asked for."""

    def __init__(self, *texts: str) -> None:
        self._texts = texts
        self._request_tokens = threading.Semaphore(0)
        self.times = 0

    def __call__(self) -> str:
        text = self._texts[min(self.times, len(self._texts) - 1)]
        self.times += 1
        self._request_tokens.release()
        if text == "!":
            raise OSError("it is just ending")
        return text

    def wait_until_shown(self, times: int) -> bool:
        """Asked so often, and what it said the last time but one is on the screen."""
        return all(self._request_tokens.acquire(timeout=PATIENCE_SECONDS) for _ in range(times))


def a_line(stream: io.StringIO) -> StatusLine:
    return StatusLine(stream, every_seconds=0.001)


def test_a_terminal_shows_what_is_being_done_and_how_it_goes_on() -> None:
    """Without it, ten seconds of Spark coming up look like a program that hangs."""
    screen, told = FakeTerminal(), StatusTexts("one", "two")
    line = a_line(screen)
    line.show(told)
    assert told.wait_until_shown(3)
    line.clear()
    assert [*screen.getvalue().split(CLEAR_LINE)][:3] == ["", "one", "two"]
    assert screen.getvalue().endswith(CLEAR_LINE)


def test_a_line_is_never_wider_than_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """What goes over its edge is on the next line, and stays there."""
    monkeypatch.setenv("COLUMNS", "12")
    screen, told = FakeTerminal(), StatusTexts("… 山田山田山田山田", "")
    line = a_line(screen)
    line.show(told)
    assert told.wait_until_shown(2)
    line.clear()
    assert "… 山田山田" == screen.getvalue().split(CLEAR_LINE)[1]


def test_a_pipe_shows_nothing_and_nobody_is_asked() -> None:
    """A log of a thousand lines that wipe each other is no log."""
    pipe, told = io.StringIO(), StatusTexts("one")
    line = a_line(pipe)
    line.show(told)
    with line:
        pipe.write("a line that stays\n")
    line.clear()
    assert ("a line that stays\n", 0) == (pipe.getvalue(), told.times)


def test_a_line_that_stays_has_the_row_for_itself() -> None:
    """Else its beginning would be drawn over."""
    screen, told = FakeTerminal(), StatusTexts("being done")
    line = a_line(screen)
    line.show(told)
    assert told.wait_until_shown(2)
    with line:
        screen.write("ended\n")
        before = screen.getvalue()
        assert before.endswith(f"{CLEAR_LINE}ended\n")
    assert told.wait_until_shown(2)
    line.clear()
    assert f"ended\n{CLEAR_LINE}being done" in screen.getvalue()


def test_what_cannot_be_looked_at_ends_no_run() -> None:
    """The queue may be locked at that moment, the JVM may be gone."""
    screen, told = FakeTerminal(), StatusTexts("!", "one")
    line = a_line(screen)
    line.show(told)
    assert told.wait_until_shown(3)
    line.clear()
    assert [*screen.getvalue().split(CLEAR_LINE)][1:3] == ["… (OSError)", "one"]


def test_a_run_on_a_terminal_tells_of_the_model_that_it_is_at(
    shop: ShopProject, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Which, for how long, what Spark does, and how many there are."""
    screen, told = FakeTerminal(), StatusTexts("Spark has done 3 of 40 tasks")
    monkeypatch.setattr(sys, "stderr", screen)  # not in a fixture: between that and here pytest sets its own
    now = 3.0
    plan = shop.workspace.plan()
    progress = TextProgress(plan, clock=lambda: now)
    progress.on_model_start(plan.models[0].model, told)
    now = 15.0
    assert told.wait_until_shown(2)
    progress.on_failure("raw.contacts", "it failed")
    progress.close()
    shown = screen.getvalue().split(CLEAR_LINE)
    assert "2 models and 1 sync to check; Spark starts first, in about 10 s\n" == shown[0]
    assert "… raw.contacts  12 s, Spark has done 3 of 40 tasks (1 of 3)" in shown
    assert ["✗ raw.contacts  it failed\n", ""] == shown[-2:]
