"""The temporary folder of a dry run.

It is deleted when its run ends. The folder of a killed run is deleted when the next dry run begins, once the
process and the JVM that made it are gone.
"""

import contextlib
import dataclasses
import secrets
import shutil
from collections.abc import Iterator
from pathlib import Path

from ondatra_dagster.errors import BusyError
from ondatra_dagster.project.settings.settings import DryRunFolder, Settings
from ondatra_dagster.project.settings.storage_access import StorageAddress, local_path
from ondatra_dagster.storage.file_errors import explain_file_errors
from ondatra_dagster.storage.file_lock import FileLock
from ondatra_dagster.storage.private_files import FOLDER_MODE, make_state_folder_private, open_private_file
from ondatra_dagster.storage.s3 import remove_folder_contents

DRY_RUNS_FOLDER = "dry"
WAREHOUSE_SUBFOLDER = ".ondatra_dry"  # where other machines have to see it, too
TABLES_ADDRESS_FILE = "tables_at"  # a file in the folder: the address of tables that aren't in it


@contextlib.contextmanager
def open_dry_run_folder(settings: Settings) -> Iterator[Settings]:
    """The settings of a dry run: the same, with a scratch that is there until the `with` ends."""
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
    """What dry runs have left behind that were killed; those that go on are left alone."""
    above = settings.state / DRY_RUNS_FOLDER
    for folder in above.iterdir() if above.is_dir() else ():
        with contextlib.suppress(BusyError), contextlib.ExitStack() as held:
            held.enter_context(FileLock(_lock_path(settings, folder.name), purpose="looks after dead dry runs"))
            for java in folder.glob("locks/sessions/*.jvm"):  # it writes on for seconds
                held.enter_context(FileLock(java, purpose="looks after dead dry runs"))
            _remove_dry_run(settings, folder)


def _choose_tables_address(settings: Settings, folder: Path) -> StorageAddress:
    """Where the run's tables are: here, or where all see it who work on them."""
    spark = settings.spark
    is_here = local_path(settings.warehouse) is not None
    if is_here and not spark.remote and spark.master.startswith("local"):
        return StorageAddress(str(folder / "tables"), settings.s3)
    return StorageAddress(settings.warehouse, settings.s3).join_names(WAREHOUSE_SUBFOLDER, folder.name)


def _remove_dry_run(settings: Settings, folder: Path) -> None:
    """The tables first: as long as the folder is there, somebody knows of them."""
    with contextlib.suppress(FileNotFoundError):
        _remove_tables(StorageAddress((folder / TABLES_ADDRESS_FILE).read_text(), settings.s3))
    shutil.rmtree(folder, ignore_errors=True)
    _lock_path(settings, folder.name).unlink(missing_ok=True)
    with contextlib.suppress(OSError):  # another one's is in there
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
