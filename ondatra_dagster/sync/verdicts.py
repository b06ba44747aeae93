"""What the checks of a sink say of a run and of the queue that it left; how it is shown: orchestration.

What a run found when it sent something is an ERROR of that run. Who looks later, a run that has nothing to
send among them, has asked no API: to him it is a warning, and an ERROR is what the queue itself shows.
"""

import dataclasses
import enum
from collections.abc import Iterable, Mapping

from ondatra_dagster.changes import Json
from ondatra_dagster.delivery.queue.backlog import Waiting
from ondatra_dagster.delivery.queue.reasons import Reason
from ondatra_dagster.delivery.queue.removals import Removals
from ondatra_dagster.delivery.queue.states import QueueState
from ondatra_dagster.project.model import Limit
from ondatra_dagster.sync.summary import SAMPLES, Cell, RunSummary
from ondatra_dagster.wording import count, duration, set_aside

HOUR_SECONDS = 3600.0
DEFAULT_MAX_LAG_SECONDS = 24 * HOUR_SECONDS


class Severity(enum.StrEnum):
    PASS = "pass"  # noqa: S105  # a check's word, no password
    WARN = "warn"
    ERROR = "error"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class CheckVerdict:
    """One check's answer."""

    check: str
    severity: Severity
    description: str
    counts: Mapping[str, Json]
    samples: tuple[Mapping[str, Json], ...] = ()


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What a model's header allows; None is no limit."""

    max_rejects: Limit | None = None
    max_deletes: Limit | None = None
    max_lag_seconds: float = DEFAULT_MAX_LAG_SECONDS

    def has_too_many_rejects(self, rejected: int, *, attempted: int) -> bool:
        return self.max_rejects is not None and self.max_rejects.is_passed_by(rejected, of=attempted)

    def are_too_many(self, removals: Removals) -> bool:
        """Whether so much may not be removed; a share of nobody knows how many counts as too much."""
        if self.max_deletes is None or removals.is_allowed or not removals.removed:
            return False
        if self.max_deletes.is_share and removals.of is None:
            return True
        return self.max_deletes.is_passed_by(removals.removed, of=removals.of or 0)


def judge_rejects(run: RunSummary, limits: Limits) -> CheckVerdict:
    """WARN at any reject, dead letter or warning; ERROR when the run had nothing but rejects, or too many.

    Of a run that has passed all of it is a WARN.
    """
    rejected = run.grid.count(Cell.REJECTED)
    dead = run.queue.dead if run.queue else 0
    samples = told_reasons((*run.rejects, *run.warnings)[:SAMPLES])
    counts: dict[str, Json] = {
        "rejected": rejected,
        "attempted": run.grid.known(Cell.ATTEMPTED),
        "dead_letters": dead,
        "warned": run.warned,
    }

    def verdict(severity: Severity, description: str) -> CheckVerdict:
        return CheckVerdict(
            check="rejects", severity=severity, description=description, counts=counts, samples=samples
        )

    if not run.is_past and (problem := _refused(run, limits)):
        return verdict(Severity.ERROR, problem)
    if rejected or dead or run.warned:
        letters = f"{count(dead, 'dead letter')}: see `ondatra dead {run.sync_id}`" if dead else ""
        when = "by the newest run" if run.is_past else "now"
        now = f"{count(rejected, run.noun)} rejected {when}" if rejected else ""
        warned = f"{count(run.warned, run.noun)} delivered with a warning" if run.warned else ""
        return verdict(Severity.WARN, "; ".join(filter(None, (now, letters, warned))))
    is_counted = Cell.REJECTED in run.grid.counted
    return verdict(
        Severity.PASS, f"no {run.noun} was rejected" if is_counted else "there are no dead letters"
    )


def _refused(run: RunSummary, limits: Limits) -> str | None:
    rejected, attempted = run.grid.count(Cell.REJECTED), run.grid.count(Cell.ATTEMPTED)
    if rejected and rejected == attempted:
        return f"all that was attempted was rejected: {count(rejected, run.noun)}"
    if limits.has_too_many_rejects(rejected, attempted=attempted):
        return f"{rejected} of {count(attempted, run.noun)} rejected: over @max_rejects"
    return None


def told_reasons(reasons: Iterable[Reason]) -> tuple[Mapping[str, Json], ...]:
    """Each reason as a line of a table."""
    return tuple({"reason": each.message, "units": each.units, "keys": each.told_keys} for each in reasons)


