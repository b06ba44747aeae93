"""The maintenance of one table by OPTIMIZE and VACUUM. The package operations decides when it runs, and how far.

VACUUM follows the table's own retention, which normally keeps everything. The retention is lowered for one VACUUM and
then restored. If the process ends in between, the next reader of old versions or the next writer restores it.
"""

import contextlib
import math
from collections.abc import Callable, Mapping

from ondatra_dagster.deltalog.log_reader import read_table_size, read_table_state
from ondatra_dagster.deltalog.removable_history import (
    FILE_RETENTION_PROPERTY,
    FREED_UPTO_PROPERTY,
    NO_VERSION,
    RETENTION_PROPERTIES,
    is_retention_lowered,
)
from ondatra_dagster.errors import BusyError
from ondatra_dagster.planning.find_table_and_columns import invalid_table_path
from ondatra_dagster.warehouse.create_and_write_target_table import spark_conf, table_by_path
from ondatra_dagster.warehouse.schema_evolution import TableAlterer
from ondatra_dagster.warehouse.spark.error_messages import explain_spark_errors
from ondatra_dagster.warehouse.spark.memory_and_tuning_by_work_size import tune_for_size
from ondatra_dagster.warehouse.spark.session import Warehouse
from ondatra_dagster.warehouse.spark.table_locks import lock_table

MAINTENANCE_RUN = "that maintains tables"
# without this setting, files that are large enough are rewritten too
MIN_FILE_SIZE = "spark.databricks.delta.optimize.minFileSize"
MAX_FILE_SIZE = "spark.databricks.delta.optimize.maxFileSize"
TARGET_BYTES = 128_000_000
MARGIN_SECONDS = 3600  # the time that may pass between our reading of the clock and Delta's
MAX_VACUUM_DELAY_SECONDS = 600  # VACUUM isn't started if more of the margin than this has passed


class SparkTableMaintenance:
    """The maintenance statements for one table. The caller holds the table's lock."""

    def __init__(self, warehouse: Warehouse, path: str, *, lock: str) -> None:
        self._warehouse = warehouse
        self._path = path
        self._lock_name = lock

    def lock(self) -> contextlib.AbstractContextManager[None]:
        """Lock the table against other writers.

        Raises BusyError at once if another process holds the lock, and names it.
        """
        return lock_table(self._warehouse.locks_folder, self._lock_name, run_id=MAINTENANCE_RUN, wait_seconds=0)

    def restore_retention(self) -> None:
        """Restore the retention that a VACUUM has lowered."""
        with explain_spark_errors(self._path):
            self._set_properties(RETENTION_PROPERTIES)

    def optimize(self, *, small_bytes: int) -> None:
        """Compact the files that are smaller than `small_bytes`, in a commit that changes no rows."""
        session = self._warehouse.session
        tune_for_size(session, self._warehouse.settings, read_table_size(self._path) or 0)
        with (
            explain_spark_errors(self._path),
            spark_conf(session, {MIN_FILE_SIZE: str(small_bytes), MAX_FILE_SIZE: str(TARGET_BYTES)}),
        ):
            session.sql(f"optimize {table_by_path(self._path)}").collect()

    def vacuum(self, *, since: float, upto: int, clock: Callable[[], float]) -> bool:
        """Delete the files that commits up to version `upto` removed before the time `since`.

        Return whether VACUUM ran.

        VACUUM counts back from its own start. If it started too late, for example because the machine was suspended, it
        would also delete files that were removed after `since`. In this case it isn't started.
        """
        started_at = clock()
        keep_seconds = math.ceil(started_at - since) + MARGIN_SECONDS
        with explain_spark_errors(self._path):
            state = read_table_state(self._path)
            freed_upto = state.properties.get(FREED_UPTO_PROPERTY, str(NO_VERSION)) if state else str(NO_VERSION)
            # if VACUUM isn't started, the table keeps the version up to which files are deleted
            properties_after = {FREED_UPTO_PROPERTY: freed_upto}
            self._set_properties(
                {
                    **RETENTION_PROPERTIES,
                    FILE_RETENTION_PROPERTY: f"interval {keep_seconds} seconds",
                    FREED_UPTO_PROPERTY: str(upto),
                }
            )
            try:
                is_late = clock() - started_at > MAX_VACUUM_DELAY_SECONDS
                if not is_late:
                    properties_after = {}
                    self._warehouse.session.sql(f"vacuum {table_by_path(self._path)}").collect()
            finally:
                self._set_properties({**RETENTION_PROPERTIES, **properties_after})
        return not is_late

    def _set_properties(self, properties: Mapping[str, str]) -> None:
        TableAlterer(self._warehouse.session, self._path).set_properties(properties)


def finish_interrupted_vacuum(warehouse: Warehouse, model_id: str) -> None:
    """Restore the retention that a killed VACUUM of a model's tables lowered, so that old versions can be read.

    If another process holds the table's lock, that process has to restore it. A dry run changes nothing.
    """
    table = warehouse.table_path(model_id)
    for path in (table, invalid_table_path(table)):
        state = read_table_state(path)
        if state and is_retention_lowered(state) and not warehouse.settings.dry_run_folder:
            maintenance = SparkTableMaintenance(warehouse, path, lock=model_id)
            with contextlib.suppress(BusyError), maintenance.lock():
                maintenance.restore_retention()
