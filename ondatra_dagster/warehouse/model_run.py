"""The run of one model: its query over inputs at fixed versions, and the write of the result by the model's kind."""

import contextlib
import dataclasses
import shutil
from collections.abc import Iterator, Mapping, Sequence

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - as all of Spark's documentation calls it
from pyspark.sql.types import MapType, StructType

from ondatra_dagster.deltalog.commit_user_metadata import CommitMetadata
from ondatra_dagster.deltalog.log_reader import read_table_state
from ondatra_dagster.errors import ChecksFailedError, WarehouseError
from ondatra_dagster.planning.input_versions import format_table_version, read_input_versions, table_state_lookup
from ondatra_dagster.project.model import Model, ModelInput
from ondatra_dagster.project.sql.output_and_system_columns import PARTITION_COLUMN, REASON_COLUMN
from ondatra_dagster.warehouse import invalid_key_rows_table
from ondatra_dagster.warehouse.create_and_write_target_table import TableSpec, TargetTable, align_columns, open_target
from ondatra_dagster.warehouse.kinds.kind_registry import BACKFILL_VALUES, CURRENT_ROWS, OWN_COLUMNS, WRITERS
from ondatra_dagster.warehouse.kinds.new_changed_and_deleted_rows_by_key import check_duplicate_keys
from ondatra_dagster.warehouse.kinds.write_interface import PreviousResults, WriteRequest
from ondatra_dagster.warehouse.model_write_request import ModelWrite
from ondatra_dagster.warehouse.optimize_and_vacuum import finish_interrupted_vacuum
from ondatra_dagster.warehouse.query_inputs.input_file_reader import check_input_files
from ondatra_dagster.warehouse.query_inputs.last_value import last_value_literal
from ondatra_dagster.warehouse.query_inputs.malformed_rows import explain_malformed_rows
from ondatra_dagster.warehouse.query_inputs.pinned_views import build_query, pin_inputs
from ondatra_dagster.warehouse.query_inputs.query_over_previous_inputs import (
    PreviousResultsFromInputs,
    PreviousResultsFromTable,
    previous_input_versions,
)
from ondatra_dagster.warehouse.result_of_write_and_checks import InvalidRowSample, ModelWriteResult, count_warnings
from ondatra_dagster.warehouse.row_checks import RowChecks
from ondatra_dagster.warehouse.row_equality_and_hashes import column_of
from ondatra_dagster.warehouse.schema_evolution import check_columns, visible_fields
from ondatra_dagster.warehouse.spark.error_messages import explain_model_errors
from ondatra_dagster.warehouse.spark.memory_and_tuning_by_work_size import estimate_model_bytes, tune_for_size
from ondatra_dagster.warehouse.spark.session import Warehouse
from ondatra_dagster.warehouse.spark.table_locks import lock_table

MAX_SAMPLES = 20
MISFIT_REASON = "MISFIT"  # the reason of an invalid event


def evaluate_query(
    warehouse: Warehouse, model: Model, versions: Mapping[str, str], *, is_full: bool = False
) -> DataFrame:
    """Return the result of the model's query over its inputs at `versions`, which maps Input.name to a version.

    Nothing is computed yet. For a full refresh, an incremental query starts from its initial value.
    """
    check_input_files(warehouse.settings, model)
    with explain_model_errors(model, explain_malformed_rows(warehouse, model)):
        for source in model.inputs:
            if isinstance(source, ModelInput):
                finish_interrupted_vacuum(warehouse, source.model)
        views = pin_inputs(warehouse, model, versions)
        last_value = last_value_literal(warehouse, model, views, from_start=is_full)
        return build_query(warehouse.session, model, views, last_value=last_value)


def write_model(warehouse: Warehouse, write: ModelWrite) -> ModelWriteResult:
    """Write the query's rows to the model's table, in at most one commit. For kind events, append the events.

    Raises WarehouseError. Raises ChecksFailedError if rows fail the model's checks, and nothing is written then.
    """
    model, run_id = write.model, write.note.run_id
    error_context = explain_model_errors(model, explain_malformed_rows(warehouse, model))
    cleanup = contextlib.ExitStack()
    cleanup.callback(write.frame.unpersist)
    with cleanup, lock_table(warehouse.locks_folder, model.id, run_id=run_id), error_context:
        tune_for_size(warehouse.session, warehouse.settings, estimate_model_bytes(warehouse.settings, model))
        table = read_table_state(warehouse.table_path(model.id))
        if write.planned_version not in (None, format_table_version(table) if table else ""):
            write = _reevaluate_query(warehouse, write)
        check_columns(write.frame.schema, own=model.kind.own_columns)
        _check_key(model, write.frame.schema)
        checks = RowChecks(model)
        if model.kind.has_query:
            checks.check_query(write.frame)
        note = dataclasses.replace(write.note, warned=count_warnings(checks.findings))
        with _removing_new_table_on_failure(warehouse.table_path(model.id)):
            return _write_by_kind(warehouse, dataclasses.replace(write, note=note), checks)


def _reevaluate_query(warehouse: Warehouse, write: ModelWrite) -> ModelWrite:
    """Return the write with the query evaluated again over the newest versions of its inputs."""
    settings, model = warehouse.settings, write.model
    inputs = read_input_versions(model.inputs, settings, table_state_lookup(settings))
    frame = evaluate_query(warehouse, model, inputs, is_full=write.is_full)
    return dataclasses.replace(write, frame=frame, note=dataclasses.replace(write.note, inputs=inputs))


