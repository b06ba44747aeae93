"""The output of `ondatra run`: a line for each model and sync, the tables of a dry run, or JSON objects."""

import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence

from ondatra_dagster.app.run_events import DescribeActivity, ModelResult, RunProgress, SyncResult
from ondatra_dagster.cli.output import (
    display_width,
    format_cell,
    indent_lines,
    pad_right,
    print_json,
    print_message,
    print_table,
    shorten_text,
)
from ondatra_dagster.cli.status_line import StatusLine
from ondatra_dagster.count_time_and_size_format import format_count, format_duration
from ondatra_dagster.delivery.queue.change_and_outcome_counts import UnitOperation
from ondatra_dagster.delivery.queue.dead_letter_reading_and_replay import FailureReason
from ondatra_dagster.delivery.queue.preview_of_changes_to_send import ExpectedKeyChange, RowChangeCounts
from ondatra_dagster.planning.plan import Plan
from ondatra_dagster.project.model import Model
from ondatra_dagster.row_changes import Json
from ondatra_dagster.sync.run_summary import DryRunResult, GridRow, RunSummary
from ondatra_dagster.sync.sync_checks import Severity, SyncCheckResult
from ondatra_dagster.sync.sync_definition import Sync

NOTHING_SENT = "delivered nothing"
SEVERITY_PREFIXES = {Severity.PASS: "", Severity.WARN: "warning: ", Severity.ERROR: "ERROR: "}
MAX_REASONS_SHOWN = 3
# run type → result text of a run without changes
UNCHANGED_TEXTS = {"skip": "unchanged", "backfill": "a table without rows"}


class TextProgress(RunProgress):
    """A progress listener that prints a line on stderr for each finished step, and on a terminal a status line."""

    def __init__(self, plan: Plan, *, starts_spark: bool = True, clock: Callable[[], float] = time.monotonic) -> None:
        """Print how many models and syncs the run checks. `starts_spark` says whether this process starts Spark."""
        names = [step.model.name for step in plan.models] + [step.sync_id for step in plan.syncs]
        self._name_width = max(map(display_width, names), default=0)
        self._status_line = StatusLine(sys.stderr)
        self._clock = clock
        models = sum(step.will_run for step in plan.models)
        syncs = sum(step.will_run for step in plan.syncs)
        self._steps_total = models + syncs
        self._steps_ended = 0
        start_note = "; Spark starts first, in about 10 s" if plan.needs_tables and starts_spark else ""
        print_message(f"{format_count(models, 'model')} and {format_count(syncs, 'sync')} to check{start_note}")
        started_at = clock()
        self._status_line.show(lambda: f"… starting, {format_duration(clock() - started_at)}")

    def on_model_start(self, model: Model, activity: DescribeActivity) -> None:
        self._show_activity(model.name, activity)

    def on_sync_start(self, sync: Sync, activity: DescribeActivity) -> None:
        self._show_activity(sync.id, activity)

    def _show_activity(self, name: str, activity: DescribeActivity) -> None:
        started_at = self._clock()

        def build_line() -> str:
            activity_text = activity()
            elapsed = format_duration(self._clock() - started_at)
            step_text = f"{self._steps_ended + 1} of {self._steps_total}"
            return (
                f"… {pad_right(name, self._name_width)}  {elapsed}"
                f"{f', {activity_text}' if activity_text else ''} ({step_text})"
            )

        self._status_line.show(build_line)

    def on_model_end(self, result: ModelResult) -> None:
        self._print_model_result(result)
        self._print_warnings(result.verdicts)

    def _print_model_result(self, result: ModelResult) -> None:
        name = result.model.name
        if not result.has_changes:
            self._print_line("=", name, f"{UNCHANGED_TEXTS.get(result.run_type, 'the same rows')}: {result.reason}")
            return
        changes = {"+": result.inserted, "~": result.updated, "-": result.deleted}
        change_counts = " ".join(f"{sign}{number}" for sign, number in changes.items() if number)
        rows = "" if result.rows is None else f"{format_count(result.rows, 'row')} "
        invalid_note = f", {result.invalid_rows} invalid" if result.invalid_rows else ""
        summary = f"{rows}({change_counts or 'only its columns changed'}){invalid_note}"
        self._print_line("✓", name, f"{summary}, {result.seconds:.1f} s: {result.reason}")

    def on_sync_end(self, result: SyncResult) -> None:
        summary, sync = result.summary, result.sync
        if result.forecast:
            self._print_dry_run(result, result.forecast)
            return
        sign = "✗" if result.errors else "→" if summary.has_run else "="
        has_attempts = summary.grid.total(GridRow.ATTEMPTED) or not summary.message
        message = "; ".join(filter(None, (_format_counts(result) if has_attempts else "", summary.message)))
        self._print_line(sign, sync.id, message)
        self._print_warnings(result.verdicts, message=summary.message)
        for warning in result.warnings:
            self._print_line(" ", "", f"{SEVERITY_PREFIXES[Severity.WARN]}{warning}")
        self._print_reasons(
            summary.reject_reasons, unit_count=summary.grid.total(GridRow.REJECTED), noun=summary.unit_noun
        )
        self._print_reasons(summary.warning_reasons, unit_count=summary.warned_units, noun=summary.unit_noun)
        self._print_reasons(
            summary.failure_reasons, unit_count=summary.grid.total(GridRow.FAILED), noun=summary.unit_noun
        )
        for error in _other_errors(summary)[:MAX_REASONS_SHOWN]:
            self._print_line(" ", "", error)

    def _print_reasons(self, reasons: Sequence[FailureReason], *, unit_count: int, noun: str) -> None:
        """Print the most frequent reasons, each once, and the number of units with other reasons."""
        shown_reasons = reasons[:MAX_REASONS_SHOWN]
        for reason in shown_reasons:
            self._print_line(" ", "", f"{reason.describe_units(noun)}: {reason.message}")
        other_units = unit_count - sum(reason.unit_count for reason in shown_reasons)
        if other_units > 0:
            self._print_line(" ", "", f"{format_count(other_units, f'more {noun}')} for other reasons")

    def _print_dry_run(self, result: SyncResult, forecast: DryRunResult) -> None:
        """Print the result of a dry run. Print its counts and samples as tables on stdout."""
        sign = "✗" if result.errors else "→" if forecast.expected_changes.change_counts.total else "="
        message = _format_dry_run(forecast)
        self._print_line(sign, result.sync.id, message)
        self._print_warnings(result.verdicts, message=message)
        if not forecast.refusal:
            with self._status_line:
                _print_dry_run_tables(result.sync.id, forecast)

    def _print_warnings(self, verdicts: Iterable[SyncCheckResult], message: str | None = None) -> None:
        """Print the checks that didn't pass, except the one described by `message`, which is already printed."""
        for verdict in verdicts:
            if verdict.severity is not Severity.PASS and verdict.description != message:
                self._print_line(" ", "", f"{SEVERITY_PREFIXES[verdict.severity]}{verdict.description}")

    def on_wait(self, message: str) -> None:
        self._print_line(" ", "", message)

    def on_notice(self, message: str) -> None:
        self._print_line(" ", "", message)

    def on_failure(self, name: str, message: str) -> None:
        self._print_line("✗", name, message)

    def close(self) -> None:
        """Remove the status line."""
        self._status_line.clear()

    def on_run_end(self, run_id: str, *, is_good: bool) -> None:
        print_message(f"run {run_id} {'succeeded' if is_good else 'FAILED'}")

    def _print_line(self, sign: str, name: str, text: str) -> None:
        """Print a permanent line. A line with a sign reports the end of a step, and removes the status line."""
        if sign.strip():
            self._steps_ended += 1
            self._status_line.clear()
        with self._status_line:
            begin = f"{sign} {pad_right(name, self._name_width)}  "
            print_message(begin + indent_lines(text, len(begin)))


