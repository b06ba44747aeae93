"""The interruption of this process by Ctrl-C or SIGTERM. A signal is recorded, and the work stops at safe places.

The signal handler raises no exception, because this could break code in py4j, SQLite or an import that waits for an
answer. Instead, actions wake the code that waits. A separate thread calls the actions.
"""

import contextlib
import queue
import signal
import threading
from collections.abc import Callable, Iterator
from types import FrameType

INTERRUPT_SIGNALS = (signal.SIGINT, signal.SIGTERM)
SIGNAL_EXIT_OFFSET = 128  # a shell reports 128 plus the signal's number for a process that was ended by a signal
GRACE_SECONDS = 12.0  # the docs say 15 seconds at most


class InterruptedRunError(KeyboardInterrupt):
    """The error after Ctrl-C or SIGTERM. `except Exception` doesn't catch it. Dagster ends the run because of it."""


class _SignalState:
    """The signals that this process received, and the actions to call after a signal."""

    def __init__(self) -> None:
        self.first_signal: int | None = None  # the number of the first signal
        self.is_received = threading.Event()
        # a signal handler may put into this queue at any moment, while a lock or an event could be in use
        self.signals: queue.SimpleQueue[int] = queue.SimpleQueue()
        self.actions: list[Callable[[], None]] = []
        self.lock = threading.Lock()
        self.listener: threading.Thread | None = None
        self.grace_seconds = 0.0


_state = _SignalState()


def received_signal() -> int | None:
    """Return the number of the first signal that was received; None if there was no signal."""
    return _state.first_signal


def exit_code() -> int:
    """Return the exit code of an interrupted process: 130 after Ctrl-C, 143 after SIGTERM."""
    return SIGNAL_EXIT_OFFSET + (received_signal() or signal.SIGINT)


def raise_if_interrupted() -> None:
    """Raise InterruptedRunError if a signal was received."""
    if _state.first_signal is not None:
        raise InterruptedRunError


def sleep(seconds: float) -> None:
    """Sleep, and raise InterruptedRunError as soon as a signal is received."""
    raise_if_interrupted()
    if _state.is_received.wait(seconds):
        raise InterruptedRunError


def clear_earlier_signal() -> None:
    """Clear the signal before new work: in a notebook, Ctrl-C in an earlier run must not end the next run.

    A command's work runs in a thread other than the main one. There this function keeps the received signal.
    """
    if _is_main_thread():
        clear_signal()


def clear_signal() -> None:
    """Clear the received signal. A server whose normal end is a signal calls this."""
    with _state.lock:
        _state.first_signal = None
        _state.is_received.clear()


def grace_seconds() -> float:
    """Return how long an interrupted command may take to clean up: 0 unless the command has something to clean up."""
    return _state.grace_seconds


@contextlib.contextmanager
def graceful_shutdown(*, within_seconds: float = GRACE_SECONDS) -> Iterator[None]:
    """Give the block some time after a signal, in which it notices the signal, stores its progress and ends."""
    raise_if_interrupted()
    _state.grace_seconds = within_seconds
    try:
        yield
    finally:
        _state.grace_seconds = 0.0


@contextlib.contextmanager
def on_interruption(action: Callable[[], None]) -> Iterator[None]:
    """Call the action if a signal is received during the block, or was received before.

    The action must be quick and must not raise an error.
    """
    with _state.lock:
        _state.actions.append(action)
        is_late = _state.is_received.is_set()
    if is_late:
        action()
    try:
        yield
    finally:
        with _state.lock:
            _state.actions.remove(action)


@contextlib.contextmanager
def record_signals() -> Iterator[None]:
    """Record Ctrl-C and SIGTERM during the block instead of handling them normally.

    In a thread other than the main one, do nothing.
    """
    if not _is_main_thread():
        yield
        return
    _start_listener()
    handlers = {number: signal.signal(number, _record_signal) for number in INTERRUPT_SIGNALS}
    try:
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)


@contextlib.contextmanager
def raise_on_signal() -> Iterator[None]:
    """Raise InterruptedRunError if a signal was received.

    It is raised before the block, after the block, or in place of the block's error.
    """
    raise_if_interrupted()
    with record_signals():
        try:
            yield
        except Exception:
            if received_signal() is None:
                raise
            raise InterruptedRunError from None  # the interruption has caused the block's error
    raise_if_interrupted()


def _is_main_thread() -> bool:
    return threading.current_thread() is threading.main_thread()


def _record_signal(number: int, _frame: FrameType | None) -> None:
    if _state.first_signal is None:
        _state.first_signal = number
    _state.signals.put(number)


def _start_listener() -> None:
    """Start the thread that calls the actions after a signal."""
    if _state.listener is None or not _state.listener.is_alive():
        _state.listener = threading.Thread(target=_call_actions, name="interruption", daemon=True)
        _state.listener.start()


def _call_actions() -> None:
    while True:
        _state.signals.get()
        with _state.lock:
            if _state.first_signal is None:  # the signal was cleared before this thread got it
                continue
            is_first = not _state.is_received.is_set()
            _state.is_received.set()
            actions = list(_state.actions) if is_first else []
        for action in actions:
            action()
