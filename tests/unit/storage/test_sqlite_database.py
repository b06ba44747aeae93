"""The SQLite files of ondatra: permissions, upgrades, transactions and copies."""

import os
import sqlite3
import stat
import threading

import pytest

from ondatra_dagster.errors import BusyError, StateError
from ondatra_dagster.storage.sqlite_database import (
    SqliteSchema,
    SqliteStore,
    compact_database,
    copy_database,
    open_database,
    open_read_only,
)

ONE = SqliteSchema("test", (("one", "create table t (x); create index t_x on t (x)"),))
TWO = SqliteSchema("test", (*ONE.steps, ("two", "alter table t add column y")))


def test_a_file_and_its_folder_are_private(tmp_path):
    """Queues contain customers' rows."""
    path = tmp_path / "state" / "a.sqlite"
    with open_database(path, ONE) as store:
        store.execute("insert into t values (1)")
        modes = {p.name: stat.S_IMODE(p.stat().st_mode) for p in path.parent.iterdir()}
    assert {"a.sqlite": 0o600, "a.sqlite-wal": 0o600, "a.sqlite-shm": 0o600} == modes
    assert 0o700 == stat.S_IMODE(path.parent.stat().st_mode)


def test_a_newer_program_opens_an_older_file(tmp_path):
    """An upgrade keeps the rows that wait for delivery."""
    with open_database(tmp_path / "a.sqlite", ONE) as store:
        store.execute("insert into t values (1)")
    with open_database(tmp_path / "a.sqlite", TWO) as store:
        assert [(1, None)] == store.fetch_rows("select * from t")


@pytest.mark.parametrize("open_file", [open_database, lambda path, schema: open_read_only(path, schema).__enter__()])
def test_a_newer_file_is_refused_with_the_version_to_use(tmp_path, open_file):
    """An older program would write rows that the newer one can't read."""
    with open_database(tmp_path / "a.sqlite", TWO) as store:
        store.execute("update _written_by set version = '9.1'")
    with pytest.raises(StateError, match=r"written by ondatra 9\.1 \(it has two\).*use ondatra 9\.1 or"):
        open_file(tmp_path / "a.sqlite", ONE)


def test_a_reader_sees_an_older_file_with_the_newer_columns(tmp_path):
    """Directly after an upgrade no process has written the file yet, and a reader must not write."""
    with open_database(tmp_path / "a.sqlite", ONE) as store:
        store.execute("insert into t values (1)")
    with open_read_only(tmp_path / "a.sqlite", TWO) as store:
        assert [(1, None)] == store.fetch_rows("select x, y from t")
    with open_read_only(tmp_path / "a.sqlite") as store:
        assert [(1,)] == store.fetch_rows("select * from t")


def test_a_compacted_file_frees_unused_space(tmp_path):
    """After a million delivered rows the file would otherwise keep their size."""
    path = tmp_path / "a.sqlite"
    with open_database(path, ONE) as store:
        store.execute_many("insert into t values (randomblob(?))", [(2000,)] * 500)
        store.execute("delete from t")
    before = path.stat().st_size
    assert before - path.stat().st_size < compact_database(path) <= before
    assert path.stat().st_size < before / 10
    assert 0 == compact_database(path)


def test_a_file_that_is_not_a_database_is_refused_with_a_clear_error(tmp_path):
    """A traceback wouldn't say which file is meant."""
    (tmp_path / "a.sqlite").write_text("not a database" * 100)
    with pytest.raises(StateError, match=r"a\.sqlite is damaged \(file is not a database\)"):
        open_database(tmp_path / "a.sqlite", ONE)


def test_a_failed_transaction_is_rolled_back(tmp_path):
    """The state and its record are either both written, or neither."""
    with open_database(tmp_path / "a.sqlite", ONE) as store:
        with pytest.raises(sqlite3.OperationalError), store.write_transaction():
            store.execute_many("insert into t values (json(?))", [("1",), ("no json",)])
        assert [] == store.fetch_rows("select * from t")
        with store.write_transaction():
            store.execute("insert into t values (2)")
        assert [(2,)] == store.fetch_rows("select * from t")


