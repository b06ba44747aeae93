"""The summary of a sync run, which Dagster shows, the history stores and the checks judge."""

import collections
import dataclasses
import enum
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple, Self

from ondatra_dagster.count_time_and_size_format import format_count
from ondatra_dagster.delivery.queue.change_and_outcome_counts import UnitOperation, UnitOutcome
from ondatra_dagster.delivery.queue.dead_letter_reading_and_replay import FailureReason
from ondatra_dagster.delivery.queue.pending_rows import PendingKey
from ondatra_dagster.delivery.queue.preview_of_changes_to_send import (
    NO_EXPECTED_CHANGES,
    ExpectedChanges,
    RowChangeCounts,
)
from ondatra_dagster.delivery.queue.queue_status import QueueStatus
from ondatra_dagster.delivery.queue.removal_count import RemovalCount
from ondatra_dagster.row_changes import Json
from ondatra_dagster.sync.run_history_store import PastRun, RunMode

MAX_SAMPLES = 20
MAX_STORED_REASONS = 5  # reasons of each kind that the history stores


class GridRow(enum.StrEnum):
    """A row of the count grid: an outcome. planned = succeeded + rejected + failed + in_jobs + not_sent."""

    PLANNED = "planned"  # what was in the queue for this run
    ATTEMPTED = "attempted"  # succeeded, rejected or failed
    SUCCEEDED = "succeeded"
    REJECTED = "rejected"  # not sent again: rejected, or failed too often
    FAILED = "failed"  # tried, and will be retried
    IN_JOBS = "in_jobs"  # the API works on these
    NOT_SENT = "not_sent"  # the sync was paused, guarded or limited, or the API was down
    INVALID = "invalid"  # rows that aren't in the table because of their keys: they were never planned


GRID_ROW_BY_END = {
    UnitOutcome.SUCCEEDED: GridRow.SUCCEEDED,
    UnitOutcome.REJECTED: GridRow.REJECTED,
    UnitOutcome.FAILED: GridRow.FAILED,
}
PLANNED_ROWS = (*GRID_ROW_BY_END.values(), GridRow.IN_JOBS, GridRow.NOT_SENT)


# for a run that crashed before it planned anything
RECORDED_ROWS = frozenset({*GRID_ROW_BY_END.values(), GridRow.INVALID})


def describe_counts(counts: Mapping[UnitOperation, int]) -> str:
    """Return the counts in words, such as "3 inserts and 1 update", for messages."""
    count_texts = [
        format_count(counts[operation], operation.value) for operation in UnitOperation if counts.get(operation)
    ]
    return " and ".join([", ".join(count_texts[:-1]), count_texts[-1]] if len(count_texts) > 1 else count_texts)


@dataclasses.dataclass(slots=True)
class CountGrid:
    """The counts of a run's units, by outcome and by operation.

    A run that crashed before it planned anything has no counts of what it would have sent.
    """

    cells: collections.Counter[tuple[GridRow, UnitOperation]] = dataclasses.field(default_factory=collections.Counter)
    known_rows: frozenset[GridRow] = frozenset(GridRow)  # the counts of other rows are unknown

    def add_counts(self, cell: GridRow, counts: Mapping[UnitOperation, int]) -> None:
        for operation, units in counts.items():
            self.cells[cell, operation] += units

    def add_attempts(self, outcome_counts: Mapping[UnitOutcome, Mapping[UnitOperation, int]]) -> None:
        """Add the counts of attempted units, given by outcome and operation."""
        for end, counts in outcome_counts.items():
            self.add_counts(GRID_ROW_BY_END[end], counts)
            self.add_counts(GridRow.ATTEMPTED, counts)

    def count_unsent(self, in_jobs: Mapping[UnitOperation, int]) -> None:
        """Count the units in jobs at the end of the run, and count the remaining planned units as not sent."""
        self.add_counts(GridRow.IN_JOBS, in_jobs)
        for operation in UnitOperation:
            counted_units = sum(self.cells[cell, operation] for cell in PLANNED_ROWS)
            self.cells[GridRow.NOT_SENT, operation] += self.cells[GridRow.PLANNED, operation] - counted_units

    def total(self, cell: GridRow) -> int:
        """Return the outcome's count over all operations; 0 if the count is unknown."""
        return sum(self.cells[cell, operation] for operation in UnitOperation)

    def known_total(self, cell: GridRow, operation: UnitOperation | None = None) -> int | None:
        """Return the outcome's count for one operation, or for all operations; None if the count is unknown."""
        if cell not in self.known_rows:
            return None
        return self.total(cell) if operation is None else self.cells[cell, operation]

    def to_json(self) -> dict[str, Json]:
        """Return all known counts, by outcome and operation."""
        return {
            cell.value: {op.value: self.cells[cell, op] for op in UnitOperation}
            for cell in GridRow
            if cell in self.known_rows
        }


