"""The status line of a terminal during a run. A pipe has none."""

import io
import sys
import threading

import pytest
from support.projects.shop_project import ShopProject

from ondatra_dagster.cli.run_output import TextProgress
from ondatra_dagster.cli.status_line import CLEAR_LINE, StatusLine

PATIENCE_SECONDS = 20


class FakeTerminal(io.StringIO):
    """A stream that says that it is a terminal."""

    def isatty(self) -> bool:
        return True


class StatusTexts:
    """The texts of a status line. A test can wait until the line has read them."""

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
        """Wait until the line has read this many texts. The last but one is then on the screen."""
        return all(self._request_tokens.acquire(timeout=PATIENCE_SECONDS) for _ in range(times))


def a_line(stream: io.StringIO) -> StatusLine:
    return StatusLine(stream, every_seconds=0.001)


def test_a_terminal_shows_the_changing_status() -> None:
    """Without it, ten seconds of Spark's start would look like a program that hangs."""
    screen, texts = FakeTerminal(), StatusTexts("one", "two")
    line = a_line(screen)
    line.show(texts)
    assert texts.wait_until_shown(3)
    line.clear()
    assert [*screen.getvalue().split(CLEAR_LINE)][:3] == ["", "one", "two"]
    assert screen.getvalue().endswith(CLEAR_LINE)


def test_a_line_is_never_wider_than_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """A longer text would continue on the next line, and remain there."""
    monkeypatch.setenv("COLUMNS", "12")
    screen, texts = FakeTerminal(), StatusTexts("… 山田山田山田山田", "")
    line = a_line(screen)
    line.show(texts)
    assert texts.wait_until_shown(2)
    line.clear()
    assert "… 山田山田" == screen.getvalue().split(CLEAR_LINE)[1]


def test_a_pipe_shows_no_status() -> None:
    """A log of a thousand lines that erase each other is useless."""
    pipe, texts = io.StringIO(), StatusTexts("one")
    line = a_line(pipe)
    line.show(texts)
    with line:
        pipe.write("a line that stays\n")
    line.clear()
    assert ("a line that stays\n", 0) == (pipe.getvalue(), texts.times)


def test_a_permanent_line_replaces_the_status_line() -> None:
    """Otherwise its beginning would be overwritten."""
    screen, texts = FakeTerminal(), StatusTexts("being done")
    line = a_line(screen)
    line.show(texts)
    assert texts.wait_until_shown(2)
    with line:
        screen.write("ended\n")
        before = screen.getvalue()
        assert before.endswith(f"{CLEAR_LINE}ended\n")
    assert texts.wait_until_shown(2)
    line.clear()
    assert f"ended\n{CLEAR_LINE}being done" in screen.getvalue()


def test_an_unreadable_status_does_not_end_a_run() -> None:
    """The queue may be locked at that moment, or the JVM may have ended."""
    screen, texts = FakeTerminal(), StatusTexts("!", "one")
    line = a_line(screen)
    line.show(texts)
    assert texts.wait_until_shown(3)
    line.clear()
    assert [*screen.getvalue().split(CLEAR_LINE)][1:3] == ["… (OSError)", "one"]


def test_a_terminal_shows_the_running_model(shop: ShopProject, monkeypatch: pytest.MonkeyPatch) -> None:
    """It shows its name, the time, Spark's tasks and the number of models."""
    screen, texts = FakeTerminal(), StatusTexts("Spark has done 3 of 40 tasks")
    monkeypatch.setattr(sys, "stderr", screen)  # not in a fixture: pytest sets its own stderr between fixture and test
    now = 3.0
    plan = shop.workspace.plan()
    progress = TextProgress(plan, clock=lambda: now)
    progress.on_model_start(plan.models[0].model, texts)
    now = 15.0
    assert texts.wait_until_shown(2)
    progress.on_failure("raw.contacts", "it failed")
    progress.close()
    shown = screen.getvalue().split(CLEAR_LINE)
    assert "2 models and 1 sync to check; Spark starts first, in about 10 s\n" == shown[0]
    assert "… raw.contacts  12 s, Spark has done 3 of 40 tasks (1 of 3)" in shown
    assert ["✗ raw.contacts  it failed\n", ""] == shown[-2:]
