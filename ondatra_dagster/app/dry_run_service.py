"""The run service of a dry run: it plans, computes and enqueues like a real run, but on clones and copies.

A dry run executes the same code. Only its tables and queues are elsewhere, in a temporary folder that is
deleted when the run ends. The folder of a killed dry run is deleted when the next dry run begins, if its
process and its JVM are gone.
"""

import contextlib
import dataclasses
import secrets
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

from ondatra_dagster import interruption
from ondatra_dagster.app import push_and_check_sync
from ondatra_dagster.app.compute_write_and_read_tables import CloningTables
from ondatra_dagster.app.model_and_sync_steps import ComputedModel, RunService
from ondatra_dagster.app.run_events import ModelResult, RunProgress, SyncResult
from ondatra_dagster.app.workspace import Workspace
from ondatra_dagster.collector.event_store import event_store_path
from ondatra_dagster.deltalog.log_reader import TableState, read_table_state
from ondatra_dagster.errors import BusyError
from ondatra_dagster.planning.find_table_and_columns import INVALID_TABLE_SUFFIX, warehouse_table_path
from ondatra_dagster.planning.input_versions import format_table_version
from ondatra_dagster.planning.plan import NO_VERSION
from ondatra_dagster.project.model import Model
from ondatra_dagster.project.settings.read_settings_and_defaults import DryRunFolder, Settings
from ondatra_dagster.project.settings.storage_access import StorageAddress, local_path
from ondatra_dagster.storage import sqlite_database
from ondatra_dagster.storage.file_errors import explain_file_errors
from ondatra_dagster.storage.file_lock import FileLock
from ondatra_dagster.storage.private_files import FOLDER_MODE, make_state_folder_private, open_private_file
from ondatra_dagster.storage.s3_filesystem_and_listing import remove_folder_contents
from ondatra_dagster.storage.state_folder_id import UNKNOWN_STATE_ID, read_state_id
from ondatra_dagster.sync.run_context import Feed, Ports, RunOptions, SourceState
from ondatra_dagster.sync.send_guards import find_hold_reason, pause_sync
from ondatra_dagster.sync.sync_definition import Sync
from ondatra_dagster.sync.sync_run import dry_run_sync
from ondatra_dagster.sync.whole_table_unit_and_clone_feeds import CloneFeed
from ondatra_dagster.warehouse.model_write_request import ModelWrite
from ondatra_dagster.warehouse.result_of_write_and_checks import ModelWriteResult


@contextlib.contextmanager
def open_dry_workspace(workspace: Workspace) -> Iterator[Workspace]:
    """Yield the workspace of a dry run. Its queues are copies, and its tables may be replaced by clones."""
    with open_dry_run_folder(workspace.settings) as settings:
        assert settings.dry_run_folder  # noqa: S101 - for the type checker
        folder = settings.dry_run_folder.folder
        project = dataclasses.replace(workspace.project, settings=settings)
        syncs = {name: dataclasses.replace(sync, state_folder=folder) for name, sync in workspace.syncs.items()}
        for name, sync in workspace.syncs.items():
            _copy_queue(sync, syncs[name])
        if (events := event_store_path(workspace.settings)).exists():
            sqlite_database.copy_database(events, event_store_path(settings))
        yield dataclasses.replace(workspace, project=project, syncs=syncs)


def _copy_queue(sync: Sync, dry_sync: Sync) -> None:
    if sync.queue_file.exists():
        sqlite_database.copy_database(sync.queue_file, dry_sync.queue_file)
    if sync.pause_file.exists():
        pause_sync(dry_sync)


