"""The SQLite files that several processes use: a history, a cache, alerts, and queues that are read."""

import threading
from pathlib import Path

from ondatra_dagster.storage.file_lock import FileLock
from ondatra_dagster.storage.sqlite_database import (
    SqliteSchema,
    open_database,
    open_existing_database,
    open_transaction,
)

SCHEMA = SqliteSchema("test", (("one", "create table t (x)"),))


def test_a_missing_file_is_not_created(tmp_path: Path) -> None:
    """`ondatra status` writes nothing."""
    with open_existing_database(tmp_path / "a.sqlite", SCHEMA) as store:
        assert store is None
    assert [] == list(tmp_path.iterdir())


def test_a_file_without_tables_counts_as_missing(tmp_path: Path) -> None:
    """Another process has created the file but not its tables yet, or was killed in between."""
    path = tmp_path / "a.sqlite"
    open_database(path, SqliteSchema("test", ())).close()
    with open_existing_database(path, SCHEMA) as store:
        assert store is None
    with open_transaction(path, SCHEMA, purpose="tests") as store:
        store.execute("insert into t values (1)")
    with open_existing_database(path, SCHEMA) as store:
        assert store is not None
        assert [(1,)] == store.fetch_rows("select x from t")


def test_a_transaction_waits_for_another_process(tmp_path: Path) -> None:
    """Two processes that write at the same time could damage the file."""
    path = tmp_path / "a.sqlite"
    lock = FileLock(tmp_path / "locks" / "a.sqlite.lock", purpose="tests")
    waits = threading.Event()

    def write() -> None:
        waits.set()
        with open_transaction(path, SCHEMA, purpose="tests") as store:
            store.execute("insert into t values (2)")

    other = threading.Thread(target=write)
    with lock:
        other.start()
        assert waits.wait(10)
        with open_database(path, SCHEMA) as store:
            store.execute("insert into t values (1)")
    other.join(10)
    with open_existing_database(path, SCHEMA) as store:
        assert store is not None
        assert [(1,), (2,)] == store.fetch_rows("select x from t order by rowid")
