"""Files below .ondatra are kept in bounds, and left alone while somebody has them."""

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
    """A file that a million rows have gone through; its size."""
    with open_database(path, SCHEMA) as store:
        store.execute_many("insert into t values (randomblob(?))", [(2000,)] * 500)
        store.execute("delete from t")
    return path.stat().st_size


def test_files_give_back_what_they_no_longer_use(tmp_path: Path) -> None:
    """Queues and those beside them."""
    paths = [tmp_path / "queue" / "sync.crm.sqlite", tmp_path / "history.sqlite", tmp_path / "rates.sqlite"]
    before = sum(map(grown, paths))
    done = compact_files(list_state_files(tmp_path, {}))
    assert (3, 0) == (done.counts["files"], done.counts["busy"])
    assert before * 0.8 < done.counts["bytes"] <= before
    assert sum(path.stat().st_size for path in paths) < before / 10
    assert (3, 0) == tuple(compact_files(list_state_files(tmp_path, {})).counts[name] for name in ("files", "bytes"))


def test_a_file_that_somebody_holds_is_left_with_a_word(tmp_path: Path) -> None:
    """A delivery goes on; the next time is tomorrow."""
    size = grown(tmp_path / "queue" / "sync.crm.sqlite")
    grown(tmp_path / "history.sqlite")
    locks = [tmp_path / "locks" / "queue" / "sync.crm.lock", tmp_path / "locks" / "history.sqlite.lock"]
    with FileLock(locks[0], purpose="delivers"), FileLock(locks[1], purpose="writing history"):
        done = compact_files(list_state_files(tmp_path, {}))
    assert (0, 2, 0) == (done.counts["files"], done.counts["busy"], done.counts["bytes"])
    assert "in use, so skipped this time: history, sync.crm" in done.message
    assert size == (tmp_path / "queue" / "sync.crm.sqlite").stat().st_size


def test_a_long_log_begins_anew_and_is_kept_once(tmp_path: Path) -> None:
    """Who looks for yesterday's error still finds it."""
    (tmp_path / "spark.log").write_bytes(b"x" * MAX_LOG_BYTES)
    (tmp_path / "spark.log.1").write_text("old")
    (tmp_path / "errors.log").write_text("short")
    done = rotate_logs(tmp_path)
    assert (1, 3) == (done.counts["turned"], done.counts["bytes"])
    assert MAX_LOG_BYTES == (tmp_path / "spark.log.1").stat().st_size
    assert {"errors.log", "spark.log.1"} == {path.name for path in tmp_path.iterdir()}
    assert "no log is long" == rotate_logs(tmp_path).message
    assert 0 == rotate_logs(tmp_path / "nothing").counts["turned"]


def test_a_damaged_file_is_told_with_its_remedy_and_stays(tmp_path: Path) -> None:
    """The one index that disagrees with its table; the other file is looked after."""
    path = tmp_path / "history.sqlite"
    with open_database(path, INDEXED) as store:
        store.execute_many("insert into t values (?)", [("row 1",), ("row 2",)])
    assert 1 == replace_in_sqlite_page(path, "t_x", b"row 1", b"row x")
    grown(tmp_path / "queue" / "sync.crm.sqlite")
    before = path.read_bytes()
    done = compact_files(list_state_files(tmp_path, {"history.sqlite": "bring it back"}))
    assert (1, False) == (done.counts["files"], done.is_successful)
    assert f"; {path} is damaged (row 1 missing from index t_x" in done.message
    assert done.message.endswith("); bring it back")
    assert before == path.read_bytes()


def test_a_damaged_queue_says_what_makes_it_again(tmp_path: Path) -> None:
    (tmp_path / "queue").mkdir()
    (tmp_path / "queue" / "sync.crm.sqlite").write_bytes(b"no database" * 1000)
    done = compact_files(list_state_files(tmp_path, {}))
    assert "is damaged (file is not a database); move it away: the next run makes it again" in done.message