class JsonProgress(RunProgress):
    """A progress listener that prints JSON objects for programs on stdout."""

    def __init__(self, plan: Plan) -> None:
        """Prepare the output.

        Unlike TextProgress, print nothing: each model and sync of the plan gets an object when it ends.
        """

    def on_model_end(self, result: ModelResult) -> None:
        print_json(
            {
                "model": result.model.name,
                "changed": result.has_changes,
                "reason": result.reason,
                "run_type": result.run_type,
                "version": result.version,
                "rows": result.rows,
                "inserted": result.inserted,
                "updated": result.updated,
                "deleted": result.deleted,
                "invalid_rows": result.invalid_rows,
                "checks": _severities(result.verdicts),
                "seconds": round(result.seconds, 3),
            }
        )

    def on_sync_end(self, result: SyncResult) -> None:
        summary = result.summary
        if result.forecast:
            checks = {"checks": _severities(result.verdicts)}
            print_json(_dry_run_object(result.sync.id, result.forecast) | checks)
            return
        print_json(
            {
                "sync": result.sync.id,
                "run": summary.run_id,
                "message": summary.message,
                "counts": summary.grid.to_json(),
                "warned": summary.warned_units,
                "depth": summary.queue.depth if summary.queue else 0,
                "dead": summary.queue.dead_units if summary.queue else 0,
                "checks": _severities(result.verdicts),
                "errors": list(summary.first_errors),
                "warnings": list(result.warnings),
            }
        )

    def on_wait(self, message: str) -> None:
        print_json({"waits": message})

    def on_notice(self, message: str) -> None:
        print_json({"notice": message})

    def on_failure(self, name: str, message: str) -> None:
        print_json({"failed": name, "error": message})

    def close(self) -> None:
        """Do nothing: JSON output has no status line."""

    def on_run_end(self, run_id: str, *, is_good: bool) -> None:
        print_json({"run": run_id, "ok": is_good})


def _other_errors(summary: RunSummary) -> list[str]:
    """Return the run's first errors that neither its message nor its reasons contain."""
    reason_messages = tuple(reason.message for reason in (*summary.failure_reasons, *summary.reject_reasons))
    return [
        error
        for error in summary.first_errors
        if error != summary.message and not any(message.startswith(error) for message in reason_messages)
    ]


