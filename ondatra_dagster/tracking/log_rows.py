"""Published records as rows of the sync log: which are still to be taken, and how they stand there."""

import contextlib
import functools
from collections.abc import Iterator, Mapping
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.parquet as pq

from ondatra_dagster.changes import Json
from ondatra_dagster.errors import StateError
from ondatra_dagster.tracking.addresses import NumberedFile
from ondatra_dagster.tracking.log_position import Piece, Position
from ondatra_dagster.tracking.record import SCHEMA
from ondatra_dagster.tracking.store import TrackingStore

LogRows: TypeAlias = Any  # a pyarrow.Table with LOG_SCHEMA: that library tells no types

_MOMENT = SCHEMA.field("batch_started_at").type
LOG_SCHEMA = pa.schema(
    {
        "log_id": pa.string(),  # the same for the same record, whenever it is taken
        "sync_id": pa.string(),
        "sync_run_id": pa.string(),
        "record_identifier": pa.string(),
        "record_payload": pa.string(),
        "operation": pa.string(),
        "status": pa.string(),
        "status_message": pa.string(),
        "batch_started_at": _MOMENT,
        "batch_completed_at": _MOMENT,
        "source_object_id": pa.string(),
        "destination_id": pa.string(),
        "destination_object_id": pa.string(),
    }
)
_FROM = {  # the columns that a record has under another name
    "sync_id": "sync_configuration_id",
    "record_identifier": "identifier",
    "batch_completed_at": "batch_ended_at",
}
_ENDS = {  # those that are the same for a whole run, by their names in its metadata
    "source_object_id": "source",
    "destination_id": "destination",
    "destination_object_id": "destination_object",
}


def pieces_after(store: TrackingStore, position: Position) -> Iterator[Piece]:
    """What is published and not in the log, of all syncs of this project, each sync's oldest runs first."""
    for sync_id in store.syncs():
        for run_id in store.runs(sync_id):
            yield from missing_of(store, sync_id, run_id, position)


def missing_of(store: TrackingStore, sync_id: str, run_id: str, position: Position) -> list[Piece]:
    """What of one run is published and not in the log; nothing of another project's."""
    if run_id < position.run_of(sync_id):  # without looking: there may be years of them
        return []
    pieces = [piece for piece in _pieces(store, sync_id, run_id) if not position.has(piece)]
    return pieces if pieces and store.is_ours(store.metadata(sync_id, run_id)) else []


def log_rows(store: TrackingStore, piece: Piece) -> LogRows:
    """The rows that a piece is in the log."""
    file_id = f"{piece.sync_id}/{piece.run_id}/{piece.batch_type}.{piece.number}"
    try:
        with store.reading_records(piece.sync_id, piece.run_id, (piece.batch_type, piece.number)) as file:
            records = pq.ParquetFile(file).read_row_group(piece.group)
    except FileNotFoundError as error:
        raise StateError(f"the records {file_id} were removed while they were read; try again") from error
    places = range(piece.first, piece.first + piece.rows)
    whole = {"log_id": pa.array([f"{file_id}/{place}" for place in places], pa.string())}
    for name, value in _ends(store, piece.sync_id, piece.run_id).items():
        whole[name] = pa.repeat(pa.scalar(value, pa.string()), piece.rows)
    columns = [whole[name] if name in whole else records[_FROM.get(name, name)] for name in LOG_SCHEMA.names]
    return pa.Table.from_arrays(columns, schema=LOG_SCHEMA)


def together(rows: list[LogRows]) -> LogRows:
    return pa.concat_tables(rows)


def _pieces(store: TrackingStore, sync_id: str, run_id: str) -> Iterator[Piece]:
    for file in store.record_files(sync_id, run_id):
        with contextlib.suppress(FileNotFoundError):  # somebody has just removed it
            with store.reading_records(sync_id, run_id, file) as opened:
                footer = pq.ParquetFile(opened).metadata
            yield from _pieces_of(sync_id, run_id, file, footer)


def _pieces_of(sync_id: str, run_id: str, file: NumberedFile, footer: Any) -> Iterator[Piece]:
    first = 0
    for number in range(footer.num_row_groups):
        group = footer.row_group(number)
        if group.num_rows:
            yield Piece(sync_id, run_id, *file, number, first, group.num_rows, group.total_byte_size)
        first += group.num_rows


@functools.lru_cache(maxsize=8)  # the pieces of a run come one after the other
def _ends(store: TrackingStore, sync_id: str, run_id: str) -> Mapping[str, str | None]:
    """What the run connected; unknown where its metadata is lost."""
    metadata = store.metadata(sync_id, run_id) or {}
    return {column: _id(metadata.get(name)) for column, name in _ENDS.items()}


def _id(end: Json) -> str | None:
    return str(end["id"]) if isinstance(end, dict) else None
