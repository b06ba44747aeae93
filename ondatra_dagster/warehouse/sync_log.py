"""The Delta table of what was sent, as far as Spark is needed for it: rows are appended, and no more."""

import contextlib
from collections.abc import Iterator

import pyarrow as pa

from ondatra_dagster.planning.delta_log import SYNC_LOG
from ondatra_dagster.planning.table_past import RETENTIONS
from ondatra_dagster.warehouse.process_locks import WAIT_SECONDS, writing
from ondatra_dagster.warehouse.spark_errors import explained_at
from ondatra_dagster.warehouse.spark_session import Warehouse


class SyncLogTable:
    """`ondatra.sync_log`, made by the first append."""

    def __init__(self, warehouse: Warehouse, *, wait_seconds: float = WAIT_SECONDS) -> None:
        self._warehouse = warehouse
        self._wait_seconds = wait_seconds

    @contextlib.contextmanager
    def writing(self) -> Iterator[None]:
        """Hold the table; BusyError says who does."""
        locks, wait = self._warehouse.locks, self._wait_seconds
        with writing(locks, SYNC_LOG, run_id="that keeps the sync log", wait_seconds=wait):
            yield

    def append(self, rows: pa.Table, *, note: str, number: int) -> None:
        """Add the rows in one commit with that note; nothing when the commit of that number is there."""
        with explained_at(SYNC_LOG):
            write = self._warehouse.session.createDataFrame(rows).coalesce(1).write.format("delta")
            write = write.options(**RETENTIONS, userMetadata=note, txnAppId=SYNC_LOG, txnVersion=str(number))
            write.mode("append").save(self._warehouse.table_path(SYNC_LOG))
