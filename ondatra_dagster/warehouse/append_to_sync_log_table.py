"""The appends to `ondatra.sync_log`, the Delta table of sent changes. No other use of this table needs Spark."""

import contextlib

import pyarrow as pa

from ondatra_dagster.deltalog.removable_history import RETENTION_PROPERTIES
from ondatra_dagster.planning.find_table_and_columns import SYNC_LOG_TABLE
from ondatra_dagster.warehouse.spark.error_messages import explain_spark_errors
from ondatra_dagster.warehouse.spark.session import Warehouse
from ondatra_dagster.warehouse.spark.table_locks import WAIT_SECONDS, lock_table


class SyncLogTable:
    """The table `ondatra.sync_log`, which the first append creates."""

    def __init__(self, warehouse: Warehouse, *, wait_seconds: float = WAIT_SECONDS) -> None:
        self._warehouse = warehouse
        self._wait_seconds = wait_seconds

    def lock(self) -> contextlib.AbstractContextManager[None]:
        """Lock the table. Raises BusyError, which names the process that holds the lock."""
        locks, wait = self._warehouse.locks_folder, self._wait_seconds
        return lock_table(locks, SYNC_LOG_TABLE, run_id="that keeps the sync log", wait_seconds=wait)

    def append(self, rows: pa.Table, *, note: str, number: int) -> None:
        """Append the rows in one commit with the note.

        Do nothing if the table already has a commit with this number.
        """
        with explain_spark_errors(SYNC_LOG_TABLE):
            write = self._warehouse.session.createDataFrame(rows).coalesce(1).write.format("delta")
            write = write.options(
                **RETENTION_PROPERTIES, userMetadata=note, txnAppId=SYNC_LOG_TABLE, txnVersion=str(number)
            )
            write.mode("append").save(self._warehouse.table_path(SYNC_LOG_TABLE))
