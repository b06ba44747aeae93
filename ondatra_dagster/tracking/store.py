"""The tracking store: one place where every sync run's records, metadata and frontier lie.

It writes and finds files; what is in them belongs to the modules beside, when to write them to sync.
"""

import contextlib
import functools
from collections.abc import Iterable, Iterator
from typing import BinaryIO

import pyarrow as pa

from ondatra_dagster.delivery.frontier import Frontier
from ondatra_dagster.errors import StateError
from ondatra_dagster.tracking import addresses, parquet_files
from ondatra_dagster.tracking.addresses import BatchType, NumberedFile
from ondatra_dagster.tracking.facts import FACT_TABLES, Facts, write_fact_table
from ondatra_dagster.tracking.files import open_folder
from ondatra_dagster.tracking.frontier_file import read_frontier, write_frontier
from ondatra_dagster.tracking.metadata import RunMetadata, metadata_json
from ondatra_dagster.tracking.record import (
    DELIVERED_COLUMNS,
    PAYLOAD_COLUMN,
    REPETITIVE,
    SCHEMA,
    Delivered,
    SyncRecord,
    record_batches,
)


class TrackingStore:
    """The files of one organization. A process that dies in it leaves each file whole or not there."""

    def __init__(self, address: str, *, organization: str = "1", workspace: str = "1") -> None:
        self._files = open_folder(address)
        self._organization = organization
        self._workspace = workspace

    def run_address(self, sync_id: str, run_id: str) -> str:
        """Where a run's records are, for people and for other programs."""
        return self._files.address(self._run_folder(sync_id, run_id))

    def publish(
        self,
        sync_id: str,
        run_id: str,
        batch_type: BatchType,
        number: int,
        records: Iterable[SyncRecord],
    ) -> str:
        """Write one file of records and give its address.

        The same number again replaces the file: after a crash the same records give the same file.
        """
        name = f"{self._run_folder(sync_id, run_id)}/{addresses.records_file(batch_type, number)}"
        with self._files.writing(name) as file:
            batches = record_batches(records, sync_id=sync_id, run_id=run_id)
            parquet_files.write(file, SCHEMA, batches, repetitive=REPETITIVE)
        return self._files.address(name)

    def finish_run(self, sync_id: str, run_id: str, metadata: RunMetadata) -> None:
        """Leave the run's folder complete: its metadata, and a records_updated file even if that is empty.

        To be called when all that the run settled is published: an empty file would hide that it isn't.
        """
        if not any(batch == BatchType.UPDATED for batch, _ in self.record_files(sync_id, run_id)):
            self.publish(sync_id, run_id, BatchType.UPDATED, 0, ())
        self.write_metadata(sync_id, run_id, metadata)

    def write_metadata(self, sync_id: str, run_id: str, metadata: RunMetadata) -> None:
        """Write the run's metadata.json, in place of the one before."""
        text = metadata_json(
            metadata,
            organization=self._organization,
            workspace=self._workspace,
            sync_id=sync_id,
            run_id=run_id,
        )
        with self._files.writing(f"{self._run_folder(sync_id, run_id)}/metadata.json") as file:
            file.write(text)

    def write_frontier(self, frontier: Frontier) -> None:
        """Keep what a run leaves unsettled, in place of what it said of itself before."""
        name = addresses.frontier_file(self._organization, frontier.sync_id, frontier.run_id)
        with self._files.writing(name) as file:
            write_frontier(file, frontier)

    def newest_frontier(self, sync_id: str) -> Frontier | None:
        """The frontier of the newest run that left one; its units are read while one loops over them."""
        folder = addresses.frontier_folder(self._organization, sync_id)
        files = [file for file in self._files.names(folder) if file.endswith(".parquet")]
        if not files:
            return None
        name = f"{folder}/{max(files, key=lambda file: file.removesuffix('.parquet'))}"
        remedy = (
            "bring it back from a backup, or delete it to go on from the run before it and the records since"
        )
        return read_frontier(functools.partial(self._reading, name, remedy), self._files.address(name))

    def forget_frontiers(self, sync_id: str) -> None:
        """Let no run of the sync have left anything to go on from; its records stay."""
        folder = addresses.frontier_folder(self._organization, sync_id)
        for file in self._files.names(folder):
            self._files.remove(f"{folder}/{file}")

    def delivered_since(
        self, sync_id: str, run_id: str | None, *, with_payload: bool = False
    ) -> Iterator[Delivered]:
        """The succeeded and rejected records of the runs after that one, or of all runs, the oldest first.

        Within a run they have no order: a key's newest is the one of the highest table version.
        """
        for later in self.runs(sync_id):
            if run_id is None or later > run_id:
                yield from self._delivered_in(sync_id, later, with_payload=with_payload)

    def runs(self, sync_id: str) -> tuple[str, ...]:
        """The ids of the runs that have a folder, the oldest first."""
        return tuple(self._files.names(addresses.sync_folder(self._organization, sync_id)))

    def record_files(self, sync_id: str, run_id: str) -> list[NumberedFile]:
        """The run's files of records that are there now, by type and number."""
        found = map(addresses.batch_of, self._files.names(self._run_folder(sync_id, run_id)))
        return sorted(batch for batch in found if batch is not None)

    @contextlib.contextmanager
    def reading_records(self, sync_id: str, run_id: str, file: NumberedFile) -> Iterator[BinaryIO]:
        """One of these files; raises FileNotFoundError when it is there no more."""
        name = f"{self._run_folder(sync_id, run_id)}/{addresses.records_file(*file)}"
        remedy = "bring it back from a backup, or delete it"
        with self._reading(name, remedy, let_pass=(FileNotFoundError,)) as opened:
            yield opened

    def write_facts(self, facts: Facts) -> None:
        """Write the organization's fact tables anew."""
        for table in FACT_TABLES:
            with self._files.writing(addresses.fact_file(self._organization, table)) as file:
                write_fact_table(file, table, facts)

    def _delivered_in(self, sync_id: str, run_id: str, *, with_payload: bool) -> Iterator[Delivered]:
        columns = (*DELIVERED_COLUMNS, PAYLOAD_COLUMN) if with_payload else DELIVERED_COLUMNS
        folder = self._run_folder(sync_id, run_id)
        for batch_type, number in self.record_files(sync_id, run_id):
            if batch_type == BatchType.INVALID:
                continue
            name = f"{folder}/{addresses.records_file(batch_type, number)}"
            with self._reading(
                name, "bring it back from a backup, or delete it to send its rows again"
            ) as file:
                for row in parquet_files.read(file, columns):
                    yield Delivered(*row)

    @contextlib.contextmanager
    def _reading(
        self, name: str, remedy: str, *, let_pass: tuple[type[OSError], ...] = ()
    ) -> Iterator[BinaryIO]:
        try:
            with self._files.reading(name) as file:
                yield file
        except let_pass:
            raise
        except (OSError, pa.ArrowException) as error:
            reason = str(error).strip()
            raise StateError(f"{self._files.address(name)} can't be read ({reason}); {remedy}") from error

    def _run_folder(self, sync_id: str, run_id: str) -> str:
        return addresses.run_folder(self._organization, sync_id, run_id)
