"""A place for each dry run: where it is, and that nothing of it stays. What is put there isn't told here.

It goes when its run ends. What a killed one leaves goes when the next begins, once the process and the JVM
that made it are gone.
"""

import contextlib
import dataclasses
import secrets
import shutil
from collections.abc import Iterator
from pathlib import Path

from ondatra_dagster.errors import BusyError
from ondatra_dagster.planning.s3_objects import remove_below
from ondatra_dagster.project.settings.addresses import Address, local_path
from ondatra_dagster.project.settings.settings import Scratch, Settings
from ondatra_dagster.store.file_errors import explained
from ondatra_dagster.store.lock import FileLock
from ondatra_dagster.store.private_folder import OWNERS_ONLY, keep_private, open_private

FOLDER = "dry"
BESIDE_THE_TABLES = ".ondatra_dry"  # where other machines have to see it, too
ELSEWHERE = "tables_at"  # a file in the folder: the address of tables that aren't in it


@contextlib.contextmanager
def open_scratch(settings: Settings) -> Iterator[Settings]:
    """The settings of a dry run: the same, with a scratch that is there until the `with` ends."""
    keep_private(settings.state)
    remove_leftovers(settings)
    name = secrets.token_hex(8)
    folder = settings.state / FOLDER / name
    with FileLock(_lock(settings, name), purpose="dry run"):
        try:
            tables = _tables(settings, folder)
            with explained(folder):
                folder.parent.mkdir(mode=OWNERS_ONLY, exist_ok=True)
                folder.mkdir(mode=OWNERS_ONLY)
                if local_path(tables) != folder / "tables":
                    with open_private(folder / ELSEWHERE, "w", "utf-8") as file:
                        file.write(tables)
            yield dataclasses.replace(settings, scratch=Scratch(folder=folder, below=tables))
        finally:
            _remove(settings, folder)


def remove_leftovers(settings: Settings) -> None:
    """What dry runs have left behind that were killed; those that go on are left alone."""
    above = settings.state / FOLDER
    for folder in above.iterdir() if above.is_dir() else ():
        with contextlib.suppress(BusyError), contextlib.ExitStack() as held:
            held.enter_context(FileLock(_lock(settings, folder.name), purpose="looks after dead dry runs"))
            for java in folder.glob("locks/sessions/*.jvm"):  # it writes on for seconds
                held.enter_context(FileLock(java, purpose="looks after dead dry runs"))
            _remove(settings, folder)


def _tables(settings: Settings, folder: Path) -> Address:
    """Where the run's tables are: here, or where all see it who work on them."""
    spark = settings.spark
    is_here = local_path(settings.warehouse) is not None
    if is_here and not spark.remote and spark.master.startswith("local"):
        return Address(str(folder / "tables"), settings.s3)
    return Address(settings.warehouse, settings.s3).below(BESIDE_THE_TABLES, folder.name)


def _remove(settings: Settings, folder: Path) -> None:
    """The tables first: as long as the folder is there, somebody knows of them."""
    with contextlib.suppress(FileNotFoundError):
        _remove_tables(Address((folder / ELSEWHERE).read_text(), settings.s3))
    shutil.rmtree(folder, ignore_errors=True)
    _lock(settings, folder.name).unlink(missing_ok=True)
    with contextlib.suppress(OSError):  # another one's is in there
        folder.parent.rmdir()


def _remove_tables(tables: Address) -> None:
    path = local_path(tables)
    if path is None:
        remove_below(tables, tables.s3)
        return
    shutil.rmtree(path, ignore_errors=True)
    with contextlib.suppress(OSError):
        path.parent.rmdir()


def _lock(settings: Settings, name: str) -> Path:
    return settings.state / "locks" / FOLDER / f"{name}.lock"
