"""The history of a table that may be removed: its log says what, and no file that is still read is removed."""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ondatra_dagster.deltalog.log_reader import TableState, read_table_state
from ondatra_dagster.deltalog.removable_history import (
    FILE_RETENTION_PROPERTY,
    FREED_UPTO_PROPERTY,
    NORMAL_RETENTION,
    find_last_equal_commit,
    find_oldest_readable_version,
    find_removable_history,
    find_removal_cutoff,
    is_retention_lowered,
    read_commit_time,
    remove_log_files,
)
from ondatra_dagster.errors import WarehouseError

DAY = 86_400
COLUMNS = ("id", "name")


def metadata(*names: str, **properties: str) -> dict[str, Any]:
    fields = [{"name": name, "type": "string", "nullable": True, "metadata": {}} for name in names]
    schema = json.dumps({"type": "struct", "fields": fields})
    return {"metaData": {"id": "table-1", "schemaString": schema, "configuration": properties}}


def commit(table: Path, version: int, *actions: dict[str, Any], day: float | None = None) -> None:
    """Write a commit of that day. Without a day, each commit is made one day after the one before."""
    log = table / "_delta_log"
    log.mkdir(parents=True, exist_ok=True)
    moment = int((version if day is None else day) * DAY * 1000)
    lines = [{"commitInfo": {"timestamp": moment}}, *actions]
    (log / f"{version:020}.json").write_text("\n".join(json.dumps(line) for line in lines))


def rewrite(version: int, *, changes: bool = True, size: int = 10, day: float | None = None) -> list[Any]:
    """Return the actions that replace one file: rows change, or an OPTIMIZE moves them."""
    moment = int((version if day is None else day) * DAY * 1000)
    gone = {"path": f"{version - 1}", "size": size, "deletionTimestamp": moment, "dataChange": changes}
    return [{"add": {"path": f"{version}", "size": size, "dataChange": changes}}, {"remove": gone}]


def a_table(table: Path, *, upto: int) -> None:
    """Write a log with one version per day."""
    commit(table, 0, metadata(*COLUMNS))
    for version in range(1, upto + 1):
        commit(table, version, *rewrite(version))


def state_of(table: Path) -> TableState:
    state = read_table_state(table)
    assert state is not None
    return state


def test_the_last_commit_before_the_next_change_of_rows_has_equal_rows(tmp_path: Path) -> None:
    """A version is read at the current place of its rows, after any OPTIMIZE and ALTER."""
    commit(tmp_path, 0, metadata(*COLUMNS))
    commit(tmp_path, 1, *rewrite(1))
    commit(tmp_path, 2, *rewrite(2, changes=False))
    commit(tmp_path, 3, metadata(*COLUMNS, a="b"))
    commit(tmp_path, 4, *rewrite(4))
    commit(tmp_path, 5)
    assert [0, 3, 3, 3, 5, 5] == [find_last_equal_commit(tmp_path, version) for version in range(6)]


def test_a_commit_that_changes_columns_is_not_equal(tmp_path: Path) -> None:
    """A reader of the older version must see its columns."""
    a_table(tmp_path, upto=1)
    commit(tmp_path, 2)
    commit(tmp_path, 3, metadata("id"))
    assert 2 == find_last_equal_commit(tmp_path, 1)


def test_a_missing_commit_is_not_skipped(tmp_path: Path) -> None:
    """It may have changed rows. Then Delta has to report that they can't be read."""
    a_table(tmp_path, upto=3)
    (tmp_path / "_delta_log" / f"{2:020}.json").unlink()
    assert 1 == find_last_equal_commit(tmp_path, 1)


def test_old_files_that_were_removed_before_the_needed_version_may_go(tmp_path: Path) -> None:
    """There are two bounds, the needed version and the age. The older of them applies."""
    a_table(tmp_path, upto=10)
    state = state_of(tmp_path)
    by_need = find_removable_history(tmp_path, state, needed_version=4, before=9 * DAY)
    assert (4, 4, 40) == (by_need.last_commit, by_need.files, by_need.size)
    by_age = find_removable_history(tmp_path, state, needed_version=9, before=3 * DAY)
    assert (2, 2) == (by_age.last_commit, by_age.files)
    assert 0 == find_removable_history(tmp_path, state, needed_version=-1, before=99 * DAY).files
    assert 0 == find_removable_history(tmp_path, state, needed_version=4, before=-1.0).files


def test_files_replaced_by_an_optimize_may_go_even_if_their_version_is_needed(tmp_path: Path) -> None:
    """Their rows are in other files. Otherwise a table without changes would store its rows twice forever."""
    a_table(tmp_path, upto=2)
    commit(tmp_path, 3, *rewrite(3, changes=False))
    assert (3, 3) == (lambda past: (past.last_commit, past.files))(
        find_removable_history(tmp_path, state_of(tmp_path), needed_version=2, before=30 * DAY)
    )


def test_files_of_the_change_feed_count_and_freed_files_do_not(tmp_path: Path) -> None:
    """So a second search finds nothing to remove."""
    a_table(tmp_path, upto=3)
    commit(tmp_path, 4, *rewrite(4), {"cdc": {"path": "c", "size": 5, "dataChange": False}})
    assert 5 == find_removable_history(tmp_path, state_of(tmp_path), needed_version=4, before=30 * DAY).files
    commit(tmp_path, 5, metadata(*COLUMNS, **{FREED_UPTO_PROPERTY: "4"}))
    assert 0 == find_removable_history(tmp_path, state_of(tmp_path), needed_version=4, before=30 * DAY).files