class InvalidRecordSample(NamedTuple):
    """An invalid row, without its payload."""

    key: str
    change_type: str
    reason: str


class RunCause(NamedTuple):
    """The trigger of a run, its mode, and the reason for the mode."""

    trigger: str  # the command, a sensor, a schedule
    mode: RunMode
    reason: str  # why the run has this mode, in words


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class RunSummary:
    sync_id: str
    run_id: str | None  # None: there was nothing to do, or another process delivers
    cause: RunCause | None = None
    started_at: datetime
    ended_at: datetime
    version_from: int | None
    version_to: int | None
    grid: CountGrid
    queue: QueueStatus | None  # at the end of the run
    invalid_count: int = 0  # rows of the model that its table doesn't have, because of their keys
    unit_noun: str = "row"  # what a unit is called: row or group
    reject_reasons: tuple[FailureReason, ...] = ()  # why units were rejected, most frequent first
    warned_units: int = 0  # units that were delivered with a warning
    warning_reasons: tuple[FailureReason, ...] = ()  # the messages of these warnings
    invalid_samples: tuple[InvalidRecordSample, ...] = ()  # samples of invalid rows
    failure_reasons: tuple[FailureReason, ...] = ()  # why rows failed that are retried, most frequent first
    first_errors: tuple[str, ...] = ()  # the first different messages of rows that failed
    dead_units: int = 0  # units that ran out of attempts in this run
    is_outage: bool = False
    removals: RemovalCount | None = None  # the delete guard's count; None: nothing was checked
    pending_samples: tuple[PendingKey, ...] = ()  # samples of the rows that are still to be delivered
    message: str = ""  # a sentence for the user
    queue_read_at: datetime | None = None  # when `queue` was read, if the run had ended before

    @classmethod
    def without_run(cls, sync_id: str, message: str, *, end_time: datetime) -> Self:
        """Return the summary of a sync whose run didn't begin, so that its queue wasn't read."""
        return cls(
            sync_id=sync_id,
            run_id=None,
            started_at=end_time,
            ended_at=end_time,
            version_from=None,
            version_to=None,
            grid=CountGrid(),
            queue=None,
            message=message,
        )

    @property
    def has_run(self) -> bool:
        return self.run_id is not None

    @property
    def is_past(self) -> bool:
        """Return whether the summary was made after the run's end. The API's state may have changed since."""
        return self.queue_read_at is not None

    def to_json(self) -> dict[str, Json]:
        """Return the counts, samples and reasons that the history stores, for a check that is run alone later."""
        return {
            "grid": self.grid.to_json(),
            "died": self.dead_units,
            "is_outage": self.is_outage,
            "invalid": [list(sample) for sample in self.invalid_samples],
            "warned": self.warned_units,
            "warning_reasons": _dump_reasons(self.warning_reasons),
            "failure_reasons": _dump_reasons(self.failure_reasons[:MAX_STORED_REASONS]),
            "reject_reasons": _dump_reasons(self.reject_reasons[:MAX_STORED_REASONS]),
        }


def load_invalid_samples(run: PastRun) -> tuple[InvalidRecordSample, ...]:
    """Return a past run's samples of invalid rows, which RunSummary.to_json() wrote."""
    counts: Mapping[str, Any] = run.counts
    return tuple(InvalidRecordSample(*fields) for fields in counts.get("invalid", ()))


