"""The maintenance of files below .ondatra: they don't grow without limit, and files in use are not touched."""

from pathlib import Path

from support.files.sqlite_page_damage import replace_in_sqlite_page

from ondatra_dagster.operations.state_file_maintenance import (
    MAX_LOG_BYTES,
    compact_files,
    list_state_files,
    rotate_logs,
)
from ondatra_dagster.storage.file_lock import FileLock
from ondatra_dagster.storage.sqlite_database import SqliteSchema, open_database

SCHEMA = SqliteSchema("test", (("one", "create table t (x)"),))
INDEXED = SqliteSchema("test", (*SCHEMA.steps, ("two", "create index t_x on t (x)")))


def grown(path: Path) -> int:
    """Write a file in which a megabyte of rows was added and deleted, and return its size."""
    with open_database(path, SCHEMA) as store:
        store.execute_many("insert into t values (randomblob(?))", [(2000,)] * 500)
        store.execute("delete from t")
    return path.stat().st_size


def test_files_give_back_the_space_that_they_no_longer_use(tmp_path: Path) -> None:
    """This holds for queues and for the other SQLite files."""
    paths = [tmp_path / "queue" / "sync.crm.sqlite", tmp_path / "history.sqlite", tmp_path / "rates.sqlite"]
    before = sum(map(grown, paths))
    result = compact_files(list_state_files(tmp_path, {}))
    assert (3, 0) == (result.counts["files"], result.counts["busy"])
    assert before * 0.8 < result.counts["bytes"] <= before
    assert sum(path.stat().st_size for path in paths) < before / 10
    assert (3, 0) == tuple(compact_files(list_state_files(tmp_path, {})).counts[name] for name in ("files", "bytes"))


def test_a_file_in_use_is_skipped_with_a_message(tmp_path: Path) -> None:
    """A delivery is in progress. The file is compacted the next time, tomorrow."""
    size = grown(tmp_path / "queue" / "sync.crm.sqlite")
    grown(tmp_path / "history.sqlite")
    locks = [tmp_path / "locks" / "queue" / "sync.crm.lock", tmp_path / "locks" / "history.sqlite.lock"]
    with FileLock(locks[0], purpose="delivers"), FileLock(locks[1], purpose="writing history"):
        result = compact_files(list_state_files(tmp_path, {}))
    assert (0, 2, 0) == (result.counts["files"], result.counts["busy"], result.counts["bytes"])
    assert "in use, so skipped this time: history, sync.crm" in result.message
    assert size == (tmp_path / "queue" / "sync.crm.sqlite").stat().st_size


def test_a_long_log_starts_again_and_one_old_log_is_kept(tmp_path: Path) -> None:
    """A user who looks for yesterday's error still finds it."""
    (tmp_path / "spark.log").write_bytes(b"x" * MAX_LOG_BYTES)
    (tmp_path / "spark.log.1").write_text("old")
    (tmp_path / "errors.log").write_text("short")
    result = rotate_logs(tmp_path)
    assert (1, 3) == (result.counts["turned"], result.counts["bytes"])
    assert MAX_LOG_BYTES == (tmp_path / "spark.log.1").stat().st_size
    assert {"errors.log", "spark.log.1"} == {path.name for path in tmp_path.iterdir()}
    assert "no log is long" == rotate_logs(tmp_path).message
    assert 0 == rotate_logs(tmp_path / "nothing").counts["turned"]


def test_a_damaged_file_is_reported_with_its_remedy_and_not_changed(tmp_path: Path) -> None:
    """One index disagrees with its table. The other file is compacted."""
    path = tmp_path / "history.sqlite"
    with open_database(path, INDEXED) as store:
        store.execute_many("insert into t values (?)", [("row 1",), ("row 2",)])
    assert 1 == replace_in_sqlite_page(path, "t_x", b"row 1", b"row x")
    grown(tmp_path / "queue" / "sync.crm.sqlite")
    before = path.read_bytes()
    result = compact_files(list_state_files(tmp_path, {"history.sqlite": "bring it back"}))
    assert (1, False) == (result.counts["files"], result.is_successful)
    assert f"; {path} is damaged (row 1 missing from index t_x" in result.message
    assert result.message.endswith("); bring it back")
    assert before == path.read_bytes()


def test_the_message_about_a_damaged_queue_says_how_to_rebuild_it(tmp_path: Path) -> None:
    (tmp_path / "queue").mkdir()
    (tmp_path / "queue" / "sync.crm.sqlite").write_bytes(b"no database" * 1000)
    result = compact_files(list_state_files(tmp_path, {}))
    assert "is damaged (file is not a database); move it away: the next run rebuilds it" in result.message
