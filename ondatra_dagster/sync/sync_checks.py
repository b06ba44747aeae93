"""The four checks of a sync, which judge a run and the queue after it.

A problem during sending is an ERROR of the run that sent. A later run with nothing to send has called no API,
so it reports the same problem as a warning. For such a run, only a problem that is visible in the queue can be
an ERROR.
"""

import dataclasses
import enum
from collections.abc import Iterable, Mapping

from ondatra_dagster.count_time_and_size_format import describe_invalid_rows, format_count, format_duration
from ondatra_dagster.delivery.queue.dead_letter_reading_and_replay import FailureReason
from ondatra_dagster.delivery.queue.pending_rows import PendingKey
from ondatra_dagster.delivery.queue.queue_status import QueueStatus
from ondatra_dagster.delivery.queue.removal_count import RemovalCount
from ondatra_dagster.project.model import RowLimit
from ondatra_dagster.row_changes import Json
from ondatra_dagster.sync.run_summary import MAX_SAMPLES, GridRow, RunSummary

HOUR_SECONDS = 3600.0
DEFAULT_MAX_LAG_SECONDS = 24 * HOUR_SECONDS


class Severity(enum.StrEnum):
    PASS = "pass"  # noqa: S105  # a check's word, no password
    WARN = "warn"
    ERROR = "error"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class SyncCheckResult:
    """The result of one check."""

    name: str
    severity: Severity
    description: str
    counts: Mapping[str, Json]
    samples: tuple[Mapping[str, Json], ...] = ()


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class SyncLimits:
    """The limits that a model's header sets; None means no limit."""

    max_rejects: RowLimit | None = None
    max_deletes: RowLimit | None = None
    max_lag_seconds: float = DEFAULT_MAX_LAG_SECONDS

    def has_too_many_rejects(self, rejected_units: int, *, attempted_units: int) -> bool:
        return self.max_rejects is not None and self.max_rejects.is_exceeded_by(rejected_units, of=attempted_units)

    def has_too_many_deletes(self, removals: RemovalCount) -> bool:
        """Return whether the removals exceed @max_deletes. A percentage of an unknown number counts as exceeded."""
        if self.max_deletes is None or removals.is_allowed or not removals.removed_count:
            return False
        if self.max_deletes.is_percentage and removals.total_count is None:
            return True
        return self.max_deletes.is_exceeded_by(removals.removed_count, of=removals.total_count or 0)


def check_rejects(run: RunSummary, limits: SyncLimits) -> SyncCheckResult:
    """Return WARN for any reject, dead letter or warning; ERROR if all attempted units or too many were rejected.

    For a past run, return WARN in all these cases.
    """
    rejected_count = run.grid.total(GridRow.REJECTED)
    dead_count = run.queue.dead_units if run.queue else 0
    samples = format_reasons((*run.reject_reasons, *run.warning_reasons)[:MAX_SAMPLES])
    counts: dict[str, Json] = {
        "rejected": rejected_count,
        "attempted": run.grid.known_total(GridRow.ATTEMPTED),
        "dead_letters": dead_count,
        "warned": run.warned_units,
    }

    def build_result(severity: Severity, description: str) -> SyncCheckResult:
        return SyncCheckResult(
            name="rejects", severity=severity, description=description, counts=counts, samples=samples
        )

    if not run.is_past and (problem := _find_reject_problem(run, limits)):
        return build_result(Severity.ERROR, problem)
    if rejected_count or dead_count or run.warned_units:
        dead_letter_note = (
            f"{format_count(dead_count, 'dead letter')}: see `ondatra dead {run.sync_id}`" if dead_count else ""
        )
        time_note = "by the newest run" if run.is_past else "now"
        rejected_note = f"{format_count(rejected_count, run.unit_noun)} rejected {time_note}" if rejected_count else ""
        warning_note = (
            f"{format_count(run.warned_units, run.unit_noun)} delivered with a warning" if run.warned_units else ""
        )
        return build_result(Severity.WARN, "; ".join(filter(None, (rejected_note, dead_letter_note, warning_note))))
    has_reject_count = GridRow.REJECTED in run.grid.known_rows
    return build_result(
        Severity.PASS, f"no {run.unit_noun} was rejected" if has_reject_count else "there are no dead letters"
    )


