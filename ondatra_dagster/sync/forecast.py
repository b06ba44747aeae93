"""What a run of a sync would do, as a value: what came of a dry run."""

import dataclasses
from collections.abc import Mapping
from typing import Any, Self

from ondatra_dagster.changes import Json
from ondatra_dagster.delivery.queue.outlook import NOTHING_AHEAD, Moves, Outlook
from ondatra_dagster.sync.summary import Cell, RunSummary
from ondatra_dagster.tracking.history import PastRun


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Forecast:
    """A run that stopped before it sent anything."""

    summary: RunSummary  # its queue is as the run would find it; what it planned is what push would be handed
    outlook: Outlook = NOTHING_AHEAD
    source_rows: int | None = None  # in the model's table as it would be; None: nobody has counted them
    refusal: str = ""  # why a run would send nothing, and fail

    @property
    def numbers(self) -> dict[str, int | None]:
        """All counts, by the names that people and programs know them by."""
        queue, expected = self.summary.queue, self.outlook.expected
        return {
            "source_rows": self.source_rows,
            "changed": self.outlook.changed,
            "invalid": self.summary.grid.count(Cell.INVALID),
            "set_aside": self.summary.set_aside,
            **expected._asdict(),
            "destination_before": self.outlook.before,
            "destination_after": self.outlook.after,
            "waiting": queue.waiting if queue else 0,
            "dead": queue.dead if queue else 0,
            "in_jobs": queue.in_jobs if queue else 0,
        }

    def to_json(self) -> dict[str, Json]:
        """What the history keeps: numbers, and no row."""
        return {"grid": self.summary.grid.to_json(), "dry": dict(self.numbers)}

    @classmethod
    def refused(cls, summary: RunSummary, why: str) -> Self:
        """Of a run that would end before it looked at a row."""
        return cls(summary=dataclasses.replace(summary, message=why), refusal=why)


def numbers_of(run: PastRun) -> Mapping[str, int | None]:
    """The numbers of a dry run, as its history has them; none of a run that wasn't dry."""
    dry: Mapping[str, Any] = run.counts.get("dry") or {}  # type: ignore[assignment]  # as to_json() wrote it
    return dry


def expected_of(run: PastRun) -> Moves | None:
    """What a dry run said would become of the destination's rows; None for a run that wasn't dry."""
    dry: Mapping[str, Any] = numbers_of(run)
    return Moves(*(dry[name] for name in Moves._fields)) if dry else None
