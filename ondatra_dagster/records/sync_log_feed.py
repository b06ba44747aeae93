"""The position of the sync log in the published records, and the records that the log doesn't have yet.

The files of a run appear one after the other, and a run begins when all files of the previous run exist. So a
position needs only the newest run whose records the log has.
"""

import contextlib
import dataclasses
import functools
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple, Self, TypeAlias

import orjson
import pyarrow as pa
import pyarrow.parquet as pq

from ondatra_dagster.deltalog.commit_user_metadata import newer_version_error
from ondatra_dagster.errors import StateError
from ondatra_dagster.records.file_paths import RecordFileType
from ondatra_dagster.records.record_schema import RECORD_SCHEMA
from ondatra_dagster.records.record_store import RecordStore

_FORMAT, _FORMAT_VERSION = "ondatra_sync_log", 1


class RecordRowGroup(NamedTuple):
    """A row group of one published record file."""

    sync_id: str
    run_id: str
    batch_type: RecordFileType
    file_number: int
    row_group: int
    first_row: int  # the position of the row group's first record in the file
    row_count: int
    byte_size: int  # bytes, uncompressed


@dataclasses.dataclass(frozen=True, slots=True)
class RunPosition:
    """The newest run whose records the log has, and the next row group for each record type of this run."""

    run_id: str
    next_row_groups: Mapping[str, tuple[int, int]]  # record type → the next file's number and the next row group in it


@dataclasses.dataclass(frozen=True, slots=True)
class SyncLogPosition:
    """The position of the log for all syncs, and the number of commits that ondatra made to the log."""

    commit_count: int = 0
    syncs: Mapping[str, RunPosition] = dataclasses.field(default_factory=dict)

    def first_open_run(self, sync_id: str) -> str:
        """Return the earliest run that may have records to append.

        Return "", which sorts before all runs, if the log has no records of the sync.
        """
        return self.syncs[sync_id].run_id if sync_id in self.syncs else ""

    def contains(self, piece: RecordRowGroup) -> bool:
        """Return whether the log has the records of this row group."""
        position = self.syncs.get(piece.sync_id)
        if position is None or piece.run_id != position.run_id:
            return piece.run_id < self.first_open_run(piece.sync_id)
        return (piece.file_number, piece.row_group) < tuple(position.next_row_groups.get(piece.batch_type, (0, 0)))

    def advance(self, pieces: Iterable[RecordRowGroup]) -> Self:
        """Return the position after these row groups, which must be the next ones of their sync and record type."""
        syncs = dict(self.syncs)
        for row_group in pieces:
            position = syncs.get(row_group.sync_id)
            row_groups_before = position.next_row_groups if position and position.run_id == row_group.run_id else {}
            next_row_groups = {
                **row_groups_before,
                str(row_group.batch_type): (row_group.file_number, row_group.row_group + 1),
            }
            syncs[row_group.sync_id] = RunPosition(row_group.run_id, next_row_groups)
        return dataclasses.replace(self, commit_count=self.commit_count + 1, syncs=syncs)

    def dump(self) -> str:
        syncs = {sync_id: [position.run_id, dict(position.next_row_groups)] for sync_id, position in self.syncs.items()}
        return orjson.dumps({_FORMAT: _FORMAT_VERSION, "number": self.commit_count, "syncs": syncs}).decode()

    @classmethod
    def load(cls, text: str) -> Self | None:
        """Return the position from a commit's user metadata; None if the metadata doesn't contain a position."""
        try:
            fields = orjson.loads(text)
        except orjson.JSONDecodeError:
            return None
        number = fields.get(_FORMAT) if isinstance(fields, dict) else None
        if not isinstance(number, int):
            return None
        if number > _FORMAT_VERSION:
            raise newer_version_error("ondatra.sync_log")
        syncs = {
            sync_id: RunPosition(run_id, {kind: tuple(next_group) for kind, next_group in row_groups.items()})
            for sync_id, (run_id, row_groups) in fields["syncs"].items()
        }
        return cls(fields["number"], syncs)