def test_a_nested_transaction_is_committed_or_rolled_back_with_its_outer_one(tmp_path):
    """Two complete steps can share one commit, because the commit takes most of the time."""
    with open_database(tmp_path / "a.sqlite", ONE) as store:
        with pytest.raises(sqlite3.OperationalError), store.write_transaction():
            _add_one_and_fail(store)
        assert [] == store.fetch_rows("select * from t")
        with store.write_transaction(), store.write_transaction():
            store.execute("insert into t values (2)")
        assert [(2,)] == store.fetch_rows("select * from t")


def _add_one_and_fail(store: SqliteStore) -> None:
    with store.write_transaction():
        store.execute("insert into t values (1)")
    store.execute("insert into t values (json('no json'))")


def test_a_writer_that_can_not_wait_longer_reports_the_other_process(tmp_path):
    """SQLite's "database is locked" doesn't say which process to wait for."""
    with (
        open_database(tmp_path / "a.sqlite", ONE) as one,
        open_database(tmp_path / "a.sqlite", ONE, wait_seconds=0) as two,
        one.write_transaction(),
        pytest.raises(BusyError, match="written by another process"),
        two.write_transaction(),
    ):
        pass


def test_a_reader_sees_the_last_commit_and_can_not_write(tmp_path):
    """`ondatra status` must not disturb a delivery."""
    with open_database(tmp_path / "a.sqlite", ONE) as store:
        store.execute("insert into t values (1)")
        with store.write_transaction(), open_read_only(tmp_path / "a.sqlite") as reader:
            store.execute("insert into t values (2)")
            assert [(1,)] == reader.fetch_rows("select * from t")
            with pytest.raises(StateError, match="readonly"):
                reader.execute("insert into t values (3)")


def of_yesterday(folder):
    """Set the times of the files to a day long ago, as if no process had written them for a while."""
    for path in folder.iterdir():
        os.utime(path, (1_000_000_000, 1_000_000_000))


def values(path):
    with open_read_only(path) as store:
        return [value for (value,) in store.fetch_rows("select x from t order by x")]


def test_a_copy_leaves_no_files_next_to_the_original(tmp_path):
    """SQLite leaves files next to one that it reads, and a dry run must leave no traces."""
    path, to = tmp_path / "queue" / "a.sqlite", tmp_path / "dry" / "a.sqlite"
    with open_database(path, ONE) as store:
        store.execute("insert into t values (1)")
    of_yesterday(path.parent)
    copy_database(path, to)
    assert ["a.sqlite"] == [file.name for file in path.parent.iterdir()]
    assert [1] == values(to)
    assert 0o600 == stat.S_IMODE(to.stat().st_mode)


def test_a_copy_includes_commits_that_are_only_in_the_log(tmp_path):
    """A killed process may leave committed rows there."""
    path, to = tmp_path / "queue" / "a.sqlite", tmp_path / "dry" / "a.sqlite"
    with open_database(path, ONE) as store:
        store.execute("insert into t values (1)")
        of_yesterday(path.parent)
        copy_database(path, to)
    assert [1] == values(to)


def test_a_copy_of_a_file_that_is_being_written_shows_one_moment(tmp_path):
    """Another process wrote a moment ago and may write again, so SQLite makes the copy."""
    path, to = tmp_path / "queue" / "a.sqlite", tmp_path / "dry" / "a.sqlite"
    open_database(path, ONE).close()
    enough = threading.Event()

    def write() -> None:
        with open_database(path, ONE) as store:
            while not enough.is_set():
                with store.write_transaction():
                    store.execute("insert into t select coalesce(max(x), 0) + 1 from t")
                    store.execute("insert into t select max(x) + 1 from t")

    writer = threading.Thread(target=write)
    writer.start()
    try:
        while not values(path):
            pass
        copy_database(path, to)
    finally:
        enough.set()
        writer.join()
    copied = values(to)
    assert list(range(1, len(copied) + 1)) == copied
    assert 0 == len(copied) % 2
    assert set(copied) <= set(values(path))
