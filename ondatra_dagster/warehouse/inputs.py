"""What a query reads, as views that stay what they are while the query runs."""

import itertools
import re
from collections.abc import Mapping

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as all of Spark's documentation calls it

from ondatra_dagster.changes import ChangeType
from ondatra_dagster.errors import WarehouseError
from ondatra_dagster.planning.delta_log import TableState, read_table_state, table_path, warehouse_path
from ondatra_dagster.planning.delta_schema import CHANGE_TYPE, FEED_COLUMNS, is_hidden
from ondatra_dagster.planning.table_past import rows_stay_until
from ondatra_dagster.planning.versions import can_look
from ondatra_dagster.project.inputs.file_patterns import escaped
from ondatra_dagster.project.inputs.sources import table_of
from ondatra_dagster.project.model import FileInput, Input, Model, ModelInput, SourceInput
from ondatra_dagster.project.settings.settings import Settings
from ondatra_dagster.project.sql.references import quoted, spark_text
from ondatra_dagster.warehouse.comparison import column_of
from ondatra_dagster.warehouse.delta_tables import KIND
from ondatra_dagster.warehouse.file_inputs import as_spark_says, read_files

CAME = (ChangeType.INSERT.value, ChangeType.UPDATE_POSTIMAGE.value)
WENT = (ChangeType.DELETE.value, ChangeType.UPDATE_PREIMAGE.value)

_numbers = itertools.count(1)


def pin_inputs(
    session: SparkSession, settings: Settings, model: Model, versions: Mapping[str, str]
) -> dict[str, str]:
    """A view for each input at its version, by the input's name; no name of the user's can mean one."""
    return {source.name: _view(_read(session, settings, source, versions), model) for source in model.inputs}


def query_over(
    session: SparkSession, model: Model, views: Mapping[str, str], *, last_value: str | None = None
) -> DataFrame:
    """The model's query over views of its inputs; nothing is computed yet.

    Its text is the user's own, only the names of inputs are replaced, and {{ last_value }}.
    """
    return session.sql(spark_text(model, views, last_value=last_value))


def pin_past(
    session: SparkSession,
    settings: Settings,
    model: Model,
    then: Mapping[str, str],
    now: Mapping[str, str],
) -> dict[str, str]:
    """A view for each input as it was `then`, in the columns that it has `now`."""
    return {
        source.name: _view(
            _in_columns_of(_read(session, settings, source, now), _read(session, settings, source, then)),
            model,
        )
        for source in model.inputs
    }


def pin_changes(
    session: SparkSession, settings: Settings, model: Model, then: str, now: str, *, came: bool
) -> str:
    """A view of the rows that came to a model's one input, or went from it, after `then` and up to `now`."""
    (source,) = model.inputs
    if not isinstance(source, ModelInput):
        raise TypeError(f"{source.name} has no feed that is ours")
    after, upto = (int(version.rpartition("@")[2]) for version in (then, now))
    path = table_path(settings, source.model)
    feed = session.read.format("delta").option("readChangeFeed", "true")
    feed = feed.option("startingVersion", rows_stay_until(path, after) + 1).option("endingVersion", upto)
    rows = feed.load(as_spark_says(path))
    rows = rows.where(F.col(CHANGE_TYPE).isin(*(CAME if came else WENT)))
    present = _read(session, settings, source, {source.name: now})
    return _view(_in_columns_of(present, _without_hidden(rows.drop(*FEED_COLUMNS))), model)


def _in_columns_of(present: DataFrame, past: DataFrame) -> DataFrame:
    """What a table had in the columns that it has: those that came later are null, as Delta reads them."""
    there = {field.name.casefold(): field for field in past.schema.fields}
    columns = []
    for field in present.schema.fields:
        had = there.get(field.name.casefold())
        value = column_of(had.name) if had else F.lit(None)
        is_same = had is not None and had.dataType == field.dataType
        columns.append((value if is_same else value.try_cast(field.dataType)).alias(field.name))
    return past.select(*columns)


def _view(rows: DataFrame, model: Model) -> str:
    name = f"ondatra_{re.sub(r'[^a-z0-9]', '_', model.id)}_{next(_numbers)}"
    rows.createOrReplaceTempView(name)
    return name


def _read(session: SparkSession, settings: Settings, source: Input, versions: Mapping[str, str]) -> DataFrame:
    version = versions.get(source.name)
    if isinstance(source, ModelInput):
        path = _path_at(settings, source.model, version)
        return _without_hidden(_read_table(session, path, source.name, version))
    if isinstance(source, FileInput):
        return read_files(session, settings, source)
    return read_source(session, settings, source, version)


def _path_at(settings: Settings, model_id: str, version: str | None) -> str:
    """Where a model's table can be read at a version: what came before a dry run's clone has its original."""
    path = table_path(settings, model_id)
    state = read_table_state(path)
    table_id = (version or "").rpartition("@")[0]
    is_before = state and state.original and state.original.table_id == table_id
    return warehouse_path(settings, model_id) if is_before else path


def read_source(
    session: SparkSession, settings: Settings, source: SourceInput, version: str | None
) -> DataFrame:
    folder = table_of(source, settings)
    if folder is None:
        return session.table(".".join([_quoted_parts(source.location), quoted(source.table)]))
    state = read_table_state(folder) if can_look(folder) else None
    if state is None:
        return session.read.format("parquet").load(as_spark_says(escaped(folder)))
    rows = _read_table(session, folder, source.name, version)
    return _without_hidden(rows) if KIND in state.properties else rows  # another project's table


def _quoted_parts(location: str) -> str:
    """catalog.schema with its parts quoted, where the user hasn't done that."""
    return location if "`" in location else ".".join(map(quoted, location.split(".")))


def _read_table(session: SparkSession, path: str, name: str, version: str | None) -> DataFrame:
    state = read_table_state(path)
    if state is None:
        raise WarehouseError(f"{name} has no table yet; run it first")
    reader = session.read.format("delta").option("versionAsOf", _log_version(path, state, version))
    return reader.load(as_spark_says(path))


def _log_version(path: str, state: TableState, version: str | None) -> int:
    """The commit to read: the version itself, or a later one that changed no rows but maybe columns."""
    table_id, _, number = (version or "").rpartition("@")
    if not table_id or version == f"{state.table_id}@{state.version}":
        return state.log_version
    if table_id != state.table_id:
        raise WarehouseError(
            f"a table was replaced while this run was under way (it was {table_id}); run again"
        )
    return rows_stay_until(path, int(number))


def _without_hidden(rows: DataFrame) -> DataFrame:
    return rows.select(*(column_of(name) for name in rows.columns if not is_hidden(name)))
