"""Lets batches through to push, until the API is down or somebody says stop. Threads share it."""

import threading
from collections.abc import Callable

from ondatra_dagster import interruption
from ondatra_dagster.delivery.push.push_port import Pushed

OUTAGES_BEFORE_STOP = 3


class Gate:
    """Open until it is closed, for good."""

    def __init__(self, may_go_on: Callable[[], bool]) -> None:
        self._lock = threading.Lock()
        self._may_go_on = may_go_on
        self._is_open = True
        self._in_a_row = {
            False: 0,
            True: 0,
        }  # outages of batches, of polls, in the order of their ends

    def pass_through(self, then: Callable[[], None] = lambda: None) -> bool:
        """Whether one more may go; `then` is done before anybody else can close the gate."""
        with self._lock:
            self._is_open = self._is_open and interruption.received() is None and self._may_go_on()
            if self._is_open:
                then()
            return self._is_open

    def close(self) -> None:
        with self._lock:
            self._is_open = False

    @property
    def is_down(self) -> bool:
        """Whether the API was given up on."""
        return self.outages >= OUTAGES_BEFORE_STOP

    @property
    def outages(self) -> int:
        """In a row, of batches or of polls: that one gets answers doesn't help the other."""
        return max(self._in_a_row.values())

    def note(self, pushed: Pushed, *, is_poll: bool = False) -> None:
        """A batch has ended, or a job was asked about."""
        with self._lock:
            self._in_a_row[is_poll] = self._in_a_row[is_poll] + 1 if pushed.is_outage else 0
            self._is_open = self._is_open and not self.is_down
