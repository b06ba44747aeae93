"""The output of a dry run: a sentence and two tables for people, one object for programs."""

from collections.abc import Iterator

from ondatra_dagster.cli.output import format_cell, print_table
from ondatra_dagster.cli.text_width import shorten_text
from ondatra_dagster.delivery.queue.dry_run_changes import ExpectedKeyChange, RowChangeCounts
from ondatra_dagster.row_changes import Json
from ondatra_dagster.sync.run_summary import DryRunResult
from ondatra_dagster.text_format import format_count

MAX_CHANGE_WIDTH = 100  # columns of a terminal that a row's changes take
MAX_VALUE_WIDTH = 40  # of a value among them, so that the one after it is seen too
OPTIONAL_COLUMNS = ("set_aside", "waiting", "dead", "in_jobs")  # columns that nobody misses where there is nothing
WHOLE_TABLE_KEY = "all"  # in place of the key of a table that goes out whole
CHANGE_VERBS = ("create", "update", "delete")


def format_sentence(forecast: DryRunResult) -> str:
    """Return a sentence: would create 3 rows, update 1 row; 2 rows newly set aside."""
    if forecast.refusal or forecast.summary.run_id is None:
        return forecast.summary.message
    newly = forecast.counts["invalid"]
    aside = f"{format_count(newly, 'row')} newly set aside" if newly else ""
    told = f"would {format_changes(forecast.expected_changes.change_counts, noun=forecast.summary.unit_noun)}"
    return "; ".join(filter(None, (told, aside, forecast.summary.message)))


def format_changes(moves: RowChangeCounts, *, noun: str) -> str:
    """Return the changes as text: create 3 rows, update 1 row."""
    named = zip(CHANGE_VERBS, moves, strict=True)
    told = [f"{verb} {format_count(units, noun)}" for verb, units in named if units]
    return ", ".join(told) or "change nothing"


def print_dry_run_tables(sync_id: str, forecast: DryRunResult) -> None:
    """Print the counts, and a sample of the rows."""
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
            [(format_cell(row.key) or WHOLE_TABLE_KEY, _operation_name(row), _format_columns(row)) for row in samples],
        )


def to_json_object(sync_id: str, forecast: DryRunResult) -> dict[str, Json]:
    """Return the whole forecast, with the samples' changed values."""
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
        "change": _operation_name(row),
        "rows_before": row.rows_before,
        "rows_after": row.rows_after,
        "columns": {name: list(values) for name, values in row.changed_columns.items()},
    }


def _operation_name(row: ExpectedKeyChange) -> str:
    return row.operation.value


def _format_columns(row: ExpectedKeyChange) -> str:
    told = (
        ", ".join(_format_each_column(row))
        or f"{format_count(row.rows_before, 'row')} → {format_count(row.rows_after, 'row')}"
    )
    return shorten_text(told, MAX_CHANGE_WIDTH)


def _format_each_column(row: ExpectedKeyChange) -> Iterator[str]:
    for name, (old, new) in row.changed_columns.items():
        values = (old,) if not row.rows_after else (new,) if not row.rows_before else (old, new)
        texts = [shorten_text(format_cell(value), MAX_VALUE_WIDTH) for value in values]
        yield f"{format_cell(name)}: {' → '.join(texts)}"
