"""A SQLite file that several processes use, opened to read it once or for one transaction.

Which statements run is the business of the module that owns the tables.
"""

import contextlib
from collections.abc import Iterator
from pathlib import Path

from ondatra_dagster.store.database import Schema, Store, connect, is_made, read_only
from ondatra_dagster.store.file_errors import explained
from ondatra_dagster.store.lock import FileLock

WAIT_SECONDS = 60


@contextlib.contextmanager
def open_existing(path: Path, schema: Schema) -> Iterator[Store | None]:
    """Open the file to read it; None without a file, or while another process is making its tables."""
    with explained(path, schema.if_damaged):
        is_there = path.exists() or path.is_symlink()
    if not is_there:
        yield None
        return
    with read_only(path, schema) as store:
        yield store if is_made(store, schema) else None


@contextlib.contextmanager
def transaction(path: Path, schema: Schema, *, purpose: str) -> Iterator[Store]:
    """Open the file, made if need be, for one transaction; other processes that write it wait for the lock.

    SQLite before 3.51.3 can damage a file that two connections write and checkpoint at the same time.
    """
    lock = FileLock(path.parent / "locks" / f"{path.name}.lock", purpose=purpose, wait_seconds=WAIT_SECONDS)
    with lock, connect(path, schema) as store, store.immediate():
        yield store