def load_undelivered_reasons(run: PastRun) -> tuple[FailureReason, ...]:
    """Return the reasons why rows of a past run weren't delivered, most frequent first."""
    reasons = [*_load_reasons(run, "failure_reasons"), *_load_reasons(run, "reject_reasons")]
    return tuple(sorted(reasons, key=lambda reason: -reason.unit_count))


def _dump_reasons(reasons: Sequence[FailureReason]) -> list[Json]:
    return [[reason.message, reason.unit_count, list(reason.keys)] for reason in reasons]


def _load_reasons(run: PastRun, name: str) -> tuple[FailureReason, ...]:
    counts: Mapping[str, Any] = run.counts
    return tuple(FailureReason(message, units, tuple(keys)) for message, units, keys in counts.get(name, ()))


def load_grid(run: PastRun) -> CountGrid:
    """Return the count grid of a past run; for a dry run, the expected counts."""
    counts: Mapping[str, Any] = run.counts.get("grid", {})  # type: ignore[assignment]
    grid = CountGrid(known_rows=frozenset(map(GridRow, counts)))
    for cell, row in counts.items():
        for operation, units in row.items():
            grid.cells[GridRow(cell), UnitOperation(operation)] = units
    return grid


def summarize_past_run(run: PastRun) -> RunSummary:
    """Return the summary of a run in the history, without the queue and other facts that change after a run."""
    counts: Mapping[str, Any] = run.counts
    return RunSummary(
        sync_id=run.sync_id,
        run_id=run.run_id,
        cause=RunCause(run.trigger, run.mode, run.reason),
        started_at=run.started_at,
        ended_at=run.ended_at or run.started_at,
        version_from=run.version_from,
        version_to=run.version_to,
        grid=load_grid(run),
        queue=None,
        warned_units=counts.get("warned", 0),
        warning_reasons=_load_reasons(run, "warning_reasons"),
        invalid_samples=load_invalid_samples(run),
        first_errors=run.first_errors,
        dead_units=counts.get("died", 0),
        is_outage=counts.get("is_outage", False),
    )


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class DryRunResult:
    """The result of a dry run, which stops before it sends anything."""

    summary: RunSummary  # with the queue that a run would find; its planned units are those that push() would get
    expected_changes: ExpectedChanges = NO_EXPECTED_CHANGES
    source_rows: int | None = None  # rows of the model's table after the run; None: not counted
    refusal: str = ""  # why a run would fail and send nothing

    @property
    def counts(self) -> dict[str, int | None]:
        """Return all counts of the dry run, by the names that users and programs know."""
        queue, change_counts = self.summary.queue, self.expected_changes.change_counts
        return {
            "source_rows": self.source_rows,
            "changed": self.expected_changes.changed_units,
            "invalid": self.summary.grid.total(GridRow.INVALID),
            "invalid_rows": self.summary.invalid_count,
            **change_counts._asdict(),
            "destination_before": self.expected_changes.units_before,
            "destination_after": self.expected_changes.units_after,
            "waiting": queue.waiting_units if queue else 0,
            "dead": queue.dead_units if queue else 0,
            "in_jobs": queue.units_in_jobs if queue else 0,
        }

    def to_json(self) -> dict[str, Json]:
        """Return the counts that the history stores; it stores no rows of a dry run."""
        return {"grid": self.summary.grid.to_json(), "dry": dict(self.counts)}

    @classmethod
    def from_refusal(cls, summary: RunSummary, reason: str) -> Self:
        """Return the result for a run that would be refused before it reads a row."""
        return cls(summary=dataclasses.replace(summary, message=reason), refusal=reason)


def load_dry_run_counts(run: PastRun) -> Mapping[str, int | None]:
    """Return a dry run's counts from the history; an empty mapping for a run that wasn't dry."""
    dry_run_counts: Mapping[str, Any] = run.counts.get("dry") or {}  # type: ignore[assignment]  # as to_json() wrote it
    return dry_run_counts


def load_expected_changes(run: PastRun) -> RowChangeCounts | None:
    """Return how a dry run expects the destination's rows to change; None for a run that wasn't dry."""
    dry_run_counts: Mapping[str, Any] = load_dry_run_counts(run)
    return RowChangeCounts(*(dry_run_counts[name] for name in RowChangeCounts._fields)) if dry_run_counts else None
