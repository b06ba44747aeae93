"""What Dagster's page shows of a model and of a sync: results as metadata. No payloads, no secrets."""

from collections.abc import Iterable, Mapping

import dagster as dg

from ondatra_dagster.changes import Column, Json
from ondatra_dagster.delivery.queue.unit_counts import Operation
from ondatra_dagster.orchestration.progress import ModelResult, SyncResult
from ondatra_dagster.orchestration.records_page import RecordsPlaces
from ondatra_dagster.project.model import Model
from ondatra_dagster.sync.forecast import Forecast
from ondatra_dagster.sync.summary import Cell, Grid, RunSummary
from ondatra_dagster.sync.verdicts import told_reasons

SAMPLES = 20
Metadata = dict[str, dg.MetadataValue]


def spec_metadata(model: Model, table: str) -> Metadata:
    """What is known of a model before it runs; `table` is where its table is."""
    return {
        "dagster/table_name": dg.MetadataValue.text(model.name),
        "dagster/uri": dg.MetadataValue.text(table),
        "SQL": dg.MetadataValue.md(f"```sql\n{model.sql.strip()}\n```"),
        "file": dg.MetadataValue.text(model.file),
        "dagster/code_references": dg.CodeReferencesMetadataValue(
            code_references=[
                dg.LocalFileCodeReference(file_path=str(model.path), line_number=1, label=model.file)
            ]
        ),
    }


def model_metadata(result: ModelResult, lineage: dg.TableColumnLineage) -> Metadata:
    """What came of a model's turn, and where its columns come from."""
    numbers = {
        "dagster/row_count": result.rows,
        "version": result.version,
        "inserted": result.inserted,
        "updated": result.updated,
        "deleted": result.deleted,
    }
    described = {name.casefold(): text for name, text in result.model.column_descriptions}
    return {
        # first, for a run's page shows just the first few of an event
        "reason": dg.MetadataValue.text(result.reason),
        "run type": dg.MetadataValue.text(result.run_type),
        **{name: dg.MetadataValue.int(number) for name, number in numbers.items() if number is not None},
        "dagster/column_schema": dg.MetadataValue.table_schema(_schema(result.columns, described)),
        "dagster/column_lineage": dg.MetadataValue.column_lineage(lineage),
    }


def push_metadata(result: SyncResult, places: RecordsPlaces) -> Metadata:
    """What came of a sync's turn, or what would have come of it in a run that isn't dry."""
    return forecast_metadata(result.forecast) if result.forecast else sync_metadata(result, places)


def sync_metadata(result: SyncResult, places: RecordsPlaces) -> Metadata:
    """What came of a sync's turn, and where its records are."""
    summary = result.summary
    shown: Metadata = {"counts": grid_table(summary)}
    shown |= _occasion_metadata(summary)
    if summary.message:
        shown["message"] = dg.MetadataValue.text(summary.message)
    if summary.queue:
        oldest = summary.queue.oldest_since
        shown["queue depth"] = dg.MetadataValue.int(summary.queue.depth)
        shown["dead letters"] = dg.MetadataValue.int(summary.queue.dead)
        shown["oldest waits seconds"] = dg.MetadataValue.float(
            round((summary.ended_at.timestamp() - oldest) if oldest else 0.0, 1)
        )
    shown |= _counts(summary.grid)
    shown["warned"] = dg.MetadataValue.int(summary.warned)
    for name, reasons in (("sample rejects", summary.rejects), ("sample warnings", summary.warnings)):
        if reasons:
            shown[name] = samples_table(told_reasons(reasons))
    if summary.waiting:
        shown["sample waiting"] = samples_table(
            {"key": row.key, "change": row.operation.value, "attempts": row.attempts, "error": row.error}
            for row in summary.waiting
        )
    if places.files:
        shown["records"] = dg.MetadataValue.path(places.files)
    shown["records page"] = dg.MetadataValue.url(places.page)
    return shown


def _counts(grid: Grid) -> Metadata:
    """All that is known."""
    counts = {cell: grid.known(cell) for cell in Cell}
    return {cell.value: dg.MetadataValue.int(count) for cell, count in counts.items() if count is not None}


def _occasion_metadata(summary: RunSummary) -> Metadata:
    """Which run it was, and why it happened."""
    if summary.run_id is None or summary.occasion is None:
        return {}
    trigger, mode, reason = summary.occasion
    return {
        "sync run": dg.MetadataValue.text(summary.run_id),
        "trigger": dg.MetadataValue.text(trigger),
        "mode": dg.MetadataValue.text(f"{mode.value}: {reason}"),
        "seconds": dg.MetadataValue.float(round((summary.ended_at - summary.started_at).total_seconds(), 3)),
    }


def forecast_metadata(forecast: Forecast) -> Metadata:
    """What a dry run found: numbers, and of some rows the key and which columns change."""
    shown: Metadata = {
        name.replace("_", " "): dg.MetadataValue.int(number)
        for name, number in forecast.numbers.items()
        if number is not None
    }
    if forecast.summary.message:
        shown["message"] = dg.MetadataValue.text(forecast.summary.message)
    if forecast.outlook.samples:
        shown["sample changes"] = samples_table(
            {"key": row.key, "change": row.operation.value, "columns": ", ".join(row.columns)}
            for row in forecast.outlook.samples
        )
    return shown


def grid_table(summary: RunSummary) -> dg.MetadataValue:
    """What became of how many rows, as far as anybody knows."""
    cells = summary.grid.cells
    return _table(
        [
            {"units": cell.value, **{operation.value: cells[cell, operation] for operation in Operation}}
            for cell in Cell
            if cell in summary.grid.counted
        ]
    )


def samples_table(samples: Iterable[Mapping[str, Json]]) -> dg.MetadataValue:
    """A few rows as a table."""
    rows = [
        {name: value if isinstance(value, int | float) else str(value) for name, value in sample.items()}
        for sample in samples
    ]
    return _table(rows[:SAMPLES])


def _table(rows: list[dict[str, str | int | float]]) -> dg.MetadataValue:
    names = list(dict.fromkeys(name for row in rows for name in row))
    schema = dg.TableSchema([dg.TableColumn(name) for name in names])  # Dagster's own is sorted by name
    return dg.MetadataValue.table([dg.TableRecord(row) for row in rows], schema=schema)


def _schema(columns: Iterable[Column], described: Mapping[str, str]) -> dg.TableSchema:
    return dg.TableSchema(
        [
            dg.TableColumn(
                name=column.name, type=column.type, description=described.get(column.name.casefold())
            )
            for column in columns
        ]
    )
