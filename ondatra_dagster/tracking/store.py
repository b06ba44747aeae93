"""The tracking store: one place where every sync run's records, metadata and frontier lie.

It writes and finds files; what is in them belongs to the modules beside, when to write them to sync.
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

from ondatra_dagster.changes import Json
from ondatra_dagster.delivery.frontier import Frontier
from ondatra_dagster.errors import StateError
from ondatra_dagster.project.settings.addresses import local_path
from ondatra_dagster.store.file_errors import disk_error
from ondatra_dagster.store.state_id import UNKNOWN, StateId
from ondatra_dagster.tracking import addresses, file_digest, parquet_files
from ondatra_dagster.tracking.addresses import BatchType, NumberedFile
from ondatra_dagster.tracking.facts import FACT_TABLES, FactRow, Facts, read_fact_table, write_fact_table
from ondatra_dagster.tracking.files import Folder, Forgetful, open_folder
from ondatra_dagster.tracking.frontier_file import read_frontier, write_frontier
from ondatra_dagster.tracking.metadata import RunMetadata, metadata_json
from ondatra_dagster.tracking.record import (
    ASIDE_COLUMNS,
    DELIVERED_COLUMNS,
    PAYLOAD_COLUMN,
    REPETITIVE,
    SCHEMA,
    STATUS_COLUMN,
    Delivered,
    SyncRecord,
    record_batches,
)
from ondatra_dagster.tracking.run_mark import RunMark, dump_mark, load_mark
from ondatra_dagster.tracking.sent_file import read_sent, sent_through, write_sent

_PARQUET = ".parquet"
_METADATA = "metadata.json"
_FULL = (errno.ENOSPC, errno.EDQUOT)
_BROKEN = (pa.ArrowInvalid, orjson.JSONDecodeError, KeyError)  # a file that isn't what it is called


class TrackingStore:
    """The files of one organization. A process that dies in it leaves each file whole or not there."""

    def __init__(
        self,
        address: str,
        *,
        organization: str = "1",
        workspace: str = "1",
        state: Callable[[], StateId] = lambda: UNKNOWN,
    ) -> None:
        self._address = address
        self._read_state = state
        self._files: Folder = open_folder(address)
        self._organization = organization
        self._workspace = workspace
        self._is_local = local_path(address) is not None
        self._verified: dict[str, tuple[int, bytes]] = {}  # files of records elsewhere, by name

    @functools.cached_property
    def state(self) -> StateId:
        """The state folder from which this store is written."""
        return self._read_state()

    def left_alone(self, state: StateId = UNKNOWN) -> Self:
        """The same store for a dry run from this state folder: all that it writes is forgotten at once."""
        other = copy.copy(self)
        other.__dict__["state"] = state  # as it is known by now: a dry run names no folder
        other._files = Forgetful(open_folder(self._address))  # noqa: SLF001 - of the same class
        return other

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
        with self._writing(name) as file:
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
            state_id=self.state.id,
        )
        with self._writing(f"{self._run_folder(sync_id, run_id)}/{_METADATA}") as file:
            file.write(text)

    def write_frontier(self, frontier: Frontier) -> None:
        """Keep what a run leaves unsettled, in place of what it said of itself before."""
        name = addresses.frontier_file(self._organization, frontier.sync_id, frontier.run_id)
        with self._writing(name) as file:
            write_frontier(file, dataclasses.replace(frontier, state_id=self.state.id))

    def write_mark(self, sync_id: str, mark: RunMark) -> None:
        """Leave the mark of a run in place of the one before."""
        with self._writing(addresses.mark_file(self._organization, sync_id)) as file:
            file.write(dump_mark(mark))

    def read_mark(self, sync_id: str) -> RunMark | None:
        """Return the mark of the newest run; None when none has left one."""
        name = addresses.mark_file(self._organization, sync_id)
        remedy = "delete it: the next run writes it again"
        try:
            with self._reading(name, remedy, let_pass=(FileNotFoundError,)) as file:
                return load_mark(file.read())
        except FileNotFoundError:
            return None

    def newest_frontier(self, sync_id: str) -> Frontier | None:
        """The frontier of the newest run that left one; its units are read while one loops over them."""
        runs = self.frontier_runs(sync_id)
        if not runs:
            return None
        name = addresses.frontier_file(self._organization, sync_id, runs[-1])
        remedy = (
            "bring it back from a backup, or delete it to go on from the run before it and the records since"
        )
        return read_frontier(functools.partial(self._reading, name, remedy), self._files.address(name))

    def forget_frontiers(self, sync_id: str) -> None:
        """Let no run of the sync have left anything to go on from; its records stay."""
        for run_id in self.frontier_runs(sync_id):
            self.remove_frontier(sync_id, run_id)

    def frontier_runs(self, sync_id: str) -> tuple[str, ...]:
        """The runs that left a frontier which is still there, the oldest first."""
        files = self._files.names(addresses.frontier_folder(self._organization, sync_id))
        return tuple(sorted(file.removesuffix(_PARQUET) for file in files if file.endswith(_PARQUET)))

    def remove_frontier(self, sync_id: str, run_id: str) -> int:
        """Let what that run left be forgotten; how many bytes that frees."""
        return self._remove(addresses.frontier_file(self._organization, sync_id, run_id))

    def remove_run(self, sync_id: str, run_id: str) -> int:
        """Remove all that the run published; how many bytes that frees.

        What says whose run it is goes last: cut off in between, it would count as anybody's.
        """
        folder = self._run_folder(sync_id, run_id)
        names = sorted(self._files.names(folder), key=lambda name: name == _METADATA)
        return sum(self._remove(f"{folder}/{name}") for name in names) + self._remove(folder)

    def sweep(self, *, before: datetime) -> list[int]:
        """Take away what killed processes left half written before then; the bytes of each file."""
        swept = []
        for folder in addresses.all_folders(self._organization):
            with self._removing(folder):
                swept += self._files.sweep(folder, before=before.timestamp())
        return swept

    def delivered_since(
        self, sync_id: str, run_id: str | None, *, upto: str | None = None, with_payload: bool = False
    ) -> Iterator[Delivered]:
        """The succeeded and rejected records of the runs after that one, or of all runs, the oldest first.

        Within a run they have no order: a key's newest is the one of the highest table version. Of runs that
        are pruned there is what `keep_sent` was given.
        """
        after, through = run_id or "", self._sent_through(sync_id)
        if after < through:
            with self._reading_sent(sync_id) as file:
                ends = read_sent(file, with_payload=with_payload)
                yield from (end for end in ends if end.run_id > after)
        for later in self.runs(sync_id):
            if later > max(after, through) and (upto is None or later <= upto):
                yield from self._delivered_in(sync_id, later, with_payload=with_payload)

    def keep_sent(self, sync_id: str, ends: Iterable[Delivered], *, through: str) -> None:
        """Keep these records, with their payloads, in place of all that the runs up to that one say."""
        with self._writing(addresses.sent_file(self._organization, sync_id)) as file:
            write_sent(file, ends, through=through)

    def _sent_through(self, sync_id: str) -> str:
        """The newest run that `keep_sent` was told of; sorts before all when there is none."""
        try:
            with self._reading_sent(sync_id) as file:
                return sent_through(file)
        except FileNotFoundError:
            return ""

    def _reading_sent(self, sync_id: str) -> contextlib.AbstractContextManager[BinaryIO]:
        remedy = "bring it back from a backup, or delete it to let what it says be forgotten"
        name = addresses.sent_file(self._organization, sync_id)
        return self._reading(name, remedy, let_pass=(FileNotFoundError,))

    def runs(self, sync_id: str) -> tuple[str, ...]:
        """The ids of the runs that have a folder, the oldest first."""
        names = self._files.names(addresses.sync_folder(self._organization, sync_id))
        return tuple(filter(addresses.is_name, names))

    def syncs(self) -> tuple[str, ...]:
        """The ids of the syncs that have left anything, those of other projects here too."""
        folder = addresses.organization_folder(self._organization)
        return tuple(filter(addresses.is_name, self._files.names(folder)))

    def metadata(self, sync_id: str, run_id: str) -> Mapping[str, Json] | None:
        """What the run's metadata.json says; None when there is none."""
        name = f"{self._run_folder(sync_id, run_id)}/{_METADATA}"
        remedy = "bring it back from a backup, or delete it"
        try:
            with self._reading(name, remedy, let_pass=(FileNotFoundError,)) as file:
                fields = orjson.loads(file.read())
                if not isinstance(fields, dict):
                    raise orjson.JSONDecodeError("it isn't an object", "", 0)
                return fields
        except FileNotFoundError:
            return None

    def is_ours(self, metadata: Mapping[str, Json] | None) -> bool:
        """Whether a run is one of this project's, and not of another one that keeps its records here too."""
        return metadata is None or metadata.get("workspace_id") == self._workspace

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

    def count_records(self, sync_id: str, run_id: str, files: Iterable[NumberedFile]) -> int:
        """How many records are in these files; one that is there no more has none."""
        return sum(self._count_in(sync_id, run_id, file) for file in files)

    def _count_in(self, sync_id: str, run_id: str, file: NumberedFile) -> int:
        with contextlib.suppress(FileNotFoundError), self.reading_records(sync_id, run_id, file) as opened:
            return parquet_files.count(opened)
        return 0

    def set_aside_in(self, sync_id: str, *, since: str, upto: str) -> Iterator[tuple[int, str]]:
        """The rows that the runs after one and up to another recorded as set aside, by rowid and table id."""
        for run_id in self.runs(sync_id):
            files = self.record_files(sync_id, run_id) if since < run_id <= upto else []
            for file in files:
                if file[0] is BatchType.INVALID:
                    with self.reading_records(sync_id, run_id, file) as opened:
                        yield from parquet_files.read(opened, ASIDE_COLUMNS)

    def write_facts(self, facts: Facts) -> None:
        """Write this workspace's rows of the organization's fact tables anew; those of others stay."""
        for table in FACT_TABLES:
            name = addresses.fact_file(self._organization, table)
            by_workspace = {**self._facts_there(name, table), self._workspace: getattr(facts, table)}
            with self._writing(name) as file:
                write_fact_table(file, table, by_workspace)

    def _facts_there(self, name: str, table: str) -> Mapping[str, Sequence[FactRow]]:
        """What a file that is broken says is gone: others write their rows again when they next run."""
        try:
            remedy = "delete it: it is written anew"
            with self._reading(name, remedy, let_pass=(FileNotFoundError, *_BROKEN)) as file:
                return read_fact_table(file, table)
        except (FileNotFoundError, *_BROKEN):
            return {}

    def count_invalid(self, sync_id: str, run_id: str) -> int:
        """Count the invalid rows that a run has records of."""
        rows = 0
        for file in self.record_files(sync_id, run_id):
            if file[0] is BatchType.INVALID:
                with self.reading_records(sync_id, run_id, file) as opened:
                    rows += sum(1 for _ in parquet_files.read(opened, STATUS_COLUMN))
        return rows

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
    def _writing(self, name: str) -> Iterator[BinaryIO]:
        try:
            with self._files.writing(name) as file:
                yield file
        except OSError as error:
            reason = error.strerror or error
            remedy = "make room there" if error.errno in _FULL else "see what is there and who may write"
            raise StateError(
                f"{self._files.address(name)} can't be written ({reason}); {remedy}, and run again"
            ) from error

    def _remove(self, name: str) -> int:
        with self._removing(name):
            return self._files.remove(name)

    @contextlib.contextmanager
    def _removing(self, name: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            reason = error.strerror or error
            raise StateError(
                f"{self._files.address(name)} can't be removed ({reason}); see who may write there"
            ) from error

    @contextlib.contextmanager
    def _reading(
        self, name: str, remedy: str, *, let_pass: tuple[type[Exception], ...] = ()
    ) -> Iterator[BinaryIO]:
        try:
            with self._files.reading(name) as file:
                if name.endswith(_PARQUET):
                    self._verify(name, file)
                yield file
        except let_pass:
            raise
        except (OSError, pa.ArrowException, orjson.JSONDecodeError) as error:
            if fault := disk_error(error, Path(self._files.address(name))):
                raise fault from error
            reason = str(error).strip()
            raise StateError(f"{self._files.address(name)} can't be read ({reason}); {remedy}") from error

    def _verify(self, name: str, file: BinaryIO) -> None:
        """Raise DigestError for a damaged file.

        A bucket's records are searched a row group at a time: each file is verified once in a process.
        """
        if self._is_local or not addresses.batch_of(name.rpartition("/")[2]):
            file_digest.verify(file)
            return
        digest = file_digest.identify(file)
        if self._verified.get(name) != digest:
            file_digest.verify(file)
            self._verified[name] = digest

    def _run_folder(self, sync_id: str, run_id: str) -> str:
        return addresses.run_folder(self._organization, sync_id, run_id)
