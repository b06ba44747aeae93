"""What a sync run did, as one value: what Dagster shows, what the history keeps, what the checks judge."""

import collections
import dataclasses
import enum
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple, Self

from ondatra_dagster.changes import ChangeType, Json
from ondatra_dagster.delivery.queue.backlog import Waiting
from ondatra_dagster.delivery.queue.reasons import Reason
from ondatra_dagster.delivery.queue.removals import Removals
from ondatra_dagster.delivery.queue.settle import Settled
from ondatra_dagster.delivery.queue.settled import REJECTED, SUCCEEDED
from ondatra_dagster.delivery.queue.states import QueueState
from ondatra_dagster.tracking.history import Mode, PastRun
from ondatra_dagster.tracking.record import RowEnd

SAMPLES = 20
KEPT_REASONS = 5  # of each sort, in the history


class Operation(enum.StrEnum):
    """A column of the grid: what a change is to the destination."""

    INSERT = "insert"
    UPDATE = "update"
    DELETE = "delete"


# the image before an update tells push what was there; it is no operation of its own
OPERATIONS = {
    ChangeType.INSERT: Operation.INSERT,
    ChangeType.UPDATE_POSTIMAGE: Operation.UPDATE,
    ChangeType.DELETE: Operation.DELETE,
}


def change_type_of(operation: Operation) -> ChangeType:
    """What the records of a column of the grid have."""
    return next(change_type for change_type, each in OPERATIONS.items() if each is operation)


class Cell(enum.StrEnum):
    """A row of the grid."""

    PLANNED = "planned"  # what the queue held for this run
    ATTEMPTED = "attempted"
    SUCCEEDED = "succeeded"
    REJECTED = "rejected"  # never again: refused, or tried too often
    FAILED = "failed"  # not now: they wait
    INVALID = "invalid"  # set aside before the write


# of a row's record, by its status; another status says why the row was set aside
CELLS = {SUCCEEDED: Cell.SUCCEEDED, REJECTED: Cell.REJECTED}
RECORDED = frozenset({*CELLS.values(), Cell.INVALID})  # what records tell of; the others are known to a run


@dataclasses.dataclass(slots=True)
class Grid:
    """Counts of rows by what became of them and what they are to the destination.

    A run that was cut off has left no count of what its records don't tell: that is unknown, and not nought.
    """

    cells: collections.Counter[tuple[Cell, Operation]] = dataclasses.field(
        default_factory=collections.Counter
    )
    counted: frozenset[Cell] = frozenset(Cell)  # the others are unknown

    def add(self, cell: Cell, counts: Mapping[str, int]) -> None:
        """Counts by change type."""
        for change_type, count in counts.items():
            if operation := OPERATIONS.get(ChangeType(change_type)):
                self.cells[cell, operation] += count

    def add_settled(self, settled: Settled) -> None:
        for cell, counts in (
            (Cell.SUCCEEDED, settled.succeeded),
            (Cell.REJECTED, settled.rejected),
            (Cell.FAILED, settled.failed),
        ):
            self.add(cell, counts)
        for counts in (settled.succeeded, settled.rejected, settled.failed):
            self.add(Cell.ATTEMPTED, counts)

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
    rejects: tuple[Reason, ...] = ()  # why rows were rejected, the most frequent first
    warned: int = 0  # rows that were delivered with a warning
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
    return tuple(sorted(reasons, key=lambda reason: -reason.rows))


def _dump_reasons(reasons: Sequence[Reason]) -> list[Json]:
    return [[each.message, each.rows, list(each.keys)] for each in reasons]


def _load_reasons(run: PastRun, name: str) -> tuple[Reason, ...]:
    counts: Mapping[str, Any] = run.counts
    return tuple(Reason(message, rows, tuple(keys)) for message, rows, keys in counts.get(name, ()))


def grid_of(counts: Mapping[str, Mapping[str, int]]) -> Grid:
    """The grid that to_json() wrote."""
    grid = Grid(counted=frozenset(map(Cell, counts)))
    for cell, row in counts.items():
        for operation, count in row.items():
            grid.cells[Cell(cell), Operation(operation)] = count
    return grid


def grid_of_ends(ends: Mapping[RowEnd, int]) -> Grid:
    """As far as records tell it: what was delivered, rejected or set aside."""
    grid = Grid(counted=RECORDED)
    for end, count in ends.items():
        grid.add(CELLS.get(end.status, Cell.INVALID), {end.change_type: count})
    return grid


def summary_of(
    run: PastRun,
    queue: QueueState | None,
    rejects: Sequence[Reason],
    *,
    set_aside: int,
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
