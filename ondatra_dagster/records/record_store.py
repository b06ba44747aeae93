"""The record store: one place for the records, metadata and snapshots of all sync runs.

This module reads and writes the files. The other modules of this package define the files' contents. The
package `sync` decides when to write them.
"""

import contextlib
import copy
import dataclasses
import errno
import functools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import BinaryIO, Self

import orjson
import pyarrow as pa
import pyarrow.parquet as pq

from ondatra_dagster.delivery.queue.snapshot_and_restore import QueueSnapshot
from ondatra_dagster.errors import StateError
from ondatra_dagster.project.settings.storage_access import local_path
from ondatra_dagster.records import file_paths, parquet_files
from ondatra_dagster.records.file_paths import RecordFileId, RecordFileType
from ondatra_dagster.records.local_storage import DiscardingStorage, FileStorage, open_storage
from ondatra_dagster.records.metadata_and_heartbeat_format import (
    RunHeartbeat,
    RunMetadata,
    dump_heartbeat,
    dump_metadata,
    load_heartbeat,
)
from ondatra_dagster.records.record_schema import (
    DELIVERED_COLUMNS,
    DICTIONARY_COLUMNS,
    INVALID_ROW_COLUMNS,
    PAYLOAD_COLUMN,
    RECORD_SCHEMA,
    DeliveredRecord,
    SyncRecord,
    build_record_batches,
)
from ondatra_dagster.records.recovery_files import (
    read_delivered,
    read_newest_delivered_run,
    read_snapshot,
    write_delivered,
    write_snapshot,
)
from ondatra_dagster.records.source_and_destination_tables import FactRow, read_fact_table, write_fact_table
from ondatra_dagster.row_changes import Json
from ondatra_dagster.storage.file_errors import disk_error
from ondatra_dagster.storage.state_folder_id import UNKNOWN_STATE_ID, StateId

_PARQUET = ".parquet"
_METADATA = "metadata.json"
_DISK_FULL_CODES = (errno.ENOSPC, errno.EDQUOT)
_DAMAGE_ERRORS = (pa.ArrowInvalid, orjson.JSONDecodeError, KeyError)  # the file is damaged