class DryRunService(RunService):
    """The run service of one dry run."""

    is_dry = True

    def __init__(
        self,
        workspace: Workspace,
        dry_workspace: Workspace,
        tables: CloningTables,
        *,
        progress: RunProgress | None = None,
    ) -> None:
        self._dry_tables = DryRunTables(tables, dry_workspace.settings)
        super().__init__(workspace, self._dry_tables, progress=progress)
        self.current_state = dry_workspace

    def _store_unchanged_run(self, model: Model, write_result: ModelWriteResult) -> None:
        """Store nothing, because the next real run has to compute the model itself."""

    def _delete_flushed_events(self, model: Model) -> None:
        """Delete nothing, because the events wait for a real run."""

    def _model_result(self, computed_model: ComputedModel, write_result: ModelWriteResult) -> ModelResult:
        result = super()._model_result(computed_model, write_result)
        return dataclasses.replace(result, version=self._dry_tables.version(computed_model.step.model, write_result))

    @interruption.raise_on_signal()
    def push(self, sync: Sync, options: RunOptions) -> SyncResult:
        """Return the changes that a run would send to the sync's destination now; send nothing."""
        self.progress.on_sync_start(sync, lambda: "")
        result = self._dry_run_sync(sync, options)
        self.progress.on_sync_end(result)
        return result

    def finish_run(self) -> None:
        """Do nothing, because a dry run sends no alerts and appends nothing to the sync log."""

    def records_address(self, result: SyncResult) -> str | None:
        """Return None, because a dry run leaves no records."""
        return None

    def _dry_run_sync(self, sync: Sync, options: RunOptions) -> SyncResult:
        if self.workspace.settings.sinks == "off":
            return push_and_check_sync.push_sync(self.workspace, sync, self.tables.feed(sync), options)
        forecast = dry_run_sync(self.current_state.syncs[sync.id], self._dry_run_ports(sync), options)
        return push_and_check_sync.dry_run_result(sync, forecast)

    def _dry_run_ports(self, sync: Sync) -> Ports:
        """Return the ports of a sync run, with replacements for the ports that would send or store something."""
        own = self.current_state.syncs[sync.id]
        return dataclasses.replace(
            push_and_check_sync.build_ports(self.current_state, own, self.tables.feed(sync)),
            read_source=lambda: (
                self._dry_tables.source(sync) or push_and_check_sync.read_source_state(self.current_state, own)
            ),
            open_push=_refuse_to_push,
            record_store=self.workspace.tracking.for_dry_run(
                read_state_id(self.workspace.settings.state) or UNKNOWN_STATE_ID
            ),
            # the user pauses the real sync, not the copy
            find_hold_reason=lambda: find_hold_reason(sync, self.workspace.settings),
        )


def _refuse_to_push() -> NoReturn:
    raise RuntimeError("a dry run has no API to send to")


class ModelClone(NamedTuple):
    """The clone of a model's table in a dry run. Without an original, the dry run creates the model's first table."""

    path: StorageAddress
    original: TableState | None
    original_invalid: TableState | None


class DryRunTables:
    """The tables of a dry run. A table is cloned before its model is computed."""

    def __init__(self, tables: CloningTables, settings: Settings) -> None:
        if settings.dry_run_folder is None:
            raise ValueError("a dry run needs settings with a dry-run folder")
        self._tables = tables
        self._settings = settings
        self._scratch: DryRunFolder = settings.dry_run_folder
        self._clones: dict[str, ModelClone] = {}
        self.start_early, self.activity = tables.start_early, tables.activity
        self.sync_log, self.open_for_maintenance = tables.sync_log, tables.open_for_maintenance  # the real tables

    @property
    def is_open(self) -> bool:
        return self._tables.is_open

    def compute(self, model: Model, versions: Mapping[str, str], *, is_full: bool = False) -> Any:
        """Clone the model's current table, then return the result of the model's query."""
        self._clone_table(model.id)
        return self._tables.compute(model, versions, is_full=is_full)

    def write(self, write: ModelWrite) -> ModelWriteResult:
        """Write the rows to the clone. If the original changed after the plan, the query is evaluated again."""
        clone = self._clones[write.model.id]
        is_as_planned = write.planned_version == (format_table_version(clone.original) if clone.original else "")
        written = self._tables.write(dataclasses.replace(write, planned_version=None if is_as_planned else ""))
        now = read_table_state(clone.path)
        if clone.original and now and not now.log_version:
            del self._scratch.tables[write.model.id]  # nothing was written: readers use the real table, at its version
        return written

    def _clone_table(self, model_id: str) -> None:
        real = warehouse_table_path(self._settings, model_id)
        path = StorageAddress(self._scratch.tables_address, real.s3).join_names(*model_id.split("."))
        clone = ModelClone(path, read_table_state(real), read_table_state(real + INVALID_TABLE_SUFFIX))
        if clone.original:
            self._tables.clone(real, clone.original, path)
        if clone.original_invalid:
            self._tables.clone(real + INVALID_TABLE_SUFFIX, clone.original_invalid, path + INVALID_TABLE_SUFFIX)
        self._clones[model_id] = clone
        self._scratch.tables[model_id] = path

    def version(self, model: Model, write_result: ModelWriteResult) -> int:
        """Return the version that the real table would have after this write."""
        return _version_with_clone(self._clones[model.id].original, write_result.version)

    def feed(self, sync: Sync) -> Feed:
        """Return the changes of the real table, followed by the changes of its clone."""
        real = self._tables.feed_at(sync, warehouse_table_path(self._settings, sync.model.id))
        clone = self._clones.get(sync.model.id)
        if clone is None:
            return real
        later = self._tables.feed_at(sync, clone.path)
        if clone.original is None:
            return later
        invalid_table = clone.original_invalid
        return CloneFeed(
            original_feed=real,
            clone_feed=later,
            clone_start_version=clone.original.log_version,
            clone_start_invalid_version=invalid_table.log_version if invalid_table else None,
        )

    def source(self, sync: Sync) -> SourceState | None:
        """Return the state of the model's table after a run; None if the dry run didn't compute the model."""
        clone = self._clones.get(sync.model.id)
        now = read_table_state(clone.path) if clone else None
        if clone is None or now is None:
            return None
        invalid_table = read_table_state(clone.path + INVALID_TABLE_SUFFIX)
        return SourceState(
            table_id=clone.original.table_id if clone.original else now.table_id,
            version=_version_with_clone(clone.original, now.version),
            invalid_version=_version_with_clone(clone.original_invalid, invalid_table.version)
            if invalid_table
            else NO_VERSION,
            invalid_count=(invalid_table.commit_metadata.rows or 0)
            if invalid_table and invalid_table.commit_metadata
            else 0,
            columns=now.columns,
            row_count=now.commit_metadata.rows if now.commit_metadata else None,
        )


