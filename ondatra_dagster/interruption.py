"""The interruption of this process: Ctrl-C or SIGTERM, noted once and looked at where work can stop.

A signal handler here raises nothing. An exception out of a handler would come between a request and its
answer: in py4j, in SQLite, in an import. Whatever waits is woken by an action, in a thread of its own.
"""

import contextlib
import queue
import signal
import threading
from collections.abc import Callable, Iterator
from types import FrameType

INTERRUPT_SIGNALS = (signal.SIGINT, signal.SIGTERM)
SIGNAL_EXIT_OFFSET = 128  # a shell calls a process that a signal ended by 128 and the signal's number
GRACE_SECONDS = 12.0  # the contract is 15


class InterruptedRunError(KeyboardInterrupt):
    """Ctrl-C or SIGTERM was received. `except Exception` doesn't catch it, and Dagster ends its run by it."""


class _SignalState:
    """What this process knows of its interruption."""

    def __init__(self) -> None:
        self.first_signal: int | None = None  # of the first signal
        self.is_received = threading.Event()
        # a handler may put into this at any instant; a lock or an event might be in use just then
        self.signals: queue.SimpleQueue[int] = queue.SimpleQueue()
        self.actions: list[Callable[[], None]] = []
        self.lock = threading.Lock()
        self.listener: threading.Thread | None = None
        self.grace_seconds = 0.0


_state = _SignalState()


def received_signal() -> int | None:
    """Return the number of the first signal that was received, if any."""
    return _state.first_signal


def exit_code() -> int:
    """Return the exit code of an interrupted process: 130 after Ctrl-C, 143 after SIGTERM."""
    return SIGNAL_EXIT_OFFSET + (received_signal() or signal.SIGINT)


def raise_if_interrupted() -> None:
    """Raise InterruptedRunError when a signal was received."""
    if _state.first_signal is not None:
        raise InterruptedRunError


def sleep(seconds: float) -> None:
    """Sleep, and raise InterruptedRunError as soon as a signal is received."""
    raise_if_interrupted()
    if _state.is_received.wait(seconds):
        raise InterruptedRunError


def clear_earlier_signal() -> None:
    """Begin new work: in a notebook, an earlier run's Ctrl-C isn't meant for the next run.

    A command's work runs in another thread than the main one, which keeps what it has received.
    """
    if _is_main_thread():
        clear_signal()


def clear_signal() -> None:
    """Forget the signal, as a server does that ends by it."""
    _state.first_signal = None
    _state.is_received.clear()


def grace_seconds() -> float:
    """Return how long an interrupted command may take to put things in order; mostly it has none to put."""
    return _state.grace_seconds


@contextlib.contextmanager
def graceful_shutdown(*, within_seconds: float = GRACE_SECONDS) -> Iterator[None]:
    """Do work that isn't cut off by a signal at once: it notices, notes how far it came, and ends."""
    raise_if_interrupted()
    _state.grace_seconds = within_seconds
    try:
        yield
    finally:
        _state.grace_seconds = 0.0


@contextlib.contextmanager
def on_interruption(action: Callable[[], None]) -> Iterator[None]:
    """Call the action when a signal is received meanwhile, or was before; it must be quick and not raise."""
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
    """Note Ctrl-C and SIGTERM in place of what they do else; only a main thread can, others do nothing."""
    if not _is_main_thread():
        yield
        return
    _start_listener()
    handlers = {each: signal.signal(each, _record_signal) for each in INTERRUPT_SIGNALS}
    try:
        yield
    finally:
        for each, handler in handlers.items():
            signal.signal(each, handler)


@contextlib.contextmanager
def raise_on_signal() -> Iterator[None]:
    """Raise InterruptedRunError after a signal: before the work, after it, or in place of its error."""
    raise_if_interrupted()
    with record_signals():
        try:
            yield
        except Exception:
            if received_signal() is None:
                raise
            raise InterruptedRunError from None  # the error is what the interruption broke
    raise_if_interrupted()


def _is_main_thread() -> bool:
    return threading.current_thread() is threading.main_thread()


def _record_signal(number: int, _frame: FrameType | None) -> None:
    if _state.first_signal is None:
        _state.first_signal = number
    _state.signals.put(number)


def _start_listener() -> None:
    """Start the thread that calls the actions."""
    if _state.listener is None or not _state.listener.is_alive():
        _state.listener = threading.Thread(target=_call_actions, name="interruption", daemon=True)
        _state.listener.start()


def _call_actions() -> None:
    while True:
        _state.signals.get()
        with _state.lock:
            is_first = not _state.is_received.is_set()
            _state.is_received.set()
            actions = list(_state.actions) if is_first else []
        for action in actions:
            action()
