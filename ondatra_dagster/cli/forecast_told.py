"""How a dry run's forecast is told: a sentence and two tables for people, one object for programs."""

from collections.abc import Iterator

from ondatra_dagster.changes import Json
from ondatra_dagster.cli.output import as_cell, put_table
from ondatra_dagster.cli.width import shorter
from ondatra_dagster.delivery.queue.outlook import Foreseen, Moves
from ondatra_dagster.sync.forecast import Forecast
from ondatra_dagster.wording import count

LONGEST = 100  # columns of a terminal that a row's changes take
LONGEST_VALUE = 40  # of a value among them, so that the one after it is seen too
IF_ANY = ("set_aside", "waiting", "dead", "in_jobs")  # columns that nobody misses where there is nothing
WHOLE = "all"  # in place of the key of a table that goes out whole
MOVES = ("create", "update", "delete")


def sentence(forecast: Forecast) -> str:
    """would create 3 rows, update 1 row; 2 rows newly set aside."""
    if forecast.refusal or forecast.summary.run_id is None:
        return forecast.summary.message
    newly = forecast.numbers["invalid"]
    aside = f"{count(newly, 'row')} newly set aside" if newly else ""
    told = f"would {moved(forecast.outlook.expected, noun=forecast.summary.noun)}"
    return "; ".join(filter(None, (told, aside, forecast.summary.message)))


def moved(moves: Moves, *, noun: str) -> str:
    """create 3 rows, update 1 row."""
    named = zip(MOVES, moves, strict=True)
    told = [f"{verb} {count(units, noun)}" for verb, units in named if units]
    return ", ".join(told) or "change nothing"


def put_tables(sync_id: str, forecast: Forecast) -> None:
    """The numbers, and some of the rows."""
    if forecast.summary.run_id is None:
        return
    numbers = {name: number for name, number in forecast.numbers.items() if number != 0 or name not in IF_ANY}
    put_table(
        ("sync", *(name.replace("_", " ") for name in numbers)),
        [(sync_id, *("unknown" if number is None else number for number in numbers.values()))],
    )
    samples = forecast.outlook.samples
    if samples:
        put_table(
            ("key", "change", "what"),
            [(as_cell(row.key) or WHOLE, _change(row), _what(row)) for row in samples],
        )


def to_object(sync_id: str, forecast: Forecast) -> dict[str, Json]:
    """Everything, with the samples' changed values."""
    return {
        "sync": sync_id,
        "dry_run": True,
        "run": forecast.summary.run_id,
        "message": forecast.summary.message,
        "ok": not forecast.refusal,
        **forecast.numbers,
        "samples": [_sample(row) for row in forecast.outlook.samples],
        "sample_invalid": [{"key": row.key, "reason": row.reason} for row in forecast.summary.invalid],
    }


def _sample(row: Foreseen) -> Json:
    return {
        "key": row.key,
        "change": _change(row),
        "rows_before": row.had,
        "rows_after": row.has,
        "columns": {name: list(values) for name, values in row.columns.items()},
    }


def _change(row: Foreseen) -> str:
    return row.operation.value


def _what(row: Foreseen) -> str:
    told = ", ".join(_columns(row)) or f"{count(row.had, 'row')} → {count(row.has, 'row')}"
    return shorter(told, LONGEST)


def _columns(row: Foreseen) -> Iterator[str]:
    for name, (old, new) in row.columns.items():
        values = (old,) if not row.has else (new,) if not row.had else (old, new)
        yield f"{as_cell(name)}: {' → '.join(shorter(as_cell(value), LONGEST_VALUE) for value in values)}"
