"""The handling of signals: they raise nothing, and the work checks at certain points whether one has arrived."""

import os
import signal
import threading
import time
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


def test_a_signal_raises_at_the_end_of_the_work_and_not_before() -> None:
    """Before that, a request may be waiting for its answer."""
    steps: list[str] = []
    for _ in range(2):  # after the signal no new work begins
        with pytest.raises(InterruptedRunError):
            work_through(signal.SIGTERM, steps)
    assert (["after the signal"], 143) == (steps, interruption.exit_code())


def test_an_error_after_a_signal_counts_as_an_interruption() -> None:
    """For example, the signal has ended the JVM."""
    with pytest.raises(InterruptedRunError):
        work_that_breaks()


def test_an_error_without_a_signal_is_not_changed() -> None:
    with pytest.raises(ConnectionError), interruption.raise_on_signal():
        raise ConnectionError("nobody is there")


def test_the_earlier_signal_handlers_are_restored() -> None:
    """They may be Dagster's or another program's."""
    before = [signal.getsignal(signal_number) for signal_number in interruption.INTERRUPT_SIGNALS]
    with interruption.record_signals():
        assert before != [signal.getsignal(signal_number) for signal_number in interruption.INTERRUPT_SIGNALS]
    assert before == [signal.getsignal(signal_number) for signal_number in interruption.INTERRUPT_SIGNALS]


def test_a_waiting_thread_is_woken() -> None:
    """The first signal calls each action once. An action that is added after the signal is called immediately."""
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


def test_a_cleared_signal_does_not_interrupt_the_next_work() -> None:
    """The thread that calls the actions may be late: it gets a signal that was cleared in the meantime."""
    is_busy, may_continue, has_acted = threading.Event(), threading.Event(), threading.Event()
    signals: list[int | None] = []

    def delay() -> None:
        is_busy.set()
        assert may_continue.wait(60)

    def act() -> None:
        signals.append(interruption.received_signal())
        has_acted.set()

    with interruption.record_signals():
        with interruption.on_interruption(delay):
            os.kill(os.getpid(), signal.SIGINT)
            assert is_busy.wait(60)
            os.kill(os.getpid(), signal.SIGINT)  # the busy thread gets it later
            interruption.clear_signal()
        with interruption.on_interruption(act):
            may_continue.set()
            while not interruption._state.signals.empty():
                time.sleep(0)
            os.kill(os.getpid(), signal.SIGTERM)
            assert has_acted.wait(60)
    assert [signal.SIGTERM] == signals