def test_the_cutoff_keeps_files_that_a_later_commit_removed(tmp_path: Path) -> None:
    """After a clock was set back, a later removal looks older than it is."""
    a_table(tmp_path, upto=6)
    state = state_of(tmp_path)
    past = find_removable_history(tmp_path, state, needed_version=4, before=30 * DAY)
    assert 4 * DAY == find_removal_cutoff(tmp_path, past, before=30 * DAY)
    commit(tmp_path, 7, *rewrite(7, day=2), day=2)
    assert 2 * DAY == find_removal_cutoff(tmp_path, past, before=30 * DAY)
    newest = find_removable_history(tmp_path, state, needed_version=6, before=5.5 * DAY)
    assert 5 == newest.last_commit
    assert 1 * DAY == find_removal_cutoff(tmp_path, newest, before=1 * DAY)


def test_a_commit_without_a_time_counts_as_new(tmp_path: Path) -> None:
    """Other programs write such commits."""
    a_table(tmp_path, upto=2)
    (tmp_path / "_delta_log" / f"{1:020}.json").write_text(json.dumps(rewrite(1)[0]))
    assert read_commit_time(tmp_path, 1) is None
    assert 2 * DAY == read_commit_time(tmp_path, 2)
    assert 1 > find_removable_history(tmp_path, state_of(tmp_path), needed_version=1, before=1.5 * DAY).last_commit


def checkpoint(table: Path, version: int, *, is_whole: bool = True) -> str:
    text = pa.string()
    kind = pa.struct([("id", text), ("schemaString", text), ("configuration", pa.map_(text, text))])
    table_metadata = {**metadata(*COLUMNS)["metaData"], "configuration": []}
    columns = {
        "protocol": pa.array([{"minReaderVersion": 1}, None], pa.struct([("minReaderVersion", pa.int32())])),
        "metaData": pa.array(
            [None, {"id": table_metadata["id"], "schemaString": table_metadata["schemaString"]} if is_whole else None],
            kind,
        ),
        "add": pa.array([None, None], pa.struct([("path", pa.string())])),
    }
    name = f"{version:020}.checkpoint.parquet"
    pq.write_table(pa.table(columns), table / "_delta_log" / name)
    return name


def test_old_commits_are_removed_when_a_checkpoint_replaces_them(tmp_path: Path) -> None:
    """Checksum files are removed too. The last checkpoint before the needed version stays, with all later commits."""
    a_table(tmp_path, upto=12)
    log = tmp_path / "_delta_log"
    names = [checkpoint(tmp_path, version) for version in (3, 6, 9)]
    for name in (f"{2:020}.crc", f".{2:020}.json.crc", "_last_checkpoint"):
        (log / name).write_text("{}")
    past = find_removable_history(tmp_path, state_of(tmp_path), needed_version=7, before=30 * DAY)
    commits = [f"{version:020}.json" for version in range(6)]
    assert {*commits, f"{2:020}.crc", f".{2:020}.json.crc", names[0]} == set(past.log_files)
    assert 0 < remove_log_files(tmp_path, past)
    remaining_names = {path.name for path in log.iterdir()}
    assert {"_last_checkpoint", *names[1:], *(f"{version:020}.json" for version in range(6, 13))} == remaining_names
    assert () == find_removable_history(tmp_path, state_of(tmp_path), needed_version=7, before=30 * DAY).log_files


def test_a_checkpoint_without_metadata_replaces_no_commits(tmp_path: Path) -> None:
    """The removal of the commits would destroy the table."""
    a_table(tmp_path, upto=5)
    checkpoint(tmp_path, 3, is_whole=False)
    past = find_removable_history(tmp_path, state_of(tmp_path), needed_version=4, before=30 * DAY)
    with pytest.raises(WarehouseError, match="doesn't describe the table"):
        remove_log_files(tmp_path, past)
    assert (tmp_path / "_delta_log" / f"{0:020}.json").exists()


def test_the_log_has_the_oldest_version_with_readable_changes(tmp_path: Path) -> None:
    """A reader that has seen less than that must start again."""
    a_table(tmp_path, upto=4)
    assert -1 == find_oldest_readable_version(tmp_path, state_of(tmp_path))
    commit(tmp_path, 5, metadata(*COLUMNS))
    commit(tmp_path, 6, *rewrite(6))
    commit(tmp_path, 7, metadata(*COLUMNS, **{FREED_UPTO_PROPERTY: "5"}))
    assert 4 == find_oldest_readable_version(tmp_path, state_of(tmp_path))


def test_a_lowered_retention_is_seen_in_the_log(tmp_path: Path) -> None:
    """The next process finds it without a JVM."""
    commit(tmp_path, 0, metadata(*COLUMNS, **{FILE_RETENTION_PROPERTY: NORMAL_RETENTION}))
    assert not is_retention_lowered(state_of(tmp_path))
    commit(tmp_path, 1, metadata(*COLUMNS, **{FILE_RETENTION_PROPERTY: "interval 9 seconds"}))
    assert is_retention_lowered(state_of(tmp_path))
