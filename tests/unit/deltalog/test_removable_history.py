"""What of a table's past may go is told by its log, and is never what somebody still reads."""

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
    """A commit of that day; by default each is made a day after the one before."""
    log = table / "_delta_log"
    log.mkdir(parents=True, exist_ok=True)
    moment = int((version if day is None else day) * DAY * 1000)
    lines = [{"commitInfo": {"timestamp": moment}}, *actions]
    (log / f"{version:020}.json").write_text("\n".join(json.dumps(line) for line in lines))


def rewrite(version: int, *, changes: bool = True, size: int = 10, day: float | None = None) -> list[Any]:
    """One file goes and one comes: rows change, or an OPTIMIZE moves them."""
    moment = int((version if day is None else day) * DAY * 1000)
    gone = {"path": f"{version - 1}", "size": size, "deletionTimestamp": moment, "dataChange": changes}
    return [{"add": {"path": f"{version}", "size": size, "dataChange": changes}}, {"remove": gone}]


def a_table(table: Path, *, upto: int) -> None:
    """A version a day."""
    commit(table, 0, metadata(*COLUMNS))
    for version in range(1, upto + 1):
        commit(table, version, *rewrite(version))


def state_of(table: Path) -> TableState:
    state = read_table_state(table)
    assert state is not None
    return state


def test_rows_stay_as_they_are_until_the_next_change_of_rows(tmp_path: Path) -> None:
    """A version is read where its rows are now, after whatever OPTIMIZE and ALTER did."""
    commit(tmp_path, 0, metadata(*COLUMNS))
    commit(tmp_path, 1, *rewrite(1))
    commit(tmp_path, 2, *rewrite(2, changes=False))
    commit(tmp_path, 3, metadata(*COLUMNS, a="b"))
    commit(tmp_path, 4, *rewrite(4))
    commit(tmp_path, 5)
    assert [0, 3, 3, 3, 5, 5] == [find_last_equal_commit(tmp_path, version) for version in range(6)]


def test_a_changed_column_ends_it_too(tmp_path: Path) -> None:
    """Who reads the older version has to see its columns."""
    a_table(tmp_path, upto=1)
    commit(tmp_path, 2)
    commit(tmp_path, 3, metadata("id"))
    assert 2 == find_last_equal_commit(tmp_path, 1)


def test_a_commit_that_has_gone_is_not_stepped_over(tmp_path: Path) -> None:
    """It may have changed rows: then Delta has to say that they can't be read."""
    a_table(tmp_path, upto=3)
    (tmp_path / "_delta_log" / f"{2:020}.json").unlink()
    assert 1 == find_last_equal_commit(tmp_path, 1)


def test_what_was_taken_out_before_what_is_needed_and_long_ago_may_go(tmp_path: Path) -> None:
    """Of both bounds the older one holds."""
    a_table(tmp_path, upto=10)
    state = state_of(tmp_path)
    by_need = find_removable_history(tmp_path, state, needed=4, before=9 * DAY)
    assert (4, 4, 40) == (by_need.last_commit, by_need.files, by_need.size)
    by_age = find_removable_history(tmp_path, state, needed=9, before=3 * DAY)
    assert (2, 2) == (by_age.last_commit, by_age.files)
    assert 0 == find_removable_history(tmp_path, state, needed=-1, before=99 * DAY).files
    assert 0 == find_removable_history(tmp_path, state, needed=4, before=-1.0).files


def test_what_an_optimize_replaced_goes_although_the_version_before_is_needed(tmp_path: Path) -> None:
    """The same rows are read elsewhere; else a quiet table would keep them twice for good."""
    a_table(tmp_path, upto=2)
    commit(tmp_path, 3, *rewrite(3, changes=False))
    assert (3, 3) == (lambda past: (past.last_commit, past.files))(
        find_removable_history(tmp_path, state_of(tmp_path), needed=2, before=30 * DAY)
    )


def test_files_of_the_feed_count_and_what_was_freed_does_not(tmp_path: Path) -> None:
    """So a second look finds nothing to do."""
    a_table(tmp_path, upto=3)
    commit(tmp_path, 4, *rewrite(4), {"cdc": {"path": "c", "size": 5, "dataChange": False}})
    assert 5 == find_removable_history(tmp_path, state_of(tmp_path), needed=4, before=30 * DAY).files
    commit(tmp_path, 5, metadata(*COLUMNS, **{FREED_UPTO_PROPERTY: "4"}))
    assert 0 == find_removable_history(tmp_path, state_of(tmp_path), needed=4, before=30 * DAY).files