def _find_reject_problem(run: RunSummary, limits: SyncLimits) -> str | None:
    rejected_count, attempted_count = run.grid.total(GridRow.REJECTED), run.grid.total(GridRow.ATTEMPTED)
    if rejected_count and rejected_count == attempted_count:
        return f"all that was attempted was rejected: {format_count(rejected_count, run.unit_noun)}"
    if limits.has_too_many_rejects(rejected_count, attempted_units=attempted_count):
        return f"{rejected_count} of {format_count(attempted_count, run.unit_noun)} rejected: over @max_rejects"
    return None


def format_reasons(reasons: Iterable[FailureReason]) -> tuple[Mapping[str, Json], ...]:
    """Return each reason as a row of a table, with its units and their keys."""
    return tuple({"reason": reason.message, "units": reason.unit_count, "keys": reason.key_list} for reason in reasons)


def format_pending_keys(rows: Iterable[PendingKey]) -> tuple[Mapping[str, Json], ...]:
    """Return each pending row as a row of a table, with its attempts and its error."""
    return tuple(
        {"key": row.key, "change": row.operation.value, "attempts": row.attempts, "error": row.error} for row in rows
    )


def check_undelivered(run: RunSummary, limits: SyncLimits) -> SyncCheckResult:
    """Return WARN while rows wait, or while finalize() is due again after a failure.

    Return ERROR if the API is down, nothing was delivered, rows failed too often, or a row has waited longer
    than @max_lag. For a past run, only this wait is an ERROR.
    """
    queue = run.queue
    waiting_units = queue.depth if queue else 0
    oldest_since = queue.oldest_since if queue else None
    now = (run.queue_read_at or run.ended_at).timestamp()
    age = now - oldest_since if oldest_since is not None else 0.0
    counts: dict[str, Json] = {
        "waiting": waiting_units,
        "in_jobs": queue.units_in_jobs if queue else 0,
        "failed": run.grid.known_total(GridRow.FAILED),
        "gave_up": run.dead_units,
        "oldest_seconds": round(age),
    }
    run_problem = next(filter(None, (find_problem(run) for find_problem in _RUN_PROBLEMS)), None)
    has_lag = age > limits.max_lag_seconds
    lag_problem = f"a row has waited for {age / HOUR_SECONDS:.1f} hours, longer than @max_lag" if has_lag else None
    is_finalize_due = queue is not None and queue.can_finalize
    queue_note = "finalize() failed, and the next run calls it again" if is_finalize_due else "nothing waits"
    queue_note = (
        _describe_waiting_rows(queue, run.unit_noun, _format_next_try(run, now))
        if queue and waiting_units
        else queue_note
    )
    sentences = [run_problem, lag_problem or queue_note] if run.is_past else [run_problem or lag_problem or queue_note]
    is_error = lag_problem or (run_problem and not run.is_past)
    is_warning = run_problem or waiting_units or is_finalize_due
    return SyncCheckResult(
        name="undelivered",
        severity=Severity.ERROR if is_error else Severity.WARN if is_warning else Severity.PASS,
        description="; ".join(filter(None, sentences)),
        counts=counts,
        samples=format_pending_keys(run.pending_samples) or tuple({"error": error} for error in run.first_errors),
    )


def _describe_waiting_rows(queue: QueueStatus, noun: str, due_in: str) -> str:
    units_by_state = {
        "pending": queue.pending_units,
        f"to be retried{due_in}": queue.waiting_units,
        "in open jobs": queue.units_in_jobs,
    }
    return " and ".join(
        f"{format_count(units, noun)} {description}" for description, units in units_by_state.items() if units
    )


def _format_next_try(run: RunSummary, now: float) -> str:
    """Return the time until a past run's rows are retried, as " in …"; "" if this time is unknown.

    With open jobs it is unknown, because the next due time may be that of a poll.
    """
    due_at = run.queue.next_due_at if run.queue and run.is_past and not run.queue.units_in_jobs else None
    return f" in {format_duration(due_at - now)}" if due_at and due_at > now else ""


