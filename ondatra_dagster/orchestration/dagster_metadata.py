"""The metadata of models and syncs on Dagster's pages. The metadata contains no payloads and no secrets."""

from collections.abc import Iterable, Mapping
from pathlib import Path

import dagster as dg

from ondatra_dagster.app.run_events import ModelResult, SyncResult
from ondatra_dagster.app.ui_urls import RecordLocations
from ondatra_dagster.app.workspace import Workspace
from ondatra_dagster.delivery.queue.change_and_outcome_counts import UnitOperation
from ondatra_dagster.orchestration.asset_keys import file_key, model_key
from ondatra_dagster.orchestration.source_assets import source_keys_by_name
from ondatra_dagster.project.model import FileInput, Input, Model, ModelInput
from ondatra_dagster.row_changes import Json
from ondatra_dagster.sync.run_summary import DryRunResult, GridRow, RunSummary
from ondatra_dagster.sync.sync_checks import format_pending_keys, format_reasons

MAX_SAMPLES = 20
Metadata = dict[str, dg.MetadataValue]


def spec_metadata(model: Model, table: str) -> Metadata:
    """Return a model's metadata that is known before a run; `table` is the address of the model's table."""
    return {
        "dagster/table_name": dg.MetadataValue.text(model.name),
        "dagster/uri": dg.MetadataValue.text(table),
        "SQL": dg.MetadataValue.md(f"```sql\n{model.sql.strip()}\n```"),
        "file": dg.MetadataValue.text(model.file),
        "dagster/code_references": code_reference(model.path, model.file),
    }


def code_reference(path: Path, label: str) -> dg.CodeReferencesMetadataValue:
    """Return metadata that links to the first line of a file."""
    reference = dg.LocalFileCodeReference(file_path=str(path), line_number=1, label=label)
    return dg.CodeReferencesMetadataValue(code_references=[reference])


def model_metadata(result: ModelResult, lineage: dg.TableColumnLineage) -> Metadata:
    """Return the metadata of a model's result in a run, with the lineage of its columns."""
    numbers = {
        "dagster/row_count": result.rows,
        "version": result.version,
        "inserted": result.inserted,
        "updated": result.updated,
        "deleted": result.deleted,
    }
    descriptions = {name.casefold(): text for name, text in result.model.column_descriptions}
    columns = [
        dg.TableColumn(column.name, column.type, descriptions.get(column.name.casefold())) for column in result.columns
    ]
    return {
        # first, because a run's page shows only the first entries of an event
        "reason": dg.MetadataValue.text(result.reason),
        "run type": dg.MetadataValue.text(result.run_type),
        **{name: dg.MetadataValue.int(number) for name, number in numbers.items() if number is not None},
        "dagster/column_schema": dg.MetadataValue.table_schema(dg.TableSchema(columns)),
        "dagster/column_lineage": dg.MetadataValue.column_lineage(lineage),
    }


def sync_metadata(result: SyncResult, places: RecordLocations) -> Metadata:
    """Return the metadata of a sync's result in a run, with the places of its records."""
    summary = result.summary
    metadata: Metadata = {"counts": counts_table(summary)}
    metadata |= _trigger_metadata(summary)
    if summary.message:
        metadata["message"] = dg.MetadataValue.text(summary.message)
    if summary.queue:
        oldest_since = summary.queue.oldest_since
        metadata["queue depth"] = dg.MetadataValue.int(summary.queue.depth)
        metadata["dead letters"] = dg.MetadataValue.int(summary.queue.dead_units)
        metadata["oldest waits seconds"] = dg.MetadataValue.float(
            round((summary.ended_at.timestamp() - oldest_since) if oldest_since else 0.0, 1)
        )
    totals = {cell: summary.grid.known_total(cell) for cell in GridRow}
    metadata |= {cell.value: dg.MetadataValue.int(count) for cell, count in totals.items() if count is not None}
    metadata["warned"] = dg.MetadataValue.int(summary.warned_units)
    for name, reasons in (("sample rejects", summary.reject_reasons), ("sample warnings", summary.warning_reasons)):
        if reasons:
            metadata[name] = samples_table(format_reasons(reasons))
    if summary.pending_samples:
        metadata["sample waiting"] = samples_table(format_pending_keys(summary.pending_samples))
    if places.folder:
        metadata["records"] = dg.MetadataValue.path(places.folder)
    metadata["records page"] = dg.MetadataValue.url(places.page_url)
    return metadata


