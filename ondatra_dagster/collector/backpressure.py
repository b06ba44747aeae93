"""The collector's backpressure: it refuses requests when too many run or wait, or the disk is full."""

import math
import shutil
import time
from collections.abc import Callable
from pathlib import Path

from ondatra_dagster.collector.http_messages import RequestRejectedError, retry_later_error
from ondatra_dagster.project.settings.settings import EventSettings

DISK_CHECK_SECONDS = 1.0  # between two looks at the disk
RETRY_AFTER_SECONDS = 30


class Backpressure:
    """The limits of one collector, over all who send."""

    def __init__(
        self,
        settings: EventSettings,
        folder: Path,
        *,
        waiting: Callable[[], int],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._settings = settings
        self._folder = folder
        self._count_pending = waiting
        self._clock = clock
        self._allowance = float(settings.per_second or 0)  # a second's worth at most
        self._refilled_at = clock()
        self._disk_checked_at = float("-inf")
        self.free_bytes = 0

    def check_limits(self) -> RequestRejectedError | None:
        """Why nothing is taken now; None when something is."""
        per_second = self._settings.per_second
        if per_second and (allowance := self._refill_allowance()) <= 0:
            until_made_up_for = math.floor(-allowance / per_second) + 1
            sentence = f"more than {per_second} events a second; slow down"
            return retry_later_error("rate", sentence, until_made_up_for)
        return self.check_queue_and_disk()

    def check_queue_and_disk(self) -> RequestRejectedError | None:
        """Return the same for a limit that the operator has to act on."""
        if self._count_pending() >= self._settings.max_waiting:
            sentence = f"{self._settings.max_waiting} events wait for a run that takes them; send it later"
            return retry_later_error("waiting", sentence, RETRY_AFTER_SECONDS)
        self.check_disk()
        if self.free_bytes < self._settings.free_bytes:
            return retry_later_error("disk", "the disk is nearly full; send it later", RETRY_AFTER_SECONDS)
        return None

    def consume_allowance(self, events: int) -> None:
        """Count what is taken; a batch may take more than is allowed now, and those after it wait."""
        self._allowance -= events

    def _refill_allowance(self) -> float:
        now, per_second = self._clock(), float(self._settings.per_second or 0)
        grown = self._allowance + (now - self._refilled_at) * per_second
        self._allowance, self._refilled_at = min(grown, per_second), now
        return self._allowance

    def check_disk(self) -> None:
        """See how much room there is, unless that was seen just now."""
        if self._clock() - self._disk_checked_at >= DISK_CHECK_SECONDS:
            self._disk_checked_at = self._clock()
            self.free_bytes = shutil.disk_usage(self._folder).free
