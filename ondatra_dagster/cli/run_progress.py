"""What `ondatra run` shows while it runs: a line a model and a sync for people, or an object for programs."""

import sys
import time
from collections.abc import Callable, Iterable, Sequence

from ondatra_dagster.changes import Json
from ondatra_dagster.cli import forecast_told
from ondatra_dagster.cli.live_line import LiveLine
from ondatra_dagster.cli.output import indented, put_json, say
from ondatra_dagster.cli.width import padded, width_of
from ondatra_dagster.delivery.queue.reasons import Reason
from ondatra_dagster.delivery.queue.unit_counts import Operation
from ondatra_dagster.orchestration.progress import Activity, ModelResult, SyncResult
from ondatra_dagster.planning.plan import Plan
from ondatra_dagster.project.model import Model
from ondatra_dagster.sync.forecast import Forecast
from ondatra_dagster.sync.summary import Cell, RunSummary
from ondatra_dagster.sync.sync import Sync
from ondatra_dagster.sync.verdicts import CheckVerdict, Severity
from ondatra_dagster.wording import count, duration

NOTHING_SENT = "delivered nothing"
SIGNS = {Severity.PASS: "", Severity.WARN: "warning: ", Severity.ERROR: "ERROR: "}
SHOWN_REASONS = 3


UNCHANGED = {"skip": "unchanged", "backfill": "a table without rows"}  # by how the model was run


