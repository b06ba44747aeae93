"""The errors of files: each says what is wrong, and only a damaged file is to be moved away."""

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
    "test", (("one", "create table t (x); create index t_x on t (x)"),), damage_advice="move it away: nothing is lost"
)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Return the path of a file with ten rows."""
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


def test_the_error_about_a_busy_file_does_not_say_to_move_it_away(path: Path) -> None:
    """Another process writes it, and it isn't damaged."""
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("pragma locking_mode = exclusive")
        other.execute("begin exclusive")
        other.execute("create table x (a)")
        with pytest.raises(BusyError, match=r"a\.sqlite can't be used: .* another process .* try again") as error:
            open_database(path, ONE, wait_seconds=0)
    assert "move it away" not in str(error.value)


def test_a_full_disk_is_reported_outside_of_a_transaction_too(path: Path) -> None:
    with open_database(path, ONE) as store:
        store.execute("pragma max_page_count = 8")
        with pytest.raises(DiskFullError, match=r"a\.sqlite can't be written: the disk at /\S* is full; make room"):
            store.execute("insert into t values (randomblob(100000))")
        assert [(10,)] == store.fetch_rows("select count(*) from t")


@pytest.mark.parametrize(
    "use", [write, lambda path: compact_database(path), lambda path: copy_database(path, path.parent / "b")]
)
def test_a_disk_that_fails_does_not_count_as_a_damaged_file(path: Path, use: Callable[[Path], object]) -> None:
    """SQLite reports a write that the system refuses as an I/O error."""
    with open_database(path, ONE) as store:
        store.execute_many("insert into t values (randomblob(?))", [(1000,)] * 50)
        store.execute("delete from t")
    with limit_file_size(), pytest.raises(StateError, match=r"(fails \(disk I/O error\)|largest size)") as error:
        use(path)
    assert "move it away" not in str(error.value)


@pytest.mark.parametrize("use", [look, write, lock, is_locked])
def test_a_folder_in_place_of_a_file_is_reported(tmp_path: Path, use: Callable[[Path], object]) -> None:
    (tmp_path / "a.sqlite").mkdir()
    if use is is_locked:  # no process can lock a folder
        assert not is_locked(tmp_path / "a.sqlite")
        return
    with pytest.raises(StateError, match=r"a\.sqlite can't be used: it is a folder; move the folder elsewhere"):
        use(tmp_path / "a.sqlite")


@pytest.mark.parametrize("use", [look, write])
@pytest.mark.parametrize("target", ["gone", "gone/a.sqlite"])
def test_a_broken_link_is_not_followed(tmp_path: Path, use: Callable[[Path], object], target: str) -> None:
    """The disk behind the link may be missing, and an empty file there would hide the loss."""
    (tmp_path / "a.sqlite").symlink_to(tmp_path / target)
    with pytest.raises(StateError, match=r"it is a link to .*gone\S*, which isn't there; bring that back"):
        use(tmp_path / "a.sqlite")
    assert ["a.sqlite"] == [file.name for file in tmp_path.iterdir()]


@pytest.mark.parametrize("use", [write, lock])
def test_a_file_in_place_of_a_folder_is_reported(tmp_path: Path, use: Callable[[Path], object]) -> None:
    (tmp_path / "state").write_text("")
    with pytest.raises(StateError, match="state is not a folder; move that file elsewhere"):
        use(tmp_path / "state" / "a.sqlite")


def check_whole(path: Path) -> None:
    check_integrity(path, ONE.damage_advice)


@pytest.mark.parametrize("use", [look, write, check_whole])
def test_the_error_about_a_damaged_page_says_what_its_loss_costs(path: Path, use: Callable[[Path], object]) -> None:
    """It does so even without an open transaction."""
    overwrite_sqlite_page(path, "t")
    with pytest.raises(StateError, match=r"a\.sqlite is damaged \(.*\); move it away: nothing is lost"):
        use(path)


def test_a_text_that_can_not_be_decoded_counts_as_damage(path: Path) -> None:
    """SQLite returns it, but Python can't decode it."""
    assert 1 == replace_in_sqlite_page(path, "t", b"row 7", b"row\xff7")
    with pytest.raises(StateError, match=r"is damaged \(Could not decode"):
        look(path)


def test_an_index_that_does_not_match_its_table_is_found(path: Path) -> None:
    """No statement would fail: the rows would just be missing."""
    assert 1 == replace_in_sqlite_page(path, "t_x", b"row 7", b"row x")
    with open_read_only(path, ONE) as store:
        assert [] == store.fetch_rows("select x from t where x = 'row 7'")
    with pytest.raises(StateError, match=r"is damaged \(row 8 missing from index t_x.*\); move it away: nothing"):
        check_integrity(path, ONE.damage_advice)


def test_an_error_that_is_not_about_the_file_is_raised_unchanged(path: Path) -> None:
    """A wrong statement is a bug in ondatra."""
    with open_database(path, ONE) as store, pytest.raises(sqlite3.OperationalError, match="no such table"):
        store.fetch_rows("select * from unknown")


@pytest.mark.parametrize(
    ("number", "fault", "words"),
    [
        (errno.ENOSPC, DiskFullError, "is full; make room there"),
        (errno.EDQUOT, DiskFullError, "is full; make room there"),
        (errno.EFBIG, DiskFullError, "raise it"),
        (errno.EROFS, StateError, "is read-only; mount it for writing"),
        (errno.EIO, StateError, "check the disk and the system's log"),
        (errno.EACCES, StateError, "Permission denied; check who owns it and who may write"),
    ],
)
def test_each_error_of_the_system_says_what_to_do(
    tmp_path: Path, number: int, fault: type[StateError], words: str
) -> None:
    with pytest.raises(fault, match=rf"journal can't .*{words}"), explain_file_errors(tmp_path / "journal"):
        raise OSError(number, os.strerror(number))


def test_an_error_of_sqlite_is_found_behind_the_error_of_a_library(tmp_path: Path) -> None:
    """Dagster's storage wraps it. Errors of other kinds aren't errors of the disk."""
    with open_database(tmp_path / "a.sqlite", ONE) as store:
        store.execute("pragma max_page_count = 8")
        error = _wrapped(store)
    assert isinstance(error, DiskFullError)
    assert f"{tmp_path} can't be written" in str(error)
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


def test_the_text_of_an_sqlite_error_is_enough(tmp_path: Path) -> None:
    """Dagster stores only the text of the error of a failed step."""
    assert isinstance(storage_error("database or disk is full", tmp_path), DiskFullError)
    assert "is damaged (" in str(storage_error("database disk image is malformed", tmp_path))
    assert "fails (disk I/O error)" in str(storage_error("disk I/O error", tmp_path))


def test_a_lock_is_held_even_if_its_name_can_not_be_written(tmp_path: Path) -> None:
    """Otherwise no command could free space on a full disk."""
    (tmp_path / "a.lock").symlink_to("/dev/full")
    with FileLock(tmp_path / "a.lock", purpose="frees space"):
        assert is_locked(tmp_path / "a.lock")
    assert not is_locked(tmp_path / "a.lock")
