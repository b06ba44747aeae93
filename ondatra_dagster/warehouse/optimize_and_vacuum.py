"""The maintenance of one table by OPTIMIZE and VACUUM. The package operations decides when, and how far.

VACUUM goes by the table's own retention, which normally keeps everything. It is lowered for one VACUUM and then
put back. When a process ended in between, the next reader of the table's past puts it back.
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
MIN_FILE_SIZE = "spark.databricks.delta.optimize.minFileSize"  # else what is large enough is written anew too
MAX_FILE_SIZE = "spark.databricks.delta.optimize.maxFileSize"
TARGET_BYTES = 128_000_000
MARGIN_SECONDS = 3600  # may pass between our look at the clock and Delta's
MAX_VACUUM_DELAY_SECONDS = 600  # of which a VACUUM begins at most so many later


class SparkTableMaintenance:
    """One table, for who holds its lock."""

    def __init__(self, warehouse: Warehouse, path: str, *, lock: str) -> None:
        self._warehouse = warehouse
        self._path = path
        self._lock_name = lock

    def lock(self) -> contextlib.AbstractContextManager[None]:
        """Keep others from writing it; BusyError at once says who does."""
        return lock_table(self._warehouse.locks_folder, self._lock_name, run_id=MAINTENANCE_RUN, wait_seconds=0)

    def restore_retention(self) -> None:
        """Put the retention back that a VACUUM lowers."""
        with explain_spark_errors(self._path):
            self._set_properties(RETENTION_PROPERTIES)

    def optimize(self, *, small_bytes: int) -> None:
        """Put files that are smaller than that together, in a commit that changes no rows."""
        session = self._warehouse.session
        tune_for_size(session, self._warehouse.settings, read_table_size(self._path) or 0)
        with (
            explain_spark_errors(self._path),
            spark_conf(session, {MIN_FILE_SIZE: str(small_bytes), MAX_FILE_SIZE: str(TARGET_BYTES)}),
        ):
            session.sql(f"optimize {table_by_path(self._path)}").collect()

    def vacuum(self, *, since: float, upto: int, clock: Callable[[], float]) -> bool:
        """Remove what was taken out of the table before that moment, by commits up to `upto`; whether it did.

        VACUUM counts back from its own begin. Where that comes too long after ours, as when the machine has
        slept, it would take what was taken out since, and isn't begun.
        """
        reckoned_at = clock()
        keep_seconds = math.ceil(reckoned_at - since) + MARGIN_SECONDS
        with explain_spark_errors(self._path):
            state = read_table_state(self._path)
            freed_upto = state.properties.get(FREED_UPTO_PROPERTY, str(NO_VERSION)) if state else str(NO_VERSION)
            after = {FREED_UPTO_PROPERTY: freed_upto}  # until it begins, nothing more has gone
            self._set_properties(
                {
                    **RETENTION_PROPERTIES,
                    FILE_RETENTION_PROPERTY: f"interval {keep_seconds} seconds",
                    FREED_UPTO_PROPERTY: str(upto),
                }
            )
            try:
                is_late = clock() - reckoned_at > MAX_VACUUM_DELAY_SECONDS
                if not is_late:
                    after = {}
                    self._warehouse.session.sql(f"vacuum {table_by_path(self._path)}").collect()
            finally:
                self._set_properties({**RETENTION_PROPERTIES, **after})
        return not is_late

    def _set_properties(self, properties: Mapping[str, str]) -> None:
        TableAlterer(self._warehouse.session, self._path).set_properties(properties)


def finish_interrupted_vacuum(warehouse: Warehouse, model_id: str) -> None:
    """End what a killed VACUUM of a model's tables has begun, so that all of their past can be read.

    Where another process holds the table, that is for it to do. A dry run leaves everything as it is.
    """
    table = warehouse.table_path(model_id)
    for path in (table, invalid_table_path(table)):
        state = read_table_state(path)
        if state and is_retention_lowered(state) and not warehouse.settings.dry_run_folder:
            upkeep = SparkTableMaintenance(warehouse, path, lock=model_id)
            with contextlib.suppress(BusyError), upkeep.lock():
                upkeep.restore_retention()
