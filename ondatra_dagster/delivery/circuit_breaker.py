"""A circuit breaker: it lets batches through to push until the API is down or the run is to stop."""

import threading
from collections.abc import Callable

from ondatra_dagster import interruption
from ondatra_dagster.delivery.push.push_interface import PushResult

OUTAGES_BEFORE_STOP = 3


class CircuitBreaker:
    """A switch that lets calls through until it trips; it isn't reset. Threads share it."""

    def __init__(self, may_go_on: Callable[[], bool]) -> None:
        self._lock = threading.Lock()
        self._may_continue = may_go_on
        self._allows_calls = True
        self._outages_by_poll = {False: 0, True: 0}  # outages of batches, of polls, in the order of their ends

    def try_enter(self, then: Callable[[], None] = lambda: None) -> bool:
        """Return whether one more batch may go; `then` is called before another thread can trip the switch."""
        with self._lock:
            self._allows_calls = self._allows_calls and interruption.received_signal() is None and self._may_continue()
            if self._allows_calls:
                then()
            return self._allows_calls

    def stop(self) -> None:
        with self._lock:
            self._allows_calls = False

    @property
    def is_api_down(self) -> bool:
        """Return whether the API is taken to be down for this run."""
        return self.consecutive_outages >= OUTAGES_BEFORE_STOP

    @property
    def consecutive_outages(self) -> int:
        """Return the longer of two streaks of outages. Pushes and polls are counted separately."""
        return max(self._outages_by_poll.values())

    def record_result(self, pushed: PushResult, *, is_poll: bool = False) -> None:
        """Count the result of a batch or a poll; trip after too many outages in a row."""
        with self._lock:
            self._outages_by_poll[is_poll] = self._outages_by_poll[is_poll] + 1 if pushed.is_outage else 0
            self._allows_calls = self._allows_calls and not self.is_api_down
