"""The schema of a record: one change of a row whose outcome is known.

The packages `delivery` and `sync` decide when a change has ended and with which status.
"""

import enum
from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import NamedTuple

import pyarrow as pa

from ondatra_dagster.records.file_paths import RecordFileType
from ondatra_dagster.records.parquet_files import build_batches


class RecordStatus(enum.StrEnum):
    """The status with which a record ended. Rows with NULL or DUPLICATE were never sent."""

    SUCCEEDED = "succeeded"
    REJECTED = "rejected"
    NULL = "NULL"
    DUPLICATE = "DUPLICATE"


class RecordOperation(enum.StrEnum):
    """The operation that was sent to the destination."""

    UPSERT = "upsert"
    DELETE = "delete"
    APPEND = "append"
    MIRROR = "mirror"


INVALID_STATUSES = frozenset({RecordStatus.NULL, RecordStatus.DUPLICATE})


class SyncRecord(NamedTuple):
    """A change that ended in one sync run."""

    identifier: str
    payload: str  # the source row, a JSON object
    operation: str
    status: str
    status_message: str | None
    batch_started_at: datetime
    batch_ended_at: datetime
    rowid: int | None
    change_type: str
    table_version: int
    table_id: str

    @property
    def batch_type(self) -> RecordFileType:
        """Return the type of the file that the record belongs to."""
        if self.status in INVALID_STATUSES:
            return RecordFileType.INVALID
        return RecordFileType.DELETED if self.operation == RecordOperation.DELETE else RecordFileType.UPDATED


class DeliveredRecord(NamedTuple):
    """The fields of a record that a recovery needs, so that no delivered row is sent again."""

    identifier: str
    operation: str
    status: str  # succeeded or rejected
    status_message: str | None
    rowid: int | None
    change_type: str
    table_version: int
    table_id: str
    run_id: str = ""
    payload: str = ""  # empty unless the caller asked for it


TIMESTAMP = pa.timestamp("us", tz="UTC")

# the columns of the published format first, in its order, then ondatra's own
RECORD_SCHEMA = pa.schema(
    {
        "identifier": pa.string(),
        "record_payload": pa.string(),
        "operation": pa.string(),
        "status": pa.string(),
        "status_message": pa.string(),
        "batch_started_at": TIMESTAMP,
        "batch_ended_at": TIMESTAMP,
        "sync_configuration_id": pa.string(),
        "sync_run_id": pa.string(),
        "__ondatra_rowid": pa.int64(),
        "__ondatra_change_type": pa.string(),
        "table_version": pa.int64(),
        "table_id": pa.string(),
    }
)
DICTIONARY_COLUMNS = frozenset(RECORD_SCHEMA.names) - {"identifier", "record_payload", "__ondatra_rowid"}
DELIVERED_COLUMNS = (
    "identifier",
    "operation",
    "status",
    "status_message",
    "__ondatra_rowid",
    "__ondatra_change_type",
    "table_version",
    "table_id",
    "sync_run_id",
)
PAYLOAD_COLUMN = "record_payload"
INVALID_ROW_COLUMNS = ("__ondatra_rowid", "table_id")
_RUN_COLUMNS = ("sync_configuration_id", "sync_run_id")
_SCHEMA_WITHOUT_RUN = pa.schema([field for field in RECORD_SCHEMA if field.name not in _RUN_COLUMNS])


def build_record_batches(records: Iterable[SyncRecord], *, sync_id: str, run_id: str) -> Iterator[pa.RecordBatch]:
    """Yield the records as Arrow record batches, each with as many records as fit in memory."""
    run_index = RECORD_SCHEMA.get_field_index(_RUN_COLUMNS[0])
    for batch in build_batches(records, _SCHEMA_WITHOUT_RUN, lambda record: len(record[1])):
        ids = [pa.repeat(pa.scalar(value), batch.num_rows) for value in (sync_id, run_id)]
        columns = [*batch.columns[:run_index], *ids, *batch.columns[run_index:]]
        yield pa.RecordBatch.from_arrays(columns, schema=RECORD_SCHEMA)