class RecordStore:
    """The files of one organization. If a process is killed, each of its files is either complete or absent."""

    def __init__(
        self,
        address: str,
        *,
        organization: str = "1",
        workspace: str = "1",
        state: Callable[[], StateId] = lambda: UNKNOWN_STATE_ID,
    ) -> None:
        self._address = address
        self._read_state = state
        self._storage: FileStorage = open_storage(address)
        self._organization = organization
        self._workspace = workspace
        self._is_local = local_path(address) is not None
        self._verified_digests: dict[str, tuple[int, bytes]] = {}  # digests of remote record files, by file name

    @functools.cached_property
    def state(self) -> StateId:
        """Return the id of the state folder that writes to this store."""
        return self._read_state()

    def for_dry_run(self, state: StateId = UNKNOWN_STATE_ID) -> Self:
        """Return a copy of this store for a dry run from the state folder `state`. The copy discards all writes."""
        dry_store = copy.copy(self)
        dry_store.__dict__["state"] = state  # the known id: a dry run creates none
        dry_store._storage = DiscardingStorage(open_storage(self._address))  # noqa: SLF001 - of the same class
        return dry_store

    def run_address(self, sync_id: str, run_id: str) -> str:
        """Return the address of a run's records, for users and other programs."""
        return self._storage.address(self._run_folder(sync_id, run_id))

    def publish_records(
        self, sync_id: str, run_id: str, batch_type: RecordFileType, number: int, records: Iterable[SyncRecord]
    ) -> str:
        """Write one record file; return its address.

        A file with the same number is replaced: after a crash, the same records give the same file.
        """
        name = f"{self._run_folder(sync_id, run_id)}/{file_paths.records_file(batch_type, number)}"
        with self._open_writer(name) as file:
            batches = build_record_batches(records, sync_id=sync_id, run_id=run_id)
            parquet_files.write_file(file, RECORD_SCHEMA, batches, repetitive=DICTIONARY_COLUMNS)
        return self._storage.address(name)

    def finish_run(self, sync_id: str, run_id: str, metadata: RunMetadata) -> None:
        """Complete the run's folder: write its metadata, and a records_updated file even if it is empty.

        Call it when all settled rows of the run are published, because an empty file would hide that some
        aren't.
        """
        if not any(batch == RecordFileType.UPDATED for batch, _ in self.list_record_files(sync_id, run_id)):
            self.publish_records(sync_id, run_id, RecordFileType.UPDATED, 0, ())
        self.write_metadata(sync_id, run_id, metadata)

    def write_metadata(self, sync_id: str, run_id: str, metadata: RunMetadata) -> None:
        """Write the run's metadata.json; replace it if it exists."""
        text = dump_metadata(
            metadata,
            organization=self._organization,
            workspace=self._workspace,
            sync_id=sync_id,
            run_id=run_id,
            state_id=self.state.id,
        )
        with self._open_writer(f"{self._run_folder(sync_id, run_id)}/{_METADATA}") as file:
            file.write(text)

    def write_snapshot(self, snapshot: QueueSnapshot) -> None:
        """Write a run's snapshot of the queue; replace an earlier snapshot of the same run."""
        name = file_paths.snapshot_file(self._organization, snapshot.sync_id, snapshot.run_id)
        with self._open_writer(name) as file:
            write_snapshot(file, dataclasses.replace(snapshot, state_id=self.state.id))

    def write_heartbeat(self, sync_id: str, mark: RunHeartbeat) -> None:
        """Write a run's heartbeat in place of the sync's last heartbeat."""
        with self._open_writer(file_paths.heartbeat_file(self._organization, sync_id)) as file:
            file.write(dump_heartbeat(mark))

    def read_heartbeat(self, sync_id: str) -> RunHeartbeat | None:
        """Return the heartbeat of the sync's newest run; None if no run has left a heartbeat."""
        name = file_paths.heartbeat_file(self._organization, sync_id)
        remedy = "delete it: the next run writes it again"
        with contextlib.suppress(FileNotFoundError), self._open_reader(name, remedy, (FileNotFoundError,)) as file:
            return load_heartbeat(file.read())
        return None

    def read_newest_snapshot(self, sync_id: str) -> QueueSnapshot | None:
        """Return the newest snapshot of the sync's queue; None if it has no snapshot.

        Each loop over the snapshot's units reads the file again.
        """
        runs = self.list_snapshot_runs(sync_id)
        if not runs:
            return None
        name = file_paths.snapshot_file(self._organization, sync_id, runs[-1])
        remedy = "bring it back from a backup, or delete it to continue from the run before it and later records"
        return read_snapshot(functools.partial(self._open_reader, name, remedy), self._storage.address(name))

    def remove_snapshots(self, sync_id: str) -> None:
        """Remove all snapshots of the sync, so that no queue can be rebuilt from them; keep the sync's records."""
        for run_id in self.list_snapshot_runs(sync_id):
            self.remove_snapshot(sync_id, run_id)

    def list_snapshot_runs(self, sync_id: str) -> tuple[str, ...]:
        """Return the runs whose snapshot still exists, oldest first."""
        files = self._storage.list_names(file_paths.snapshot_folder(self._organization, sync_id))
        return tuple(sorted(file.removesuffix(_PARQUET) for file in files if file.endswith(_PARQUET)))

    def remove_snapshot(self, sync_id: str, run_id: str) -> int:
        """Remove a run's snapshot; return how many bytes were freed."""
        return self._remove_file(file_paths.snapshot_file(self._organization, sync_id, run_id))

    def remove_run(self, sync_id: str, run_id: str) -> int:
        """Remove all files that the run published; return how many bytes were freed.

        The metadata, which names the run's workspace, is removed last, because a run without metadata counts
        as a run of any project.
        """
        folder = self._run_folder(sync_id, run_id)
        names = sorted(self._storage.list_names(folder), key=lambda name: name == _METADATA)
        return sum(self._remove_file(f"{folder}/{name}") for name in names) + self._remove_file(folder)

    def remove_leftovers(self, *, before: datetime) -> list[int]:
        """Remove incomplete files that killed processes left before `before`; return the size of each in bytes."""
        removed_sizes = []
        for folder in file_paths.all_folders(self._organization):
            with self._explain_removal(folder):
                removed_sizes += self._storage.remove_leftovers(folder, before=before.timestamp())
        return removed_sizes

    def read_delivered_since(
        self, sync_id: str, run_id: str | None, *, upto: str | None = None, with_payload: bool = False
    ) -> Iterator[DeliveredRecord]:
        """Yield the succeeded and rejected records of the runs after `run_id`, or of all runs, oldest run first.

        Within a run, records aren't sorted: a key's newest record is the one with the highest table version.
        The records of deleted runs come from the file that write_delivered() wrote.
        """
        last_excluded, last_covered = run_id or "", ""
        with contextlib.suppress(FileNotFoundError), self._open_delivered(sync_id) as file:
            last_covered = read_newest_delivered_run(file)
        if last_excluded < last_covered:
            with self._open_delivered(sync_id) as file:
                delivered = read_delivered(file, with_payload=with_payload)
                yield from (record for record in delivered if record.run_id > last_excluded)
        for later_run in self.list_runs(sync_id):
            if later_run > max(last_excluded, last_covered) and (upto is None or later_run <= upto):
                yield from self._read_delivered_of_run(sync_id, later_run, with_payload=with_payload)

    def write_delivered(self, sync_id: str, records: Iterable[DeliveredRecord], *, last_run: str) -> None:
        """Write records with payloads to the file that replaces the records of all runs up to `last_run`."""
        with self._open_writer(file_paths.delivered_records_file(self._organization, sync_id)) as file:
            write_delivered(file, records, last_run=last_run)

    def _open_delivered(self, sync_id: str) -> contextlib.AbstractContextManager[BinaryIO]:
        remedy = "bring it back from a backup, or delete it, and its content is forgotten"
        name = file_paths.delivered_records_file(self._organization, sync_id)
        return self._open_reader(name, remedy, allowed_errors=(FileNotFoundError,))

    def list_runs(self, sync_id: str) -> tuple[str, ...]:
        """Return the ids of the sync's runs that have a folder, oldest first."""
        names = self._storage.list_names(file_paths.sync_folder(self._organization, sync_id))
        return tuple(filter(file_paths.is_folder_name, names))

    def list_syncs(self) -> tuple[str, ...]:
        """Return the ids of the syncs that have a folder, including syncs of other projects that use this store."""
        folder = file_paths.organization_folder(self._organization)
        return tuple(filter(file_paths.is_folder_name, self._storage.list_names(folder)))

    def read_metadata(self, sync_id: str, run_id: str) -> Mapping[str, Json] | None:
        """Return the fields of the run's metadata.json; None if it doesn't exist."""
        name = f"{self._run_folder(sync_id, run_id)}/{_METADATA}"
        remedy = "bring it back from a backup, or delete it"
        with contextlib.suppress(FileNotFoundError), self._open_reader(name, remedy, (FileNotFoundError,)) as file:
            fields = orjson.loads(file.read())
            if not isinstance(fields, dict):
                raise orjson.JSONDecodeError("it isn't an object", "", 0)
            return fields
        return None

    def is_own_run(self, metadata: Mapping[str, Json] | None) -> bool:
        """Return whether the run belongs to this project; a run without metadata counts as a run of this project."""
        return metadata is None or metadata.get("workspace_id") == self._workspace

    def list_record_files(self, sync_id: str, run_id: str) -> list[RecordFileId]:
        """Return the type and number of each record file that the run has now."""
        files = map(file_paths.parse_records_file, self._storage.list_names(self._run_folder(sync_id, run_id)))
        return sorted(file for file in files if file is not None)

    def open_records(
        self, sync_id: str, run_id: str, file: RecordFileId
    ) -> contextlib.AbstractContextManager[BinaryIO]:
        """Open one of the run's record files; raise FileNotFoundError if the file no longer exists."""
        name = f"{self._run_folder(sync_id, run_id)}/{file_paths.records_file(*file)}"
        remedy = "bring it back from a backup, or delete it"
        return self._open_reader(name, remedy, allowed_errors=(FileNotFoundError,))

    def count_records(self, sync_id: str, run_id: str, files: Iterable[RecordFileId]) -> int:
        """Return how many records these files contain; a file that no longer exists counts as empty."""
        rows = 0
        for file in files:
            with contextlib.suppress(FileNotFoundError), self.open_records(sync_id, run_id, file) as stream:
                rows += pq.ParquetFile(stream).metadata.num_rows
        return rows

    def read_invalid_rows(self, sync_id: str, *, since: str, upto: str) -> Iterator[tuple[int, str]]:
        """Yield the rowid and table id of each row that runs after `since`, up to `upto`, recorded as invalid."""
        for run_id in self.list_runs(sync_id):
            files = self.list_record_files(sync_id, run_id) if since < run_id <= upto else []
            for file in files:
                if file[0] is RecordFileType.INVALID:
                    with self.open_records(sync_id, run_id, file) as stream:
                        yield from parquet_files.read_rows(stream, INVALID_ROW_COLUMNS)

    def write_fact_tables(self, facts: Mapping[str, Sequence[FactRow]]) -> None:
        """Replace this workspace's rows in the organization's fact tables; keep the rows of other workspaces."""
        for table, rows in facts.items():
            name = file_paths.fact_table_file(self._organization, table)
            rows_by_workspace = {**self._read_fact_table(name, table), self._workspace: rows}
            with self._open_writer(name) as file:
                write_fact_table(file, table, rows_by_workspace)

    def _read_fact_table(self, name: str, table: str) -> Mapping[str, Sequence[FactRow]]:
        """Return a fact table's rows by workspace; an empty mapping if the file is missing or damaged.

        Other workspaces write their rows again at their next run.
        """
        raised_errors = (FileNotFoundError, *_DAMAGE_ERRORS)
        with (
            contextlib.suppress(*raised_errors),
            self._open_reader(name, "delete it: it is written again", raised_errors) as file,
        ):
            return read_fact_table(file, table)
        return {}

    def count_invalid(self, sync_id: str, run_id: str) -> int:
        """Return how many records of invalid rows a run has."""
        files = self.list_record_files(sync_id, run_id)
        return self.count_records(sync_id, run_id, [file for file in files if file[0] is RecordFileType.INVALID])

    def _read_delivered_of_run(self, sync_id: str, run_id: str, *, with_payload: bool) -> Iterator[DeliveredRecord]:
        columns = (*DELIVERED_COLUMNS, PAYLOAD_COLUMN) if with_payload else DELIVERED_COLUMNS
        folder = self._run_folder(sync_id, run_id)
        for batch_type, number in self.list_record_files(sync_id, run_id):
            if batch_type == RecordFileType.INVALID:
                continue
            name = f"{folder}/{file_paths.records_file(batch_type, number)}"
            with self._open_reader(name, "bring it back from a backup, or delete it to send its rows again") as file:
                for row in parquet_files.read_rows(file, columns):
                    yield DeliveredRecord(*row)

    @contextlib.contextmanager
    def _open_writer(self, name: str) -> Iterator[BinaryIO]:
        try:
            with self._storage.open_writer(name) as file:
                yield file
        except OSError as error:
            reason = error.strerror or error
            remedy = "make room there" if error.errno in _DISK_FULL_CODES else "check what is there and who may write"
            raise StateError(
                f"{self._storage.address(name)} can't be written ({reason}); {remedy}, and run again"
            ) from error

    def _remove_file(self, name: str) -> int:
        with self._explain_removal(name):
            return self._storage.remove_file(name)

    @contextlib.contextmanager
    def _explain_removal(self, name: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            reason = error.strerror or error
            raise StateError(
                f"{self._storage.address(name)} can't be removed ({reason}); check who may write there"
            ) from error

    @contextlib.contextmanager
    def _open_reader(
        self, name: str, remedy: str, allowed_errors: tuple[type[Exception], ...] = ()
    ) -> Iterator[BinaryIO]:
        try:
            with self._storage.open_reader(name) as file:
                if name.endswith(_PARQUET):
                    self._verify_digest(name, file)
                yield file
        except allowed_errors:
            raise
        except (OSError, pa.ArrowException, orjson.JSONDecodeError) as error:
            if state_error := disk_error(error, Path(self._storage.address(name))):
                raise state_error from error
            reason = str(error).strip()
            raise StateError(f"{self._storage.address(name)} can't be read ({reason}); {remedy}") from error

    def _verify_digest(self, name: str, file: BinaryIO) -> None:
        """Raise DigestError if the file is damaged.

        A bucket's record files are read one row group at a time, so a process verifies each of these files
        only once.
        """
        if self._is_local or not file_paths.parse_records_file(name.rpartition("/")[2]):
            parquet_files.verify_digest(file)
            return
        digest = parquet_files.read_digest(file)
        if self._verified_digests.get(name) != digest:
            parquet_files.verify_digest(file)
            self._verified_digests[name] = digest

    def _run_folder(self, sync_id: str, run_id: str) -> str:
        return file_paths.run_folder(self._organization, sync_id, run_id)