SyncLogRows: TypeAlias = Any  # a pyarrow.Table with SYNC_LOG_SCHEMA; Any, because pyarrow has no types
_TIMESTAMP = RECORD_SCHEMA.field("batch_started_at").type
SYNC_LOG_SCHEMA = pa.schema(
    {
        "log_id": pa.string(),  # each read of a record gives the same id
        "sync_id": pa.string(),
        "sync_run_id": pa.string(),
        "record_identifier": pa.string(),
        "record_payload": pa.string(),
        "operation": pa.string(),
        "status": pa.string(),
        "status_message": pa.string(),
        "batch_started_at": _TIMESTAMP,
        "batch_completed_at": _TIMESTAMP,
        "source_object_id": pa.string(),
        "destination_id": pa.string(),
        "destination_object_id": pa.string(),
    }
)
_SOURCE_COLUMNS = {  # columns of the log, by name, that have another name in a record
    "sync_id": "sync_configuration_id",
    "record_identifier": "identifier",
    "batch_completed_at": "batch_ended_at",
}
_ENDPOINT_FIELDS = {  # columns with one value for a whole run, with their names in the run's metadata
    "source_object_id": "source",
    "destination_id": "destination",
    "destination_object_id": "destination_object",
}


def list_missing_row_groups(store: RecordStore, position: SyncLogPosition) -> Iterator[RecordRowGroup]:
    """Yield this project's published row groups that the log lacks; for each sync, the oldest run first."""
    for sync_id in store.list_syncs():
        for run_id in store.list_runs(sync_id):
            yield from list_missing_row_groups_of_run(store, sync_id, run_id, position)


def list_missing_row_groups_of_run(
    store: RecordStore, sync_id: str, run_id: str, position: SyncLogPosition
) -> list[RecordRowGroup]:
    """Return a run's published row groups that the log lacks; an empty list for another project's run."""
    if run_id < position.first_open_run(sync_id):  # its files aren't listed, because there may be years of them
        return []
    row_groups = [
        row_group for row_group in _list_row_groups(store, sync_id, run_id) if not position.contains(row_group)
    ]
    return row_groups if row_groups and store.is_own_run(store.read_metadata(sync_id, run_id)) else []


def read_log_rows(store: RecordStore, piece: RecordRowGroup) -> SyncLogRows:
    """Return the rows of the sync log for a row group's records."""
    file_id = f"{piece.sync_id}/{piece.run_id}/{piece.batch_type}.{piece.file_number}"
    try:
        with store.open_records(piece.sync_id, piece.run_id, (piece.batch_type, piece.file_number)) as file:
            records = pq.ParquetFile(file).read_row_group(piece.row_group)
    except FileNotFoundError as error:
        raise StateError(f"the records {file_id} were removed while they were read; try again") from error
    row_numbers = range(piece.first_row, piece.first_row + piece.row_count)
    added_columns = {"log_id": pa.array([f"{file_id}/{row_number}" for row_number in row_numbers], pa.string())}
    for name, value in _read_endpoint_ids(store, piece.sync_id, piece.run_id).items():
        added_columns[name] = pa.repeat(pa.scalar(value, pa.string()), piece.row_count)
    columns = [
        added_columns[name] if name in added_columns else records[_SOURCE_COLUMNS.get(name, name)]
        for name in SYNC_LOG_SCHEMA.names
    ]
    return pa.Table.from_arrays(columns, schema=SYNC_LOG_SCHEMA)


def concatenate_log_rows(rows: list[SyncLogRows]) -> SyncLogRows:
    return pa.concat_tables(rows)


def _list_row_groups(store: RecordStore, sync_id: str, run_id: str) -> Iterator[RecordRowGroup]:
    for file in store.list_record_files(sync_id, run_id):
        with contextlib.suppress(FileNotFoundError):  # another process has just removed the file
            with store.open_records(sync_id, run_id, file) as stream:
                footer = pq.ParquetFile(stream).metadata
            first_row = 0
            for number in range(footer.num_row_groups):
                group = footer.row_group(number)
                if group.num_rows:
                    yield RecordRowGroup(
                        sync_id, run_id, *file, number, first_row, group.num_rows, group.total_byte_size
                    )
                first_row += group.num_rows


@functools.lru_cache(maxsize=8)  # a run's row groups are read one after the other
def _read_endpoint_ids(store: RecordStore, sync_id: str, run_id: str) -> Mapping[str, str | None]:
    """Return the ids of the run's source and destination; each id is None if the run's metadata is lost."""
    metadata = store.read_metadata(sync_id, run_id) or {}
    endpoints = {column: metadata.get(name) for column, name in _ENDPOINT_FIELDS.items()}
    return {
        column: str(endpoint["id"]) if isinstance(endpoint, dict) else None for column, endpoint in endpoints.items()
    }
