"""A fault of a file is told as what it is, and only a damaged one is to be moved away."""

import contextlib
import errno
import os
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest
from support.files.sqlite_page_damage import overwrite_sqlite_page, replace_in_sqlite_page
from support.files.unwritable_disks import limit_file_size

from ondatra_dagster.errors import BusyError, DiskFullError, StateError
from ondatra_dagster.storage.file_errors import disk_error, explain_file_errors, storage_error
from ondatra_dagster.storage.file_lock import FileLock, is_locked
from ondatra_dagster.storage.sqlite_database import (
    SqliteSchema,
    SqliteStore,
    check_integrity,
    compact_database,
    copy_database,
    open_database,
    open_existing_database,
    open_read_only,
)

ONE = SqliteSchema(
    "test", (("one", "create table t (x); create index t_x on t (x)"),), if_damaged="move it away: nothing is lost"
)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A file with ten rows."""
    with open_database(tmp_path / "a.sqlite", ONE) as store:
        store.execute_many("insert into t values (?)", [(f"row {number}",) for number in range(10)])
    return tmp_path / "a.sqlite"


def look(path: Path) -> None:
    with open_existing_database(path, ONE) as store:
        assert store
        store.fetch_rows("select * from t order by +x")


def write(path: Path) -> None:
    with open_database(path, ONE) as store, store.write_transaction():
        store.execute("insert into t values (1)")


def lock(path: Path) -> None:
    with FileLock(path, purpose="test"):
        pass


def test_a_busy_file_is_none_to_be_moved_away(path: Path) -> None:
    """Its owner writes it, and it is sound."""
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("pragma locking_mode = exclusive")
        other.execute("begin exclusive")
        other.execute("create table x (a)")
        with pytest.raises(BusyError, match=r"a\.sqlite can't be used: .* another process .* try again") as told:
            open_database(path, ONE, wait_seconds=0)
    assert "move it away" not in str(told.value)


def test_a_full_file_says_so_outside_of_a_transaction_too(path: Path) -> None:
    with open_database(path, ONE) as store:
        store.execute("pragma max_page_count = 8")
        with pytest.raises(DiskFullError, match=r"a\.sqlite can't be written: the disk at /\S* is full; make room"):
            store.execute("insert into t values (randomblob(100000))")
        assert [(10,)] == store.fetch_rows("select count(*) from t")


@pytest.mark.parametrize(
    "use", [write, lambda path: compact_database(path), lambda path: copy_database(path, path.parent / "b")]
)
def test_a_disk_that_fails_is_no_damage(path: Path, use: Callable[[Path], object]) -> None:
    """SQLite calls a write that the system refuses an I/O error."""
    with open_database(path, ONE) as store:
        store.execute_many("insert into t values (randomblob(?))", [(1000,)] * 50)
        store.execute("delete from t")
    with limit_file_size(), pytest.raises(StateError, match=r"(fails \(disk I/O error\)|largest size)") as told:
        use(path)
    assert "move it away" not in str(told.value)


@pytest.mark.parametrize("use", [look, write, lock, is_locked])
def test_a_folder_in_the_place_of_a_file(tmp_path: Path, use: Callable[[Path], object]) -> None:
    (tmp_path / "a.sqlite").mkdir()
    if use is is_locked:  # which asks for a lock that nobody can have
        assert not is_locked(tmp_path / "a.sqlite")
        return
    with pytest.raises(StateError, match=r"a\.sqlite can't be used: it is a folder; move the folder elsewhere"):
        use(tmp_path / "a.sqlite")


@pytest.mark.parametrize("use", [look, write])
@pytest.mark.parametrize("target", ["gone", "gone/a.sqlite"])
def test_a_link_to_nothing_is_not_followed(tmp_path: Path, use: Callable[[Path], object], target: str) -> None:
    """The disk that it leads to may be missing: an empty file there would pass for the lost one."""
    (tmp_path / "a.sqlite").symlink_to(tmp_path / target)
    with pytest.raises(StateError, match=r"it is a link to .*gone\S*, which isn't there; bring that back"):
        use(tmp_path / "a.sqlite")
    assert ["a.sqlite"] == [file.name for file in tmp_path.iterdir()]


@pytest.mark.parametrize("use", [write, lock])
def test_a_file_in_the_place_of_the_folder(tmp_path: Path, use: Callable[[Path], object]) -> None:
    (tmp_path / "state").write_text("")
    with pytest.raises(StateError, match="state is not a folder; move that file elsewhere"):
        use(tmp_path / "state" / "a.sqlite")


def check_whole(path: Path) -> None:
    check_integrity(path, ONE.if_damaged)


@pytest.mark.parametrize("use", [look, write, check_whole])
def test_a_damaged_page_is_told_with_what_its_loss_costs(path: Path, use: Callable[[Path], object]) -> None:
    """Also where no transaction is open."""
    overwrite_sqlite_page(path, "t")
    with pytest.raises(StateError, match=r"a\.sqlite is damaged \(.*\); move it away: nothing is lost"):
        use(path)


def test_a_text_that_can_not_be_decoded_is_damage(path: Path) -> None:
    """SQLite passes it on, and Python can't read it."""
    assert 1 == replace_in_sqlite_page(path, "t", b"row 7", b"row\xff7")
    with pytest.raises(StateError, match=r"is damaged \(Could not decode"):
        look(path)