def judge_undelivered(run: RunSummary, limits: Limits) -> CheckVerdict:
    """WARN while rows wait; ERROR when the API is down, nothing arrived, rows were given up or too old.

    Of a run that has passed only rows that are too old are an ERROR.
    """
    queue = run.queue
    waiting = queue.depth if queue else 0
    oldest = queue.oldest_since if queue else None
    now = (run.seen_at or run.ended_at).timestamp()
    age = now - oldest if oldest is not None else 0.0
    counts: dict[str, Json] = {
        "waiting": waiting,
        "in_jobs": queue.in_jobs if queue else 0,
        "failed": run.grid.known(Cell.FAILED),
        "gave_up": run.died,
        "oldest_seconds": round(age),
    }
    found = next(filter(None, (find(run) for find in _FOUND)), None)
    late = _told_lag(age) if age > limits.max_lag_seconds else None
    is_owed = queue is not None and queue.can_finalize
    calm = "finalize() failed, and is owed to the next run" if is_owed else "nothing waits"
    calm = _told(queue, run.noun, _due_in(run, now)) if queue and waiting else calm
    said = [found, late or calm] if run.is_past else [found or late or calm]
    is_error = late or (found and not run.is_past)
    is_amiss = found or waiting or is_owed
    return CheckVerdict(
        check="undelivered",
        severity=Severity.ERROR if is_error else Severity.WARN if is_amiss else Severity.PASS,
        description="; ".join(filter(None, said)),
        counts=counts,
        samples=tuple(map(_waits, run.waiting)) or tuple({"error": error} for error in run.errors),
    )


def _told(queue: QueueState, noun: str, due_in: str) -> str:
    parts = {
        "pending": queue.pending,
        f"to be tried again{due_in}": queue.waiting,
        "in open jobs": queue.in_jobs,
    }
    return " and ".join(f"{count(units, noun)} {what}" for what, units in parts.items() if units)


def _due_in(run: RunSummary, now: float) -> str:
    """When a try comes next, for who looks between two; nobody knows which of jobs and rows is next."""
    due = run.queue.next_due_at if run.queue and run.is_past and not run.queue.in_jobs else None
    return f" in {duration(due - now)}" if due and due > now else ""


def _waits(row: Waiting) -> Mapping[str, Json]:
    return {"key": row.key, "change": row.operation.value, "attempts": row.attempts, "error": row.error}


def _is_down(run: RunSummary) -> str | None:
    if not run.is_outage or _is_over(run):
        return None
    if run.is_past:
        return "the API was down at the newest try"
    return "the API is down: the rows wait for a later run"


def _got_nowhere(run: RunSummary) -> str | None:
    if run.grid.count(Cell.SUCCEEDED) or not run.grid.count(Cell.FAILED) or _is_over(run):
        return None
    when = " by the newest run" if run.is_past else ""
    return f"nothing was delivered{when} of {count(run.grid.count(Cell.ATTEMPTED), f'attempted {run.noun}')}"


def _is_over(run: RunSummary) -> bool:
    """Whether nothing is left by now of what a run couldn't deliver."""
    return run.is_past and not (run.queue and run.queue.depth)


def _gave_up(run: RunSummary) -> str | None:
    if not run.died or (run.is_past and not (run.queue and run.queue.dead)):
        return None
    return f"{count(run.died, run.noun)} given up after too many tries: see `ondatra dead {run.sync_id}`"


_FOUND = (_is_down, _got_nowhere, _gave_up)  # what a run finds when it sends something


def _told_lag(age: float) -> str:
    return f"a row has waited for {age / HOUR_SECONDS:.1f} hours, longer than @max_lag"


def judge_invalid(run: RunSummary, limits: Limits) -> CheckVerdict:
    """WARN while rows are set aside, as the check of this name on the model."""
    newly = run.grid.count(Cell.INVALID)
    return CheckVerdict(
        check="invalid_records",
        severity=Severity.WARN if run.set_aside else Severity.PASS,
        description=f"{set_aside(run.set_aside)} ({newly} of them newly)"
        if run.set_aside
        else "every row has a key of its own",
        counts={"set_aside": run.set_aside, "newly": newly},
        samples=tuple({"key": row.key, "reason": row.reason} for row in run.invalid) if run.set_aside else (),
    )


def judge_deletes(run: RunSummary, limits: Limits) -> CheckVerdict:
    """ERROR when more would be removed than @max_deletes allows: then nothing is sent."""
    removals = run.removals
    if removals is None or not removals.removed:
        return _deletes(Severity.PASS, "no pending change removes anything", removals)
    share = "" if removals.of is None else f"{removals.removed} of "
    what = f"{share}{count(removals.of or removals.removed, removals.noun)} would be removed"
    if removals.is_allowed:
        return _deletes(Severity.PASS, f"{what}: allowed", removals)
    if not limits.are_too_many(removals):
        return _deletes(Severity.PASS, f"{what}: within @max_deletes", removals)
    how = f"check them, then allow them with `ondatra run --allow-deletes {run.sync_id}`"
    return _deletes(Severity.ERROR, f"{what}: over @max_deletes, so nothing is sent; {how}", removals)


def _deletes(severity: Severity, description: str, removals: Removals | None) -> CheckVerdict:
    known = {"removed": removals.removed if removals else 0, "held_by_api": removals.of if removals else None}
    return CheckVerdict(
        check="deletes_guard",
        severity=severity,
        description=description,
        counts={name: number for name, number in known.items() if number is not None},
        samples=tuple({"key": key} for key in removals.samples) if removals else (),
    )


JUDGES = {
    "rejects": judge_rejects,
    "undelivered": judge_undelivered,
    "invalid_records": judge_invalid,
    "deletes_guard": judge_deletes,
}


def judge(run: RunSummary, limits: Limits) -> tuple[CheckVerdict, ...]:
    """Every check's answer."""
    return tuple(judge_one(run, limits) for judge_one in JUDGES.values())
