"""What the checks of a sink say of a run and of the queue that it left; how it is shown: orchestration."""

import dataclasses
import enum
import math
from collections.abc import Callable, Mapping

from ondatra_dagster.changes import Json
from ondatra_dagster.project.model import Limit
from ondatra_dagster.sync.summary import Cell, RunSummary

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
    max_lag_seconds: float = DEFAULT_MAX_LAG_SECONDS

    def allowed_rejects(self, attempted: int) -> float:
        return math.inf if self.max_rejects is None else self.max_rejects.of(attempted)


def judge_rejects(run: RunSummary, limits: Limits) -> CheckVerdict:
    """WARN at any reject or dead letter; ERROR when nothing but rejects came of the run, or too many."""
    rejected, attempted = run.grid.count(Cell.REJECTED), run.grid.count(Cell.ATTEMPTED)
    dead = run.queue.dead if run.queue else 0
    samples = tuple({"key": s.key, "change": s.change_type, "reason": s.reason} for s in run.samples)
    counts: dict[str, Json] = {"rejected": rejected, "attempted": attempted, "dead_letters": dead}

    def verdict(severity: Severity, description: str) -> CheckVerdict:
        return CheckVerdict(
            check="rejects", severity=severity, description=description, counts=counts, samples=samples
        )

    if rejected and rejected == attempted:
        return verdict(Severity.ERROR, f"all {rejected} rows that were attempted were rejected")
    if rejected > limits.allowed_rejects(attempted):
        return verdict(Severity.ERROR, f"{rejected} of {attempted} rows were rejected, over @max_rejects")
    if rejected or dead:
        return verdict(
            Severity.WARN, f"{rejected} rows were rejected in this run; {dead} keys are dead letters"
        )
    return verdict(Severity.PASS, "no row was rejected")


def judge_undelivered(run: RunSummary, limits: Limits) -> CheckVerdict:
    """WARN while rows wait; ERROR when the API is down, nothing arrived, rows were given up or too old."""
    queue = run.queue
    waiting = queue.depth if queue else 0
    oldest = queue.oldest_since if queue else None
    age = (run.seen_at or run.ended_at).timestamp() - oldest if oldest is not None else 0.0
    counts: dict[str, Json] = {
        "waiting": waiting,
        "failed": run.grid.count(Cell.FAILED),
        "gave_up": run.died,
        "oldest_seconds": round(age),
    }
    problem = next((say(run, age, limits) for is_so, say in _PROBLEMS if is_so(run, age, limits)), None)
    severity = Severity.ERROR if problem else Severity.WARN if waiting else Severity.PASS
    calm = f"{waiting} keys wait for their next try" if waiting else "nothing waits"
    return CheckVerdict(
        check="undelivered",
        severity=severity,
        description=problem or calm,
        counts=counts,
        samples=tuple({"error": error} for error in run.errors),
    )


_Test = Callable[[RunSummary, float, Limits], bool]
_Say = Callable[[RunSummary, float, Limits], str]
_PROBLEMS: tuple[tuple[_Test, _Say], ...] = (
    (
        lambda run, age, limits: run.is_outage,
        lambda run, age, limits: "the API is down: the rows wait for a later run",
    ),
    (
        lambda run, age, limits: bool(run.grid.count(Cell.FAILED)) and not run.grid.count(Cell.SUCCEEDED),
        lambda run, age, limits: f"none of the {run.grid.count(Cell.ATTEMPTED)} attempted rows was delivered",
    ),
    (
        lambda run, age, limits: bool(run.died),
        lambda run, age, limits: f"{run.died} keys were given up after too many attempts: see `ondatra dead`",
    ),
    (
        lambda run, age, limits: age > limits.max_lag_seconds,
        lambda run, age, limits: f"a row has waited for {age / HOUR_SECONDS:.1f} hours, longer than @max_lag",
    ),
)


def judge_invalid(run: RunSummary, limits: Limits) -> CheckVerdict:
    """WARN when rows were newly set aside."""
    invalid = run.grid.count(Cell.INVALID)
    return CheckVerdict(
        check="invalid_records",
        severity=Severity.WARN if invalid else Severity.PASS,
        description=f"{invalid} rows were newly set aside" if invalid else "no row was newly set aside",
        counts={"invalid": invalid},
    )


JUDGES = {"rejects": judge_rejects, "undelivered": judge_undelivered, "invalid_records": judge_invalid}


def judge(run: RunSummary, limits: Limits) -> tuple[CheckVerdict, ...]:
    """Every check's answer."""
    return tuple(judge_one(run, limits) for judge_one in JUDGES.values())
