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

SIGNALS = (signal.SIGINT, signal.SIGTERM)
SHELL_OFFSET = 128  # a shell calls a process that a signal ended by 128 and the signal's number
GRACE_SECONDS = 12.0  # the contract is 15


class InterruptedRunError(KeyboardInterrupt):
    """Ctrl-C or SIGTERM was received. `except Exception` doesn't catch it, and Dagster ends its run by it."""


class _State:
    """What this process knows of its interruption."""

    def __init__(self) -> None:
        self.number: int | None = None  # of the first signal
        self.event = threading.Event()
        # a handler may put into this at any instant; a lock or an event might be in use just then
        self.signals: queue.SimpleQueue[int] = queue.SimpleQueue()
        self.actions: list[Callable[[], None]] = []
        self.lock = threading.Lock()
        self.listener: threading.Thread | None = None
        self.grace_seconds = 0.0


_state = _State()


def received() -> int | None:
    """Return the number of the first signal that was received, if any."""
    return _state.number


def exit_code() -> int:
    """Return the exit code of an interrupted process: 130 after Ctrl-C, 143 after SIGTERM."""
    return SHELL_OFFSET + (received() or signal.SIGINT)


def check() -> None:
    """Raise InterruptedRunError when a signal was received."""
    if _state.number is not None:
        raise InterruptedRunError


def sleep(seconds: float) -> None:
    """Sleep, and raise InterruptedRunError as soon as a signal is received."""
    check()
    if _state.event.wait(seconds):
        raise InterruptedRunError


def forget_earlier() -> None:
    """Begin new work: in a notebook, an earlier run's Ctrl-C isn't meant for the next run.

    A command's work runs in another thread than the main one, which keeps what it has received.
    """
    if _is_main_thread():
        forget()


def forget() -> None:
    """Forget the signal, as a server does that ends by it."""
    _state.number = None
    _state.event.clear()


def grace_seconds() -> float:
    """Return how long an interrupted command may take to put things in order; mostly it has none to put."""
    return _state.grace_seconds


@contextlib.contextmanager
def ending_in_order(*, within_seconds: float = GRACE_SECONDS) -> Iterator[None]:
    """Do work that isn't cut off by a signal at once: it notices, notes how far it came, and ends."""
    check()
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
        is_late = _state.event.is_set()
    if is_late:
        action()
    try:
        yield
    finally:
        with _state.lock:
            _state.actions.remove(action)


@contextlib.contextmanager
def noting_signals() -> Iterator[None]:
    """Note Ctrl-C and SIGTERM in place of what they do else; only a main thread can, others do nothing."""
    if not _is_main_thread():
        yield
        return
    _listen()
    handlers = {each: signal.signal(each, _note) for each in SIGNALS}
    try:
        yield
    finally:
        for each, handler in handlers.items():
            signal.signal(each, handler)


@contextlib.contextmanager
def interruptible() -> Iterator[None]:
    """Raise InterruptedRunError after a signal: before the work, after it, or in place of its error."""
    check()
    with noting_signals():
        try:
            yield
        except Exception:
            if received() is None:
                raise
            raise InterruptedRunError from None  # the error is what the interruption broke
    check()


def _is_main_thread() -> bool:
    return threading.current_thread() is threading.main_thread()


def _note(number: int, _frame: FrameType | None) -> None:
    if _state.number is None:
        _state.number = number
    _state.signals.put(number)


def _listen() -> None:
    """Start the thread that calls the actions."""
    if _state.listener is None or not _state.listener.is_alive():
        _state.listener = threading.Thread(target=_call_actions, name="interruption", daemon=True)
        _state.listener.start()


def _call_actions() -> None:
    while True:
        _state.signals.get()
        with _state.lock:
            is_first = not _state.event.is_set()
            _state.event.set()
            actions = list(_state.actions) if is_first else []
        for action in actions:
            action()