def _describe_outage(run: RunSummary) -> str | None:
    if not run.is_outage or _is_resolved(run):
        return None
    if run.is_past:
        return "the API was down at the newest try"
    return "the API is down: the rows wait for a later run"


def _describe_no_delivery(run: RunSummary) -> str | None:
    if run.grid.total(GridRow.SUCCEEDED) or not run.grid.total(GridRow.FAILED) or _is_resolved(run):
        return None
    time_note = " by the newest run" if run.is_past else ""
    attempted_text = format_count(run.grid.total(GridRow.ATTEMPTED), f"attempted {run.unit_noun}")
    return f"nothing was delivered{time_note} of {attempted_text}"


def _is_resolved(run: RunSummary) -> bool:
    """Return whether this is a past run, and all rows that it couldn't deliver are settled by now."""
    return run.is_past and not (run.queue and run.queue.depth)


def _describe_dead_units(run: RunSummary) -> str | None:
    if not run.dead_units or (run.is_past and not (run.queue and run.queue.dead_units)):
        return None
    units_text = format_count(run.dead_units, run.unit_noun)
    return f"{units_text} given up after too many attempts: see `ondatra dead {run.sync_id}`"


# the problems that a run finds only when it sends something
_RUN_PROBLEMS = (_describe_outage, _describe_no_delivery, _describe_dead_units)


def check_invalid_records(run: RunSummary, limits: SyncLimits) -> SyncCheckResult:
    """Return WARN while there are invalid rows, like the model's check of the same name."""
    new_invalid_rows = run.grid.total(GridRow.INVALID)
    return SyncCheckResult(
        name="invalid_records",
        severity=Severity.WARN if run.invalid_count else Severity.PASS,
        description=f"{describe_invalid_rows(run.invalid_count)} ({new_invalid_rows} of them newly)"
        if run.invalid_count
        else "every row has a unique key",
        counts={"invalid_rows": run.invalid_count, "newly": new_invalid_rows},
        samples=tuple({"key": row.key, "reason": row.reason} for row in run.invalid_samples)
        if run.invalid_count
        else (),
    )


def check_deletes(run: RunSummary, limits: SyncLimits) -> SyncCheckResult:
    """Return ERROR if the pending changes remove more than @max_deletes allows; such a run sends nothing."""
    removals = run.removals
    if removals is None or not removals.removed_count:
        return _build_deletes_result(Severity.PASS, "no pending change removes anything", removals)
    share_text = "" if removals.total_count is None else f"{removals.removed_count} of "
    removal_text = (
        f"{share_text}{format_count(removals.total_count or removals.removed_count, removals.noun)} would be removed"
    )
    if removals.is_allowed:
        return _build_deletes_result(Severity.PASS, f"{removal_text}: allowed", removals)
    if not limits.has_too_many_deletes(removals):
        return _build_deletes_result(Severity.PASS, f"{removal_text}: within @max_deletes", removals)
    remedy = f"check them, then allow them with `ondatra run --allow-deletes {run.sync_id}`"
    return _build_deletes_result(
        Severity.ERROR, f"{removal_text}: over @max_deletes, so nothing is sent; {remedy}", removals
    )


def _build_deletes_result(severity: Severity, description: str, removals: RemovalCount | None) -> SyncCheckResult:
    removal_counts = {
        "removed": removals.removed_count if removals else 0,
        "held_by_api": removals.total_count if removals else None,
    }
    return SyncCheckResult(
        name="deletes_guard",
        severity=severity,
        description=description,
        counts={name: number for name, number in removal_counts.items() if number is not None},
        samples=tuple({"key": key} for key in removals.sample_keys) if removals else (),
    )


SYNC_CHECKS = {
    "rejects": check_rejects,
    "undelivered": check_undelivered,
    "invalid_records": check_invalid_records,
    "deletes_guard": check_deletes,
}


def run_sync_checks(run: RunSummary, limits: SyncLimits) -> tuple[SyncCheckResult, ...]:
    """Return the results of all four checks for a run."""
    return tuple(check(run, limits) for check in SYNC_CHECKS.values())
