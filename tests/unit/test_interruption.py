"""Signals raise nothing; the work looks at what was noted."""

import os
import signal
import threading
from collections.abc import Iterator

import pytest

from ondatra_dagster import interruption
from ondatra_dagster.interruption import InterruptedRunError


@pytest.fixture(autouse=True)
def clear_interruption() -> Iterator[None]:
    yield
    interruption.clear_signal()


@interruption.raise_on_signal()
def work_through(number: signal.Signals, steps: list[str]) -> None:
    os.kill(os.getpid(), number)
    steps.append("after the signal")


@interruption.raise_on_signal()
def work_that_breaks() -> None:
    os.kill(os.getpid(), signal.SIGINT)
    raise ConnectionError("nobody is there")


def test_a_signal_raises_where_the_work_ends_and_not_before() -> None:
    """In between there may be a request that waits for its answer."""
    steps: list[str] = []
    for _ in range(2):  # after it no new work begins
        with pytest.raises(InterruptedRunError):
            work_through(signal.SIGTERM, steps)
    assert (["after the signal"], 143) == (steps, interruption.exit_code())


def test_an_error_after_a_signal_is_what_the_signal_broke() -> None:
    """As of a JVM that was ended."""
    with pytest.raises(InterruptedRunError):
        work_that_breaks()


def test_an_error_without_a_signal_stays_as_it_is() -> None:
    with pytest.raises(ConnectionError), interruption.raise_on_signal():
        raise ConnectionError("nobody is there")


def test_handlers_come_back() -> None:
    """Dagster's, or whose they are."""
    before = [signal.getsignal(each) for each in interruption.INTERRUPT_SIGNALS]
    with interruption.record_signals():
        assert before != [signal.getsignal(each) for each in interruption.INTERRUPT_SIGNALS]
    assert before == [signal.getsignal(each) for each in interruption.INTERRUPT_SIGNALS]


def test_whoever_waits_is_woken() -> None:
    """The first signal calls each action once; work that comes too late is told at once."""
    woken: list[str] = []
    called = threading.Event()

    def wait() -> None:
        with pytest.raises(InterruptedRunError):
            interruption.sleep(600)
        woken.append("sleep")

    waiting = threading.Thread(target=wait)
    with interruption.record_signals(), interruption.on_interruption(called.set):
        waiting.start()
        os.kill(os.getpid(), signal.SIGINT)
        os.kill(os.getpid(), signal.SIGINT)
        waiting.join(60)
        assert called.wait(60)
    with interruption.on_interruption(lambda: woken.append("late")):
        pass
    assert ["sleep", "late"] == woken