def _trigger_metadata(summary: RunSummary) -> Metadata:
    """Return the metadata about a sync run's id, trigger, mode and duration; empty if no run was needed."""
    if summary.run_id is None or summary.cause is None:
        return {}
    trigger, mode, reason = summary.cause
    return {
        "sync run": dg.MetadataValue.text(summary.run_id),
        "trigger": dg.MetadataValue.text(trigger),
        "mode": dg.MetadataValue.text(f"{mode.value}: {reason}"),
        "seconds": dg.MetadataValue.float(round((summary.ended_at - summary.started_at).total_seconds(), 3)),
    }


def forecast_metadata(forecast: DryRunResult) -> Metadata:
    """Return the metadata of a dry run: its counts, and sample keys with the columns that would change."""
    metadata: Metadata = {
        name.replace("_", " "): dg.MetadataValue.int(number)
        for name, number in forecast.counts.items()
        if number is not None
    }
    if forecast.summary.message:
        metadata["message"] = dg.MetadataValue.text(forecast.summary.message)
    if forecast.expected_changes.samples:
        metadata["sample changes"] = samples_table(
            {"key": row.key, "change": row.operation.value, "columns": ", ".join(row.changed_columns)}
            for row in forecast.expected_changes.samples
        )
    return metadata


def counts_table(summary: RunSummary) -> dg.MetadataValue:
    """Return a table of unit counts by outcome and operation; unknown outcomes are left out."""
    cells = summary.grid.cells
    return _table(
        [
            {"units": cell.value, **{operation.value: cells[cell, operation] for operation in UnitOperation}}
            for cell in GridRow
            if cell in summary.grid.known_rows
        ]
    )


def samples_table(samples: Iterable[Mapping[str, Json]]) -> dg.MetadataValue:
    """Return the first samples as a table, with a row for each sample."""
    rows = [
        {name: value if isinstance(value, int | float) else str(value) for name, value in sample.items()}
        for sample in samples
    ]
    return _table(rows[:MAX_SAMPLES])


def _table(rows: list[dict[str, str | int | float]]) -> dg.MetadataValue:
    names = list(dict.fromkeys(name for row in rows for name in row))
    schema = dg.TableSchema([dg.TableColumn(name) for name in names])  # without it, Dagster sorts the columns by name
    return dg.MetadataValue.table([dg.TableRecord(row) for row in rows], schema=schema)


def build_column_lineage(workspace: Workspace, model: Model) -> dg.TableColumnLineage:
    """Return the lineage of the model's columns whose sources are known.

    Other columns are left out, because Dagster can't show unknown sources.
    """
    models = workspace.project.models
    sources = source_keys_by_name(models.values())
    return dg.TableColumnLineage(
        {
            column.name: [
                dg.TableColumnDep(asset_key=key, column_name=name)
                # a file that is read with different options is one asset
                for key, name in dict.fromkeys(
                    (_input_key(origin.input, models, sources), origin.column) for origin in column.origins
                )
            ]
            for column in workspace.lineage.columns(model)
            if column.is_known
        }
    )


def _input_key(input_: Input, models: Mapping[str, Model], sources: Mapping[str, dg.AssetKey]) -> dg.AssetKey:
    if isinstance(input_, ModelInput):
        return model_key(models[input_.model])
    return file_key(input_) if isinstance(input_, FileInput) else sources[input_.name.casefold()]
