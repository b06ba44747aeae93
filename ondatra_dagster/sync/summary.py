"""What a sync run did, as one value: what Dagster shows, what the history keeps, what the checks judge."""

import collections
import dataclasses
import enum
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple, Self

from ondatra_dagster.changes import Json
from ondatra_dagster.delivery.queue.backlog import Waiting
from ondatra_dagster.delivery.queue.reasons import Reason
from ondatra_dagster.delivery.queue.removals import Removals
from ondatra_dagster.delivery.queue.states import QueueState
from ondatra_dagster.delivery.queue.unit_counts import End, Operation
from ondatra_dagster.tracking.history import Mode, PastRun
from ondatra_dagster.wording import count

SAMPLES = 20
KEPT_REASONS = 5  # of each sort, in the history


class Cell(enum.StrEnum):
    """A row of the grid. planned = succeeded + rejected + failed + in_jobs + not_sent."""

    PLANNED = "planned"  # what the queue held for this run
    ATTEMPTED = "attempted"  # succeeded, rejected or failed
    SUCCEEDED = "succeeded"
    REJECTED = "rejected"  # never again: refused, or tried too often
    FAILED = "failed"  # tried, and will be tried again
    IN_JOBS = "in_jobs"  # the API works on it
    NOT_SENT = "not_sent"  # the sync was paused, guarded or limited, or the API was down
    INVALID = "invalid"  # rows that were kept out of the table: they were never planned


ENDS = {End.SUCCEEDED: Cell.SUCCEEDED, End.REJECTED: Cell.REJECTED, End.FAILED: Cell.FAILED}
PARTS_OF_PLANNED = (*ENDS.values(), Cell.IN_JOBS, Cell.NOT_SENT)


# of a run that was cut off before it planned anything
RECORDED = frozenset({*ENDS.values(), Cell.INVALID})


def describe_counts(counts: Mapping[Operation, int]) -> str:
    """3 inserts and 1 update."""
    parts = [count(counts[operation], operation.value) for operation in Operation if counts.get(operation)]
    return " and ".join([", ".join(parts[:-1]), parts[-1]] if len(parts) > 1 else parts)


@dataclasses.dataclass(slots=True)
class Grid:
    """Counts of units by what became of them and what they are to the destination.

    A run that was cut off before it planned anything has no counts of what it would have sent.
    """

    cells: collections.Counter[tuple[Cell, Operation]] = dataclasses.field(
        default_factory=collections.Counter
    )
    counted: frozenset[Cell] = frozenset(Cell)  # the others are unknown

    def add(self, cell: Cell, counts: Mapping[Operation, int]) -> None:
        for operation, units in counts.items():
            self.cells[cell, operation] += units

    def add_ends(self, ends: Mapping[End, Mapping[Operation, int]]) -> None:
        """Add units that were attempted, by how they ended."""
        for end, counts in ends.items():
            self.add(ENDS[end], counts)
            self.add(Cell.ATTEMPTED, counts)

    def close(self, in_jobs: Mapping[Operation, int]) -> None:
        """Count what is in jobs at the end of the run, and what of the plan is left as not sent."""
        self.add(Cell.IN_JOBS, in_jobs)
        for operation in Operation:
            rest = sum(self.cells[cell, operation] for cell in PARTS_OF_PLANNED)
            self.cells[Cell.NOT_SENT, operation] += self.cells[Cell.PLANNED, operation] - rest

    def count(self, cell: Cell) -> int:
        """How many as far as anybody knows."""
        return sum(self.cells[cell, operation] for operation in Operation)

    def known(self, cell: Cell, operation: Operation | None = None) -> int | None:
        """How many, of one operation or of all; None when nobody has counted."""
        if cell not in self.counted:
            return None
        return self.count(cell) if operation is None else self.cells[cell, operation]

    def to_json(self) -> dict[str, Json]:
        """All that is known."""
        return {
            cell.value: {op.value: self.cells[cell, op] for op in Operation}
            for cell in Cell
            if cell in self.counted
        }


class Sample(NamedTuple):
    """One row that was set aside, without its payload."""

    key: str
    change_type: str
    reason: str


