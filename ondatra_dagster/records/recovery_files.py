"""The Parquet files that a recovery reads: the queue's snapshot, and the delivered records of older runs."""

import dataclasses
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from datetime import datetime
from typing import Any, BinaryIO, TypeAlias

import orjson
import pyarrow as pa

from ondatra_dagster.delivery.queue.snapshot_and_restore import QueueSnapshot, SnapshotUnit
from ondatra_dagster.errors import StateError
from ondatra_dagster.records import parquet_files
from ondatra_dagster.records.record_schema import (
    DELIVERED_COLUMNS,
    DICTIONARY_COLUMNS,
    PAYLOAD_COLUMN,
    RECORD_SCHEMA,
    DeliveredRecord,
)

SNAPSHOT_FORMAT = 1
_SNAPSHOT_NOTE = "ondatra.queue_snapshot"
_SNAPSHOT_FIELDS = (
    "sync_id",
    "run_id",
    "table_id",
    "watermark",
    "invalid_watermark",
    "base_url",
    "known_since",
    "state_id",
)
_SNAPSHOT_SCHEMA = pa.schema(
    {
        "key": pa.string(),
        "version": pa.int64(),
        "state": pa.string(),
        "acknowledged": pa.string(),
        "maybe_sent": pa.string(),
        "desired": pa.string(),
        "attempts": pa.int64(),
        "due_at": pa.float64(),
        "message": pa.string(),
        "job_ref": pa.string(),
        "belongs_to": pa.string(),
        "is_context": pa.int64(),
        "key_renewals": pa.int64(),
        "set_at": pa.float64(),
    }
)
_SNAPSHOT_DICTIONARY_COLUMNS = frozenset(
    {"version", "state", "attempts", "message", "job_ref", "is_context", "key_renewals"}
)
FileOpener: TypeAlias = Callable[[], AbstractContextManager[BinaryIO]]


@dataclasses.dataclass(frozen=True, slots=True)
class SnapshotUnits:
    """The units in a snapshot file. Each loop over this object reads the file again, one chunk at a time."""

    open_file: FileOpener

    def __iter__(self) -> Iterator[SnapshotUnit]:
        with self.open_file() as file:
            for row in parquet_files.read_rows(file, _SNAPSHOT_SCHEMA.names):
                yield SnapshotUnit._make(row)


def write_snapshot(file: BinaryIO, snapshot: QueueSnapshot) -> None:
    """Write the whole snapshot into an empty file; its units are written one chunk at a time."""
    batches = parquet_files.build_batches(snapshot.units, _SNAPSHOT_SCHEMA, _unit_length)
    note = orjson.dumps(
        {
            "format": SNAPSHOT_FORMAT,
            **{name: getattr(snapshot, name) for name in _SNAPSHOT_FIELDS},
            "written_at": snapshot.written_at,
            "layouts": {str(layout_id): layout for layout_id, layout in snapshot.layouts.items()},
            "notes": dict(snapshot.queue_metadata),
        }
    )
    parquet_files.write_file(
        file, _SNAPSHOT_SCHEMA, batches, repetitive=_SNAPSHOT_DICTIONARY_COLUMNS, notes={_SNAPSHOT_NOTE: note.decode()}
    )


def read_snapshot(open_file: FileOpener, address: str) -> QueueSnapshot:
    """Return the snapshot in the file that `open_file` opens. Each loop over its units reads the file again."""
    with open_file() as file:
        note: dict[str, Any] = orjson.loads(parquet_files.read_notes(file).get(_SNAPSHOT_NOTE, "{}"))
    if note.get("format") != SNAPSHOT_FORMAT:
        raise StateError(
            f"{address} has a form that this version of ondatra doesn't know; use the version that wrote it"
        )
    return QueueSnapshot(
        **{name: note[name] for name in _SNAPSHOT_FIELDS},
        written_at=datetime.fromisoformat(note["written_at"]),
        layouts={int(layout_id): layout for layout_id, layout in note["layouts"].items()},
        queue_metadata=note.get("notes", {}),
        units=SnapshotUnits(open_file),
    )


def _unit_length(unit: SnapshotUnit) -> int:
    return len(unit.desired) + len(unit.acknowledged or "") + len(unit.maybe_sent or "")


DELIVERED_FORMAT = 1
_DELIVERED_NOTE = "ondatra.sent"
_DELIVERED_FILE_COLUMNS = (*DELIVERED_COLUMNS, PAYLOAD_COLUMN)
_DELIVERED_SCHEMA = pa.schema([RECORD_SCHEMA.field(name) for name in _DELIVERED_FILE_COLUMNS])


def write_delivered(file: BinaryIO, records: Iterable[DeliveredRecord], *, last_run: str) -> None:
    """Write records with payloads into an empty file; `last_run` is the newest run that the file covers."""
    batches = parquet_files.build_batches(records, _DELIVERED_SCHEMA, lambda record: len(record.payload))
    note = orjson.dumps({"format": DELIVERED_FORMAT, "through": last_run}).decode()
    repetitive = DICTIONARY_COLUMNS.intersection(_DELIVERED_FILE_COLUMNS)
    parquet_files.write_file(file, _DELIVERED_SCHEMA, batches, repetitive=repetitive, notes={_DELIVERED_NOTE: note})


def read_newest_delivered_run(file: BinaryIO) -> str:
    """Return the id of the newest run that a file of delivered records covers."""
    note: dict[str, Any] = orjson.loads(parquet_files.read_notes(file).get(_DELIVERED_NOTE, "{}"))
    if note.get("format") != DELIVERED_FORMAT:
        raise StateError(
            "the summary of older runs has a form that this version doesn't know; use the version that wrote it"
        )
    return str(note["through"])


def read_delivered(file: BinaryIO, *, with_payload: bool) -> Iterator[DeliveredRecord]:
    columns = _DELIVERED_FILE_COLUMNS if with_payload else DELIVERED_COLUMNS
    for row in parquet_files.read_rows(file, columns):
        yield DeliveredRecord(*row)