class TextProgress:
    """For people, on stderr: a line for what ended; on a terminal the last line says what is being done."""

    def __init__(
        self, plan: Plan, *, starts_spark: bool = True, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """Print how much there is to do; `starts_spark` says whether Spark is to come up here."""
        names = [step.model.name for step in plan.models] + [step.sync_id for step in plan.syncs]
        self._width = max(map(width_of, names), default=0)
        self._live = LiveLine(sys.stderr)
        self._clock = clock
        models = sum(step.will_run for step in plan.models)
        syncs = sum(step.will_run for step in plan.syncs)
        self._turns = models + syncs
        self._turn = 0
        first = "; Spark comes up first, in about 10 s" if plan.needs_tables and starts_spark else ""
        say(f"{count(models, 'model')} and {count(syncs, 'sync')} to look at{first}")
        began = clock()
        self._live.show(lambda: f"… starting, {duration(clock() - began)}")

    def model_began(self, model: Model, activity: Activity) -> None:
        self._begin(model.name, activity)

    def sync_began(self, sync: Sync, activity: Activity) -> None:
        self._begin(sync.id, activity)

    def _begin(self, name: str, activity: Activity) -> None:
        began = self._clock()

        def told() -> str:
            doing = activity()
            passed = duration(self._clock() - began)
            turn = f"{self._turn + 1} of {self._turns}"
            return f"… {padded(name, self._width)}  {passed}{f', {doing}' if doing else ''} ({turn})"

        self._live.show(told)

    def model_ended(self, result: ModelResult) -> None:
        self._ended(result)
        self._warnings(result.verdicts)

    def _ended(self, result: ModelResult) -> None:
        name = result.model.name
        if not result.changed:
            self._line("=", name, f"{UNCHANGED.get(result.run_type, 'the same rows')}: {result.reason}")
            return
        changes = {"+": result.inserted, "~": result.updated, "-": result.deleted}
        moved = " ".join(f"{sign}{number}" for sign, number in changes.items() if number)
        rows = "" if result.rows is None else f"{count(result.rows, 'row')} "
        aside = f", {result.set_aside} invalid" if result.set_aside else ""
        what = f"{rows}({moved or 'only its columns changed'}){aside}"
        self._line("✓", name, f"{what}, {result.seconds:.1f} s: {result.reason}")

    def sync_ended(self, result: SyncResult) -> None:
        summary, sync = result.summary, result.sync
        if result.forecast:
            self._foreseen(result, result.forecast)
            return
        sign = "✗" if result.errors else "→" if summary.has_done_something else "="
        moved = summary.grid.count(Cell.ATTEMPTED) or not summary.message
        said = "; ".join(filter(None, (_told(result) if moved else "", summary.message)))
        self._line(sign, sync.id, said)
        self._warnings(result.verdicts, told=summary.message)
        for warning in result.warnings:
            self._line(" ", "", f"{SIGNS[Severity.WARN]}{warning}")
        self._reasons(summary.rejects, of=summary.grid.count(Cell.REJECTED), noun=summary.noun)
        self._reasons(summary.warnings, of=summary.warned, noun=summary.noun)
        self._reasons(summary.failures, of=summary.grid.count(Cell.FAILED), noun=summary.noun)
        for error in _other_errors(summary)[:SHOWN_REASONS]:
            self._line(" ", "", error)

    def _reasons(self, reasons: Sequence[Reason], *, of: int, noun: str) -> None:
        """Each once, the most frequent first, and how many units have still others."""
        shown = reasons[:SHOWN_REASONS]
        for reason in shown:
            self._line(" ", "", f"{reason.describe_units(noun)}: {reason.message}")
        others = of - sum(reason.units for reason in shown)
        if others > 0:
            self._line(" ", "", f"{count(others, f'more {noun}')} for other reasons")

    def _foreseen(self, result: SyncResult, forecast: Forecast) -> None:
        """What a run would do: its numbers and samples as tables on stdout."""
        sign = "✗" if result.errors else "→" if forecast.outlook.expected.total else "="
        said = forecast_told.sentence(forecast)
        self._line(sign, result.sync.id, said)
        self._warnings(result.verdicts, told=said)
        if not forecast.refusal:
            with self._live:
                forecast_told.put_tables(result.sync.id, forecast)

    def _warnings(self, verdicts: Iterable[CheckVerdict], told: str | None = None) -> None:
        """The checks that didn't pass, but for what is said already."""
        for verdict in verdicts:
            if verdict.severity is not Severity.PASS and verdict.description != told:
                self._line(" ", "", f"{SIGNS[verdict.severity]}{verdict.description}")

    def waits(self, message: str) -> None:
        self._line(" ", "", message)

    def notice(self, message: str) -> None:
        self._line(" ", "", message)

    def failed(self, name: str, message: str) -> None:
        self._line("✗", name, message)

    def close(self) -> None:
        """Leave no line behind that says something is being done."""
        self._live.clear()

    def ended(self, run_id: str, *, is_good: bool) -> None:
        say(f"run {run_id} {'ended well' if is_good else 'FAILED'}")

    def _line(self, sign: str, name: str, text: str) -> None:
        """A line that stays: with the sign of one that ended, its turn is over."""
        if sign.strip():
            self._turn += 1
            self._live.clear()
        with self._live:
            begin = f"{sign} {padded(name, self._width)}  "
            say(begin + indented(text, len(begin)))


class JsonProgress:
    """For programs, on stdout."""

    def __init__(self, plan: Plan) -> None:
        """The plan needs no telling: each of its models and syncs tells of itself."""

    def model_began(self, model: Model, activity: Activity) -> None: ...
    def sync_began(self, sync: Sync, activity: Activity) -> None: ...
    def model_ended(self, result: ModelResult) -> None:
        put_json(
            {
                "model": result.model.name,
                "changed": result.changed,
                "reason": result.reason,
                "run_type": result.run_type,
                "version": result.version,
                "rows": result.rows,
                "inserted": result.inserted,
                "updated": result.updated,
                "deleted": result.deleted,
                "set_aside": result.set_aside,
                "checks": _severities(result.verdicts),
                "seconds": round(result.seconds, 3),
            }
        )

    def sync_ended(self, result: SyncResult) -> None:
        summary = result.summary
        if result.forecast:
            checks = {"checks": _severities(result.verdicts)}
            put_json(forecast_told.to_object(result.sync.id, result.forecast) | checks)
            return
        put_json(
            {
                "sync": result.sync.id,
                "run": summary.run_id,
                "message": summary.message,
                "counts": summary.counts(),
                "warned": summary.warned,
                "depth": summary.queue.depth if summary.queue else 0,
                "dead": summary.queue.dead if summary.queue else 0,
                "checks": _severities(result.verdicts),
                "errors": list(summary.errors),
                "warnings": list(result.warnings),
            }
        )

    def waits(self, message: str) -> None:
        put_json({"waits": message})

    def notice(self, message: str) -> None:
        put_json({"notice": message})

    def failed(self, name: str, message: str) -> None:
        put_json({"failed": name, "error": message})

    def close(self) -> None:
        """Nothing is left to say."""

    def ended(self, run_id: str, *, is_good: bool) -> None:
        put_json({"run": run_id, "ok": is_good})


def _other_errors(summary: RunSummary) -> list[str]:
    """Return the errors that no reason of rows and no message has shown."""
    shown = tuple(reason.message for reason in (*summary.failures, *summary.rejects))
    return [
        error
        for error in summary.errors
        if error != summary.message and not any(each.startswith(error) for each in shown)
    ]


def _severities(verdicts: Iterable[CheckVerdict]) -> dict[str, Json]:
    return {verdict.check: verdict.severity.value for verdict in verdicts}


def _told(result: SyncResult) -> str:
    """The grid in a line: delivered 3 inserts, 1 update; 1 rejected; 2 failed; 1 not sent."""
    grid, queue = result.summary.grid, result.summary.queue
    done = [
        count(grid.cells[Cell.SUCCEEDED, operation], operation.value)
        for operation in Operation
        if grid.cells[Cell.SUCCEEDED, operation]
    ]
    parts = [f"delivered {', '.join(done)}" if done else NOTHING_SENT]
    for cell in (Cell.REJECTED, Cell.FAILED, Cell.IN_JOBS, Cell.NOT_SENT, Cell.INVALID):
        if grid.count(cell):
            parts.append(f"{grid.count(cell)} {cell.value.replace('_', ' ')}")
    if result.summary.warned:
        parts.append(f"{result.summary.warned} with a warning")
    if queue and queue.depth:
        parts.append(f"{queue.depth} wait")
    return "; ".join(parts)
