"""The inputs of a query as views at fixed versions, so that they don't change while the query runs."""

import itertools
import re
from collections.abc import Mapping

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as all of Spark's documentation calls it

from ondatra_dagster.deltalog.log_reader import TableState, read_table_state
from ondatra_dagster.deltalog.removable_history import find_last_equal_commit
from ondatra_dagster.errors import WarehouseError
from ondatra_dagster.planning.find_table_and_columns import table_path, warehouse_table_path
from ondatra_dagster.planning.input_versions import parse_table_version
from ondatra_dagster.project.inputs.file_patterns import escape_pattern
from ondatra_dagster.project.inputs.input_resolution import source_table_address
from ondatra_dagster.project.model import FileInput, Input, Model, ModelInput, SourceInput
from ondatra_dagster.project.settings.read_settings_and_defaults import Settings
from ondatra_dagster.project.settings.storage_access import is_readable_without_spark
from ondatra_dagster.project.sql.input_references import quote_name, render_spark_query
from ondatra_dagster.project.sql.output_and_system_columns import CHANGE_TYPE_COLUMN, FEED_COLUMNS, is_hidden_column
from ondatra_dagster.row_changes import ChangeType
from ondatra_dagster.warehouse.create_and_write_target_table import KIND_PROPERTY
from ondatra_dagster.warehouse.query_inputs.input_file_reader import read_files, spark_address
from ondatra_dagster.warehouse.row_equality_and_hashes import column_of
from ondatra_dagster.warehouse.spark.session import Warehouse

ADDING_TYPES = (ChangeType.INSERT.value, ChangeType.UPDATE_POSTIMAGE.value)
REMOVING_TYPES = (ChangeType.DELETE.value, ChangeType.UPDATE_PREIMAGE.value)

_view_numbers = itertools.count(1)


def pin_inputs(warehouse: Warehouse, model: Model, versions: Mapping[str, str]) -> dict[str, str]:
    """Create a view of each input at its version. Return the view's name by Input.name.

    No name in the user's query can accidentally mean such a view.
    """
    return {source.name: _create_view(_read_input(warehouse, source, versions), model) for source in model.inputs}


def build_query(
    session: SparkSession, model: Model, views: Mapping[str, str], *, last_value: str | None = None
) -> DataFrame:
    """Return the model's query over views of its inputs. Nothing is computed yet.

    The text is the user's: only the names of inputs and {{ last_value }} are replaced.
    """
    return session.sql(render_spark_query(model, views, last_value=last_value))


def pin_previous_inputs(
    warehouse: Warehouse, model: Model, old_versions: Mapping[str, str], new_versions: Mapping[str, str]
) -> dict[str, str]:
    """Create a view of each input at its version in `old_versions`. Return the view's name by Input.name.

    The views have the inputs' columns of `new_versions`.
    """
    views = {}
    for source in model.inputs:
        present_rows, past_rows = (
            _read_input(warehouse, source, versions) for versions in (new_versions, old_versions)
        )
        views[source.name] = _create_view(_align_to_current(present_rows, past_rows), model)
    return views


def pin_input_changes(
    warehouse: Warehouse, model: Model, source: ModelInput, old_version: str, new_version: str, *, is_gain: bool
) -> str:
    """Create a view of the rows that a model's only input gained or lost between two versions, and return its name."""
    (_, after_version), (_, last_version) = parse_table_version(old_version), parse_table_version(new_version)
    path = table_path(warehouse.settings, source.model)
    feed = warehouse.session.read.format("delta").option("readChangeFeed", "true")
    feed = feed.option("startingVersion", find_last_equal_commit(path, after_version) + 1).option(
        "endingVersion", last_version
    )
    rows = feed.load(spark_address(path))
    rows = rows.where(F.col(CHANGE_TYPE_COLUMN).isin(*(ADDING_TYPES if is_gain else REMOVING_TYPES)))
    present_rows = _read_input(warehouse, source, {source.name: new_version})
    return _create_view(_align_to_current(present_rows, drop_hidden_columns(rows.drop(*FEED_COLUMNS))), model)


def _align_to_current(present: DataFrame, past: DataFrame) -> DataFrame:
    """Return the past rows with the current columns. A column that was added later is null, as Delta reads it."""
    past_fields = {field.name.casefold(): field for field in past.schema.fields}
    columns = []
    for field in present.schema.fields:
        past_field = past_fields.get(field.name.casefold())
        value = column_of(past_field.name) if past_field else F.lit(None)
        is_same_type = past_field is not None and past_field.dataType == field.dataType
        columns.append((value if is_same_type else value.try_cast(field.dataType)).alias(field.name))
    return past.select(*columns)


def _create_view(rows: DataFrame, model: Model) -> str:
    name = f"ondatra_{re.sub(r'[^a-z0-9]', '_', model.id)}_{next(_view_numbers)}"
    rows.createOrReplaceTempView(name)
    return name


def _read_input(warehouse: Warehouse, source: Input, versions: Mapping[str, str]) -> DataFrame:
    version = versions.get(source.name)
    if isinstance(source, ModelInput):
        path = _path_of_version(warehouse.settings, source.model, version)
        return drop_hidden_columns(_read_table(warehouse.session, path, source.name, version))
    if isinstance(source, FileInput):
        return read_files(warehouse, source)
    return read_source(warehouse, source, version)


def _path_of_version(settings: Settings, model_id: str, version: str | None) -> str:
    """Return where a version of a model's table can be read. A dry run's clone has no versions from before the dry run.

    These are read from the original table.
    """
    path = table_path(settings, model_id)
    state = read_table_state(path)
    table_id = (version or "").rpartition("@")[0]
    is_before = state and state.clone_origin and state.clone_origin.table_id == table_id
    return warehouse_table_path(settings, model_id) if is_before else path


def read_source(warehouse: Warehouse, source: SourceInput, version: str | None) -> DataFrame:
    session, folder = warehouse.session, source_table_address(source, warehouse.settings)
    if folder is None:
        # the user may have quoted the parts of catalog.schema
        catalog_path = (
            source.location if "`" in source.location else ".".join(map(quote_name, source.location.split(".")))
        )
        return session.table(f"{catalog_path}.{quote_name(source.table)}")
    state = read_table_state(folder) if is_readable_without_spark(folder) else None
    if state is None:
        return session.read.format("parquet").load(spark_address(escape_pattern(folder)))
    rows = _read_table(session, folder, source.name, version)
    # drop the hidden columns of another project's table
    return drop_hidden_columns(rows) if KIND_PROPERTY in state.properties else rows


def _read_table(session: SparkSession, path: str, name: str, version: str | None) -> DataFrame:
    state = read_table_state(path)
    if state is None:
        raise WarehouseError(f"{name} has no table yet; run it first")
    reader = session.read.format("delta").option("versionAsOf", _log_version(path, state, version))
    return reader.load(spark_address(path))


def _log_version(path: str, state: TableState, version: str | None) -> int:
    """Return the commit to read for a version.

    It is the version itself, or a later commit that changed no rows, but may have changed columns.
    """
    table_id, _, number = (version or "").rpartition("@")
    if not table_id or version == f"{state.table_id}@{state.version}":
        return state.log_version
    if table_id != state.table_id:
        raise WarehouseError(f"a table was replaced while this run was under way (it was {table_id}); run again")
    return find_last_equal_commit(path, int(number))


def drop_hidden_columns(rows: DataFrame) -> DataFrame:
    """Return the rows without the hidden columns that ondatra adds."""
    return rows.select(*(column_of(name) for name in rows.columns if not is_hidden_column(name)))
