"""When the collector takes nothing for a while: too many at once, too many that wait, no room on the disk."""

import math
import shutil
import time
from collections.abc import Callable
from pathlib import Path

from ondatra_dagster.collector.answers import Answer, too_many
from ondatra_dagster.project.settings.event_settings import EventSettings

LOOK_SECONDS = 1.0  # between two looks at the disk
LATER_SECONDS = 30


class Limits:
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
        self._waiting = waiting
        self._clock = clock
        self._allowance = float(settings.per_second or 0)  # a second's worth at most
        self._counted_at = clock()
        self._looked_at = float("-inf")
        self.free_bytes = 0

    def refusal(self) -> Answer | None:
        """Why nothing is taken now; None when something is."""
        per_second = self._settings.per_second
        if per_second and (allowance := self._grown_allowance()) <= 0:
            until_made_up_for = math.floor(-allowance / per_second) + 1
            sentence = f"more than {per_second} events a second; slow down"
            return too_many("rate", sentence, until_made_up_for)
        return self.lasting_refusal()

    def lasting_refusal(self) -> Answer | None:
        """The same for what somebody has to see to."""
        if self._waiting() >= self._settings.max_waiting:
            sentence = f"{self._settings.max_waiting} events wait for a run that takes them; send it later"
            return too_many("waiting", sentence, LATER_SECONDS)
        self.look()
        if self.free_bytes < self._settings.free_bytes:
            return too_many("disk", "the disk is nearly full; send it later", LATER_SECONDS)
        return None

    def spend(self, events: int) -> None:
        """Count what is taken; a batch may take more than is allowed now, and those after it wait."""
        self._allowance -= events

    def _grown_allowance(self) -> float:
        now, per_second = self._clock(), float(self._settings.per_second or 0)
        grown = self._allowance + (now - self._counted_at) * per_second
        self._allowance, self._counted_at = min(grown, per_second), now
        return self._allowance

    def look(self) -> None:
        """See how much room there is, unless that was seen just now."""
        if self._clock() - self._looked_at >= LOOK_SECONDS:
            self._looked_at = self._clock()
            self.free_bytes = shutil.disk_usage(self._folder).free
