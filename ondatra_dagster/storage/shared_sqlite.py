"""A SQLite file that several processes use, opened to read it once or for one transaction.

Which statements run is the business of the module that owns the tables.
"""

import contextlib
from collections.abc import Iterator
from pathlib import Path

from ondatra_dagster.storage.file_errors import explain_file_errors
from ondatra_dagster.storage.file_lock import FileLock
from ondatra_dagster.storage.sqlite_database import SqliteSchema, SqliteStore, has_tables, open_database, open_read_only

WAIT_SECONDS = 60


@contextlib.contextmanager
def open_existing_database(path: Path, schema: SqliteSchema) -> Iterator[SqliteStore | None]:
    """Open the file to read it; None without a file, or while another process is making its tables."""
    with explain_file_errors(path, schema.if_damaged):
        is_there = path.exists() or path.is_symlink()
    if not is_there:
        yield None
        return
    with open_read_only(path, schema) as store:
        yield store if has_tables(store, schema) else None


@contextlib.contextmanager
def open_transaction(path: Path, schema: SqliteSchema, *, purpose: str) -> Iterator[SqliteStore]:
    """Open the file, made if need be, for one transaction; other processes that write it wait for the lock.

    SQLite before 3.51.3 can damage a file that two connections write and checkpoint at the same time.
    """
    lock = FileLock(path.parent / "locks" / f"{path.name}.lock", purpose=purpose, wait_seconds=WAIT_SECONDS)
    with lock, open_database(path, schema) as store, store.write_transaction():
        yield store