class RunOccasion(NamedTuple):
    """Why a run happened, and how much it looked at."""

    trigger: str  # the command, a sensor, a schedule
    mode: Mode
    reason: str  # why that mode, in words


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class RunSummary:
    sync_id: str
    run_id: str | None  # None: the run had nothing to do, or another one delivers
    occasion: RunOccasion | None = None
    started_at: datetime
    ended_at: datetime
    version_from: int | None
    version_to: int | None
    grid: Grid
    queue: QueueState | None  # as the run left it
    set_aside: int = 0  # rows of the model that its table doesn't have, for their keys
    noun: str = "row"  # what a unit is called: row or group
    rejects: tuple[Reason, ...] = ()  # why units were rejected, the most frequent first
    warned: int = 0  # units that were delivered with a warning
    warnings: tuple[Reason, ...] = ()  # what was said of them
    invalid: tuple[Sample, ...] = ()  # some of those that were set aside
    failures: tuple[Reason, ...] = ()  # why rows failed that are tried again, the most frequent first
    errors: tuple[str, ...] = ()  # the first different messages of rows that failed
    died: int = 0  # units that ran out of attempts in this run
    is_outage: bool = False
    removals: Removals | None = None  # what of the change is to be looked at; None: nothing was
    waiting: tuple[Waiting, ...] = ()  # some of the rows that are still to be delivered
    message: str = ""  # what a person should know, in a sentence
    seen_at: datetime | None = None  # when `queue` was looked at, where the run had ended before

    @classmethod
    def of_nothing(cls, sync_id: str, message: str, *, at: datetime) -> Self:
        """Of a run that couldn't even look at its queue."""
        return cls(
            sync_id=sync_id,
            run_id=None,
            started_at=at,
            ended_at=at,
            version_from=None,
            version_to=None,
            grid=Grid(),
            queue=None,
            message=message,
        )

    @property
    def has_done_something(self) -> bool:
        return self.run_id is not None

    @property
    def is_past(self) -> bool:
        """Whether somebody looks back at the run: what it found of the API may be so no more."""
        return self.seen_at is not None

    def counts(self) -> dict[str, Json]:
        return self.grid.to_json()

    def to_json(self) -> dict[str, Json]:
        """What the history keeps, for a check that is run alone later."""
        return {
            "grid": self.grid.to_json(),
            "died": self.died,
            "is_outage": self.is_outage,
            "invalid": [list(sample) for sample in self.invalid],
            "warned": self.warned,
            "warning_reasons": _dump_reasons(self.warnings),
            "failure_reasons": _dump_reasons(self.failures[:KEPT_REASONS]),
            "reject_reasons": _dump_reasons(self.rejects[:KEPT_REASONS]),
        }


def invalid_of(run: PastRun) -> tuple[Sample, ...]:
    """The samples of set aside rows that to_json() wrote."""
    counts: Mapping[str, Any] = run.counts
    return tuple(Sample(*fields) for fields in counts.get("invalid", ()))


def undelivered_reasons(run: PastRun) -> tuple[Reason, ...]:
    """Return why rows of a run weren't delivered, the most frequent reason first."""
    reasons = [*_load_reasons(run, "failure_reasons"), *_load_reasons(run, "reject_reasons")]
    return tuple(sorted(reasons, key=lambda reason: -reason.units))


def _dump_reasons(reasons: Sequence[Reason]) -> list[Json]:
    return [[each.message, each.units, list(each.keys)] for each in reasons]


def _load_reasons(run: PastRun, name: str) -> tuple[Reason, ...]:
    counts: Mapping[str, Any] = run.counts
    return tuple(Reason(message, units, tuple(keys)) for message, units, keys in counts.get(name, ()))


def grid_of(counts: Mapping[str, Mapping[str, int]]) -> Grid:
    """The grid that to_json() wrote."""
    grid = Grid(counted=frozenset(map(Cell, counts)))
    for cell, row in counts.items():
        for operation, units in row.items():
            grid.cells[Cell(cell), Operation(operation)] = units
    return grid


def summary_of(
    run: PastRun,
    queue: QueueState | None,
    rejects: Sequence[Reason],
    *,
    set_aside: int,
    noun: str = "row",
    waiting: Sequence[Waiting] = (),
    removals: Removals | None = None,
    seen_at: datetime,
) -> RunSummary:
    """A past run as its checks see it now: its own counts, and the queue as it stands."""
    counts: Mapping[str, Any] = run.counts
    return RunSummary(
        sync_id=run.sync_id,
        run_id=run.run_id,
        occasion=RunOccasion(run.trigger, run.mode, run.reason),
        started_at=run.started_at,
        ended_at=run.ended_at or run.started_at,
        version_from=run.version_from,
        version_to=run.version_to,
        grid=grid_of(counts.get("grid", {})),
        queue=queue,
        set_aside=set_aside,
        noun=noun,
        rejects=tuple(rejects),
        warned=counts.get("warned", 0),
        warnings=_load_reasons(run, "warning_reasons"),
        invalid=invalid_of(run),
        errors=run.first_errors,
        died=counts.get("died", 0),
        is_outage=counts.get("is_outage", False),
        removals=removals,
        waiting=tuple(waiting),
        seen_at=seen_at,
    )