def _severities(verdicts: Iterable[SyncCheckResult]) -> dict[str, Json]:
    return {check_result.name: check_result.severity.value for check_result in verdicts}


def _format_counts(result: SyncResult) -> str:
    """Return the counts in one line: delivered 3 inserts, 1 update; 1 rejected; 2 failed; 1 not sent."""
    grid, queue = result.summary.grid, result.summary.queue
    delivered_counts = [
        format_count(grid.cells[GridRow.SUCCEEDED, operation], operation.value)
        for operation in UnitOperation
        if grid.cells[GridRow.SUCCEEDED, operation]
    ]
    phrases = [f"delivered {', '.join(delivered_counts)}" if delivered_counts else NOTHING_SENT]
    for cell in (GridRow.REJECTED, GridRow.FAILED, GridRow.IN_JOBS, GridRow.NOT_SENT, GridRow.INVALID):
        if grid.total(cell):
            phrases.append(f"{grid.total(cell)} {cell.value.replace('_', ' ')}")
    if result.summary.warned_units:
        phrases.append(f"{result.summary.warned_units} with a warning")
    if queue and queue.depth:
        phrases.append(f"{queue.depth} wait")
    return "; ".join(phrases)


MAX_CHANGE_WIDTH = 100  # the width of a row's changes, in columns of the terminal
MAX_VALUE_WIDTH = 40  # the width of one value, in columns of the terminal, so that the next value is visible too
# columns that are only shown if a count in them isn't 0
OPTIONAL_COLUMNS = ("invalid_rows", "waiting", "dead", "in_jobs")
WHOLE_TABLE_KEY = "all"  # shown instead of the key if a whole table is sent
CHANGE_VERBS = ("create", "update", "delete")


def _format_dry_run(forecast: DryRunResult) -> str:
    """Return the expected changes and the new invalid rows as a sentence."""
    if forecast.refusal or forecast.summary.run_id is None:
        return forecast.summary.message
    invalid_rows = forecast.counts["invalid"]
    invalid_note = f"{format_count(invalid_rows, 'row')} newly invalid" if invalid_rows else ""
    change_text = f"would {format_changes(forecast.expected_changes.change_counts, noun=forecast.summary.unit_noun)}"
    return "; ".join(filter(None, (change_text, invalid_note, forecast.summary.message)))


def format_changes(moves: RowChangeCounts, *, noun: str) -> str:
    """Return the changes as text, such as create 3 rows, update 1 row."""
    counts_by_verb = zip(CHANGE_VERBS, moves, strict=True)
    change_texts = [f"{verb} {format_count(units, noun)}" for verb, units in counts_by_verb if units]
    return ", ".join(change_texts) or "change nothing"


def _print_dry_run_tables(sync_id: str, forecast: DryRunResult) -> None:
    """Print tables with the counts and a sample of the changed keys."""
    if forecast.summary.run_id is None:
        return
    numbers = {name: number for name, number in forecast.counts.items() if number != 0 or name not in OPTIONAL_COLUMNS}
    print_table(
        ("sync", *(name.replace("_", " ") for name in numbers)),
        [(sync_id, *("unknown" if number is None else number for number in numbers.values()))],
    )
    samples = forecast.expected_changes.samples
    if samples:
        print_table(
            ("key", "change", "what"),
            [(format_cell(row.key) or WHOLE_TABLE_KEY, row.operation.value, _format_columns(row)) for row in samples],
        )


def _dry_run_object(sync_id: str, forecast: DryRunResult) -> dict[str, Json]:
    """Return the whole result of a dry run as an object, with the changed values of the samples."""
    return {
        "sync": sync_id,
        "dry_run": True,
        "run": forecast.summary.run_id,
        "message": forecast.summary.message,
        "ok": not forecast.refusal,
        **forecast.counts,
        "samples": [_sample_object(row) for row in forecast.expected_changes.samples],
        "sample_invalid": [{"key": row.key, "reason": row.reason} for row in forecast.summary.invalid_samples],
    }


def _sample_object(row: ExpectedKeyChange) -> Json:
    return {
        "key": row.key,
        "change": row.operation.value,
        "rows_before": row.rows_before,
        "rows_after": row.rows_after,
        "columns": {name: list(values) for name, values in row.changed_columns.items()},
    }


def _format_columns(row: ExpectedKeyChange) -> str:
    column_text = (
        ", ".join(_format_each_column(row))
        or f"{format_count(row.rows_before, 'row')} → {format_count(row.rows_after, 'row')}"
    )
    return shorten_text(column_text, MAX_CHANGE_WIDTH)


def _format_each_column(row: ExpectedKeyChange) -> Iterator[str]:
    for name, (old, new) in row.changed_columns.items():
        values = (old,) if not row.rows_after else (new,) if not row.rows_before else (old, new)
        texts = [shorten_text(format_cell(value), MAX_VALUE_WIDTH) for value in values]
        yield f"{format_cell(name)}: {' → '.join(texts)}"