def _write_by_kind(warehouse: Warehouse, write: ModelWrite, checks: RowChecks) -> ModelWriteResult:
    """Write the rows in the way of the model's kind, and return the result."""
    model, note = write.model, write.note
    target = _open_table(warehouse, write)
    invalid_rows_writer = _InvalidRowsWriter(target, note)
    request = WriteRequest(
        rows=align_columns(write.frame, target),
        target=target,
        note=note,
        write_invalid_rows=invalid_rows_writer,
        check_before_commit=checks.check_table,
        check_rows=checks.check_query,
        warning_counts=lambda: count_warnings(checks.findings),
        events=write.events,
        previous_results=_previous_results(warehouse, write, target),
        is_full=write.is_full,
        has_order_by=model.is_ordered,
    )
    result = WRITERS[model.kind.name](request)
    target.finish_conversion(is_rewritten=result.rewrites_all_rows)
    state = read_table_state(target.path) or target.state
    event_samples = tuple(
        InvalidRowSample(key=(event.event,), reason=event.problem) for event in result.invalid_event_samples
    )
    return ModelWriteResult(
        has_changes=result.has_changes,
        table_id=state.table_id,
        version=state.version,
        rows=result.rows,
        inputs=note.inputs,
        inserted=result.inserted,
        updated=result.updated,
        deleted=result.deleted,
        invalid_counts={MISFIT_REASON: result.invalid_event_count}
        if result.invalid_event_count
        else invalid_rows_writer.counts,
        invalid_samples=event_samples or invalid_rows_writer.samples,
        columns=state.columns,
        findings=checks.findings,
    )


def _previous_results(warehouse: Warehouse, write: ModelWrite, target: TargetTable) -> PreviousResults:
    """Return the query's previous results, for the kinds that need them."""
    model, note = write.model, write.note
    previous_metadata = target.state.commit_metadata

    def results_from_inputs() -> PreviousResultsFromInputs:
        return PreviousResultsFromInputs(
            warehouse=warehouse,
            model=model,
            current_versions=note.inputs,
            previous_versions=previous_input_versions(model, target, note.inputs),
            align_rows=lambda rows: align_columns(rows, target),
        )

    if model.incremental is None:
        return results_from_inputs()
    is_redefined = previous_metadata is not None and previous_metadata.definition != note.definition
    return PreviousResultsFromTable(
        target=target,
        current_rows=align_columns(write.frame, target),
        incremental_column=model.incremental.column,
        results_from_inputs=results_from_inputs() if is_redefined else None,
    )


@contextlib.contextmanager
def _removing_new_table_on_failure(path: str) -> Iterator[None]:
    """Remove a table that this write created, if an audit then refuses its rows and so nothing was written."""
    was_there = read_table_state(path) is not None
    try:
        yield
    except ChecksFailedError:
        # a new table in remote storage isn't removed: it stays empty, and the next run fills it
        if not was_there and "://" not in path:
            shutil.rmtree(path)
        raise


class _InvalidRowsWriter:
    """The writer of the rows that a kind can't write. It remembers the numbers of these rows, and some of the rows."""

    def __init__(self, target: TargetTable, note: CommitMetadata) -> None:
        self._target = target
        self._note = note
        self.counts: Mapping[str, int] = {}
        self.samples: Sequence[InvalidRowSample] = ()

    def __call__(self, rows: DataFrame, counts: Mapping[str, int]) -> None:
        self.counts = dict(counts)
        if counts:
            self.samples = _sample_invalid_rows(rows, self._target.key_columns)
        invalid_key_rows_table.write_invalid_rows(self._target, rows, counts, self._note)


def _open_table(warehouse: Warehouse, write: ModelWrite) -> TargetTable:
    model = write.model
    identity = TableSpec(
        kind=model.kind.name,
        key_columns=model.key_columns,
        own_columns=OWN_COLUMNS.get(model.kind.name, {}),
        backfill_values=BACKFILL_VALUES.get(model.kind.name, {}),
        partition_column=PARTITION_COLUMN if model.kind.name == "partition" else None,
        clustering_columns=model.storage_columns,
    )
    return open_target(
        warehouse.session,
        warehouse.table_path(model.id),
        visible_fields(write.frame.schema),
        identity,
        before_change=lambda: _check_before_change(warehouse, write),
        converts=write.is_full,
    )


def _check_before_change(warehouse: Warehouse, write: ModelWrite) -> None:
    """Raise an error if the write would fail because of its rows. It is called before any change to the table."""
    write.frame.persist().count()
    model = write.model
    path = warehouse.table_path(model.id)
    current_rows = CURRENT_ROWS.get(model.kind.name)
    if write.is_full and current_rows and read_table_state(path):
        table_rows = warehouse.session.read.format("delta").load(path)
        check_duplicate_keys(write.frame, current_rows(table_rows), model.key_columns)


def _check_key(model: Model, schema: StructType) -> None:
    """Raise WarehouseError for a key that the query doesn't have, or whose values can't be compared."""
    fields_by_name = {field.name.casefold(): field for field in schema.fields}
    for name in model.key_columns:
        if name.casefold() not in fields_by_name:
            column_list = ", ".join(field.name for field in schema.fields)
            raise WarehouseError(f"the key {name!r} isn't a column of the query: {column_list}; add it to the SELECT")
        if isinstance(fields_by_name[name.casefold()].dataType, MapType):
            raise WarehouseError(f"the key {name!r} is a map, which can't be one; choose another column")


def _sample_invalid_rows(rows: DataFrame, key_columns: tuple[str, ...]) -> tuple[InvalidRowSample, ...]:
    keys = [column_of(name).cast("string").alias(f"k{index}") for index, name in enumerate(key_columns)]
    samples = rows.select(F.array(*keys).alias("key"), REASON_COLUMN).limit(MAX_SAMPLES).collect()
    return tuple(InvalidRowSample(key=tuple(row["key"]), reason=row[REASON_COLUMN]) for row in samples)