def _version_with_clone(original: TableState | None, version: int) -> int:
    """Return the original's version plus the clone's commits; without commits, the original's own version."""
    if original is None:
        return version
    return original.log_version + version if version else original.version


DRY_RUNS_FOLDER = "dry"
REMOVAL_PURPOSE = "removes the folders of ended dry runs"
WAREHOUSE_SUBFOLDER = ".ondatra_dry"  # the folder in the warehouse for dry runs whose tables other machines must see
TABLES_ADDRESS_FILE = "tables_at"  # a file with the tables' address, if the tables aren't in the dry run's folder


@contextlib.contextmanager
def open_dry_run_folder(settings: Settings) -> Iterator[Settings]:
    """Yield the settings of a dry run, with a temporary folder that is deleted when the `with` block ends."""
    make_state_folder_private(settings.state)
    remove_dead_dry_run_folders(settings)
    name = secrets.token_hex(8)
    folder = settings.state / DRY_RUNS_FOLDER / name
    with FileLock(_lock_path(settings, name), purpose="dry run"):
        try:
            tables = _choose_tables_address(settings, folder)
            with explain_file_errors(folder):
                folder.parent.mkdir(mode=FOLDER_MODE, exist_ok=True)
                folder.mkdir(mode=FOLDER_MODE)
                if local_path(tables) != folder / "tables":
                    with open_private_file(folder / TABLES_ADDRESS_FILE, "w", "utf-8") as file:
                        file.write(tables)
            yield dataclasses.replace(settings, dry_run_folder=DryRunFolder(folder=folder, tables_address=tables))
        finally:
            _remove_dry_run(settings, folder)


def remove_dead_dry_run_folders(settings: Settings) -> None:
    """Remove the folders of killed dry runs; keep the folders of dry runs in progress."""
    above = settings.state / DRY_RUNS_FOLDER
    for folder in above.iterdir() if above.is_dir() else ():
        with contextlib.suppress(BusyError), contextlib.ExitStack() as locks:
            locks.enter_context(FileLock(_lock_path(settings, folder.name), purpose=REMOVAL_PURPOSE))
            for java in folder.glob("locks/sessions/*.jvm"):  # a killed run's JVM still writes for some seconds
                locks.enter_context(FileLock(java, purpose=REMOVAL_PURPOSE))
            _remove_dry_run(settings, folder)


def _choose_tables_address(settings: Settings, folder: Path) -> StorageAddress:
    """Return the address of the dry run's tables: its folder, or the warehouse if other machines must see them."""
    spark = settings.spark
    is_here = local_path(settings.warehouse) is not None
    if is_here and not spark.remote and spark.master.startswith("local"):
        return StorageAddress(str(folder / "tables"), settings.s3)
    return StorageAddress(settings.warehouse, settings.s3).join_names(WAREHOUSE_SUBFOLDER, folder.name)


def _remove_dry_run(settings: Settings, folder: Path) -> None:
    """Remove the tables, then the folder. While the folder exists, a later dry run can find the tables' address."""
    with contextlib.suppress(FileNotFoundError):
        _remove_tables(StorageAddress((folder / TABLES_ADDRESS_FILE).read_text(), settings.s3))
    shutil.rmtree(folder, ignore_errors=True)
    _lock_path(settings, folder.name).unlink(missing_ok=True)
    with contextlib.suppress(OSError):  # the parent folder contains another dry run's folder
        folder.parent.rmdir()


def _remove_tables(tables: StorageAddress) -> None:
    path = local_path(tables)
    if path is None:
        remove_folder_contents(tables, tables.s3)
        return
    shutil.rmtree(path, ignore_errors=True)
    with contextlib.suppress(OSError):
        path.parent.rmdir()


def _lock_path(settings: Settings, name: str) -> Path:
    return settings.state / "locks" / DRY_RUNS_FOLDER / f"{name}.lock"