def test_an_index_that_disagrees_with_its_table_is_found(path: Path) -> None:
    """No statement would say so: the rows are just not there."""
    assert 1 == replace_in_sqlite_page(path, "t_x", b"row 7", b"row x")
    with open_read_only(path, ONE) as store:
        assert [] == store.fetch_rows("select x from t where x = 'row 7'")
    with pytest.raises(StateError, match=r"is damaged \(row 8 missing from index t_x.*\); move it away: nothing"):
        check_integrity(path, ONE.if_damaged)


def test_what_says_nothing_of_the_file_is_raised_as_it_is(path: Path) -> None:
    """A mistake in a statement is ours."""
    with open_database(path, ONE) as store, pytest.raises(sqlite3.OperationalError, match="no such table"):
        store.fetch_rows("select * from unknown")


@pytest.mark.parametrize(
    ("number", "fault", "words"),
    [
        (errno.ENOSPC, DiskFullError, "is full; make room there"),
        (errno.EDQUOT, DiskFullError, "is full; make room there"),
        (errno.EFBIG, DiskFullError, "raise it"),
        (errno.EROFS, StateError, "is read-only; mount it for writing"),
        (errno.EIO, StateError, "look at it and at the system's log"),
        (errno.EACCES, StateError, "Permission denied; check who owns it and who may write"),
    ],
)
def test_each_error_of_the_system_has_its_remedy(
    tmp_path: Path, number: int, fault: type[StateError], words: str
) -> None:
    with pytest.raises(fault, match=rf"journal can't .*{words}"), explain_file_errors(tmp_path / "journal"):
        raise OSError(number, os.strerror(number))


def test_an_error_of_sqlite_is_found_behind_a_library_s(tmp_path: Path) -> None:
    """Dagster's storage wraps it; an error of another kind isn't the disk's."""
    with open_database(tmp_path / "a.sqlite", ONE) as store:
        store.execute("pragma max_page_count = 8")
        found = _wrapped(store)
    assert isinstance(found, DiskFullError)
    assert f"{tmp_path} can't be written" in str(found)
    assert disk_error(ValueError("else"), tmp_path) is None
    assert disk_error(ConnectionRefusedError(errno.ECONNREFUSED, "refused"), tmp_path) is None


def _wrapped(store: SqliteStore) -> StateError | None:
    try:
        try:
            store.connection.execute("insert into t values (randomblob(100000))")
        except sqlite3.Error as error:
            raise RuntimeError("a library's") from error
    except RuntimeError as error:
        return disk_error(error, store.path.parent)
    return None


def test_sqlite_s_words_are_enough_where_the_error_is_gone(tmp_path: Path) -> None:
    """Of a step that failed Dagster keeps the text."""
    assert isinstance(storage_error("database or disk is full", tmp_path), DiskFullError)
    assert "is damaged (" in str(storage_error("database disk image is malformed", tmp_path))
    assert "fails (disk I/O error)" in str(storage_error("disk I/O error", tmp_path))


def test_a_lock_is_held_without_a_name_where_none_can_be_written(tmp_path: Path) -> None:
    """Else nothing could free space on a full disk."""
    (tmp_path / "a.lock").symlink_to("/dev/full")
    with FileLock(tmp_path / "a.lock", purpose="frees space"):
        assert is_locked(tmp_path / "a.lock")
    assert not is_locked(tmp_path / "a.lock")
