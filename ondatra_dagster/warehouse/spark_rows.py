"""The rows of a table that only Spark can read."""

import pyarrow as pa

from ondatra_dagster.planning.delta_schema import ROWID, is_hidden
from ondatra_dagster.planning.named_tables import NamedTable
from ondatra_dagster.project.model import SourceInput
from ondatra_dagster.project.settings.settings import Settings
from ondatra_dagster.warehouse.comparison import column_of
from ondatra_dagster.warehouse.inputs import read_source
from ondatra_dagster.warehouse.spark_errors import explained_at
from ondatra_dagster.warehouse.spark_session import Warehouse


def spark_rows(settings: Settings, table: NamedTable, *, limit: int | None = None) -> pa.Table:
    """The rows without the hidden columns; a Spark session is started and ended for them."""
    with Warehouse(settings) as warehouse, explained_at(table.name):
        if isinstance(table.source, SourceInput):
            rows = read_source(warehouse.session, settings, table.source, None)
        else:
            rows = warehouse.session.read.format("delta").load(str(table.address))
        if ROWID in rows.columns:
            rows = rows.select(*(column_of(name) for name in rows.columns if not is_hidden(name)))
        return (rows if limit is None else rows.limit(limit)).toArrow()
