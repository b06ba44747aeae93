"""When a sensor wakes a sync: as soon as there is work, and ever less often while that work stays the same.

The plan says whether there is work, from what is there and not from what was heard of: nothing is missed.
What a sensor asked for is in its cursor, so a run that fails at once isn't asked for at each tick.
"""

import dataclasses

from ondatra_dagster.clock_jumps import time_that_counts
from ondatra_dagster.delivery.backoff import wait_seconds

GRACE_SECONDS = 60.0  # in which what is new is left to the sensor that heard of it


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Wake:
    """A run that was asked for."""

    work: str  # what there was to do, as a text that stays the same while it is the same
    tries: int  # 0: it was seen, and left to another
    at: float  # seconds since 1970

    @property
    def next_at(self) -> float:
        """When to ask again for the same work; without chance, for each tick asks this."""
        if not self.tries:
            return self.at + GRACE_SECONDS
        return self.at + wait_seconds(self.tries, uniform=lambda *_: 1.0)

    def run_key(self, sync_id: str) -> str:
        """Dagster starts one run for each, ever: work that comes back as it once was is asked for anew."""
        return f"{sync_id}:{self.work}#{self.tries}@{self.at:.0f}"


def next_wake(work: str, before: Wake | None, *, now: float, is_new: bool = False) -> Wake | None:
    """The run to ask for now; None when the same work was asked for too short a time ago.

    What is new is only noted the first time it is seen.
    """
    if before is None or before.work != work:
        return Wake(work=work, tries=0 if is_new else 1, at=now)
    if now < time_that_counts(before.next_at, set_at=before.at, now=now):
        return None
    return Wake(work=work, tries=before.tries + 1, at=now)
