"""What is kept of one change once it has ended, and how it stands in a file of records.

When a change has ended, and with which status, is decided in delivery and sync.
"""

import enum
from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import NamedTuple

import pyarrow as pa

from ondatra_dagster.tracking.addresses import BatchType
from ondatra_dagster.tracking.parquet_files import arrays, in_parts


class RecordStatus(enum.StrEnum):
    """How a record ended. NULL and DUPLICATE: it was never sent."""

    SUCCEEDED = "succeeded"
    REJECTED = "rejected"
    NULL = "NULL"
    DUPLICATE = "DUPLICATE"


class Operation(enum.StrEnum):
    """What was meant to happen at the destination."""

    UPSERT = "upsert"
    DELETE = "delete"
    APPEND = "append"
    MIRROR = "mirror"


INVALID = frozenset({RecordStatus.NULL, RecordStatus.DUPLICATE})


class SyncRecord(NamedTuple):
    """One change that ended in one sync run."""

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
    def batch_type(self) -> BatchType:
        """The file that it belongs in."""
        if self.status in INVALID:
            return BatchType.INVALID
        return BatchType.DELETED if self.operation == Operation.DELETE else BatchType.UPDATED


class Delivered(NamedTuple):
    """What the cross-check needs of a record that was sent and is not to be sent again."""

    identifier: str
    operation: str
    status: str  # succeeded or rejected
    status_message: str | None
    rowid: int | None
    change_type: str
    table_version: int
    table_id: str
    run_id: str = ""
    payload: str = ""  # where it was asked for


MOMENT = pa.timestamp("us", tz="UTC")

# the columns of the published format first, in its order, then ours
SCHEMA = pa.schema(
    {
        "identifier": pa.string(),
        "record_payload": pa.string(),
        "operation": pa.string(),
        "status": pa.string(),
        "status_message": pa.string(),
        "batch_started_at": MOMENT,
        "batch_ended_at": MOMENT,
        "sync_configuration_id": pa.string(),
        "sync_run_id": pa.string(),
        "__ondatra_rowid": pa.int64(),
        "__ondatra_change_type": pa.string(),
        "table_version": pa.int64(),
        "table_id": pa.string(),
    }
)
REPETITIVE = frozenset(SCHEMA.names) - {"identifier", "record_payload", "__ondatra_rowid"}
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
ASIDE_COLUMNS = ("__ondatra_rowid", "table_id")
STATUS_COLUMN = ("status",)
_OF_THE_RUN = ("sync_configuration_id", "sync_run_id")
_OF_THE_RECORD = [field for field in SCHEMA if field.name not in _OF_THE_RUN]


def record_batches(records: Iterable[SyncRecord], *, sync_id: str, run_id: str) -> Iterator[pa.RecordBatch]:
    """The records as columns, a bounded part of them at a time."""
    for part in in_parts(records, weigh=lambda record: len(record[1])):
        columns = dict(
            zip((field.name for field in _OF_THE_RECORD), arrays(part, _OF_THE_RECORD), strict=True)
        )
        for name, value in zip(_OF_THE_RUN, (sync_id, run_id), strict=True):
            columns[name] = pa.repeat(pa.scalar(value), len(part))
        yield pa.RecordBatch.from_arrays([columns[name] for name in SCHEMA.names], schema=SCHEMA)
