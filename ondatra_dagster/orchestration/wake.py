"""When a sensor wakes a sync: as soon as there is work, and ever less often while that work stays the same.

The plan says whether there is work, from what is there and not from what was heard of: nothing is missed.
What a sensor asked for is in its cursor, so a run that fails at once isn't asked for at each tick.
"""

import dataclasses
from typing import Self

import orjson

from ondatra_dagster.delivery.backoff import wait_seconds


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Wake:
    """A run that was asked for."""

    work: str  # what there was to do, as a text that stays the same while it is the same
    tries: int
    at: float  # seconds since 1970

    @classmethod
    def load(cls, cursor: str | None) -> Self | None:
        return cls(**orjson.loads(cursor)) if cursor else None

    def dump(self) -> str:
        return orjson.dumps(dataclasses.asdict(self)).decode()

    @property
    def next_at(self) -> float:
        """When to ask again for the same work; without chance, for each tick asks this."""
        return self.at + wait_seconds(self.tries, uniform=lambda *_: 1.0)

    def run_key(self, sync_id: str) -> str:
        """Dagster starts one run for each."""
        return f"{sync_id}:{self.work}#{self.tries}"


def next_wake(work: str, before: Wake | None, *, now: float) -> Wake | None:
    """The run to ask for now; None when the same work was asked for too short a time ago."""
    if before is None or before.work != work:
        return Wake(work=work, tries=1, at=now)
    if now < before.next_at:
        return None
    return Wake(work=work, tries=before.tries + 1, at=now)