def test_nothing_goes_that_was_taken_out_later_by_any_clock(tmp_path: Path) -> None:
    """One that was set back makes a later removal look older than it is."""
    a_table(tmp_path, upto=6)
    state = state_of(tmp_path)
    past = find_removable_history(tmp_path, state, needed=4, before=30 * DAY)
    assert 4 * DAY == find_removal_cutoff(tmp_path, past, before=30 * DAY)
    commit(tmp_path, 7, *rewrite(7, day=2), day=2)
    assert 2 * DAY == find_removal_cutoff(tmp_path, past, before=30 * DAY)
    newest = find_removable_history(tmp_path, state, needed=6, before=5.5 * DAY)
    assert 5 == newest.last_commit
    assert 1 * DAY == find_removal_cutoff(tmp_path, newest, before=1 * DAY)


def test_a_commit_that_does_not_say_when_it_was_made_counts_as_new(tmp_path: Path) -> None:
    """Another writer's."""
    a_table(tmp_path, upto=2)
    (tmp_path / "_delta_log" / f"{1:020}.json").write_text(json.dumps(rewrite(1)[0]))
    assert read_commit_time(tmp_path, 1) is None
    assert 2 * DAY == read_commit_time(tmp_path, 2)
    assert 1 > find_removable_history(tmp_path, state_of(tmp_path), needed=1, before=1.5 * DAY).last_commit


def checkpoint(table: Path, version: int, *, is_whole: bool = True) -> str:
    text = pa.string()
    kind = pa.struct([("id", text), ("schemaString", text), ("configuration", pa.map_(text, text))])
    made = {**metadata(*COLUMNS)["metaData"], "configuration": []}
    columns = {
        "protocol": pa.array([{"minReaderVersion": 1}, None], pa.struct([("minReaderVersion", pa.int32())])),
        "metaData": pa.array(
            [None, {"id": made["id"], "schemaString": made["schemaString"]} if is_whole else None], kind
        ),
        "add": pa.array([None, None], pa.struct([("path", pa.string())])),
    }
    name = f"{version:020}.checkpoint.parquet"
    pq.write_table(pa.table(columns), table / "_delta_log" / name)
    return name


def test_old_commits_go_when_a_checkpoint_stands_for_them(tmp_path: Path) -> None:
    """With the checksums beside them; what is needed keeps every commit since."""
    a_table(tmp_path, upto=12)
    log = tmp_path / "_delta_log"
    names = [checkpoint(tmp_path, version) for version in (3, 6, 9)]
    for name in (f"{2:020}.crc", f".{2:020}.json.crc", "_last_checkpoint"):
        (log / name).write_text("{}")
    past = find_removable_history(tmp_path, state_of(tmp_path), needed=7, before=30 * DAY)
    commits = [f"{version:020}.json" for version in range(6)]
    assert {*commits, f"{2:020}.crc", f".{2:020}.json.crc", names[0]} == set(past.log_files)
    assert 0 < remove_log_files(tmp_path, past)
    left = {path.name for path in log.iterdir()}
    assert {"_last_checkpoint", *names[1:], *(f"{version:020}.json" for version in range(6, 13))} == left
    assert () == find_removable_history(tmp_path, state_of(tmp_path), needed=7, before=30 * DAY).log_files


def test_a_checkpoint_that_says_nothing_stands_for_nothing(tmp_path: Path) -> None:
    """To remove what it should stand for would be the end of the table."""
    a_table(tmp_path, upto=5)
    checkpoint(tmp_path, 3, is_whole=False)
    past = find_removable_history(tmp_path, state_of(tmp_path), needed=4, before=30 * DAY)
    with pytest.raises(WarehouseError, match="doesn't say what the table is"):
        remove_log_files(tmp_path, past)
    assert (tmp_path / "_delta_log" / f"{0:020}.json").exists()


def test_it_is_known_from_which_version_on_changes_can_be_read(tmp_path: Path) -> None:
    """Who has seen less than that has to begin anew."""
    a_table(tmp_path, upto=4)
    assert -1 == find_oldest_readable_version(tmp_path, state_of(tmp_path))
    commit(tmp_path, 5, metadata(*COLUMNS))
    commit(tmp_path, 6, *rewrite(6))
    commit(tmp_path, 7, metadata(*COLUMNS, **{FREED_UPTO_PROPERTY: "5"}))
    assert 4 == find_oldest_readable_version(tmp_path, state_of(tmp_path))


def test_a_lowered_retention_is_seen_in_the_log(tmp_path: Path) -> None:
    """Without a JVM, by whoever comes next."""
    commit(tmp_path, 0, metadata(*COLUMNS, **{FILE_RETENTION_PROPERTY: NORMAL_RETENTION}))
    assert not is_retention_lowered(state_of(tmp_path))
    commit(tmp_path, 1, metadata(*COLUMNS, **{FILE_RETENTION_PROPERTY: "interval 9 seconds"}))
    assert is_retention_lowered(state_of(tmp_path))
