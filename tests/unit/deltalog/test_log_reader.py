"""The state of a table, read from its log without a JVM."""

import dataclasses
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ondatra_dagster.deltalog.commit_user_metadata import CommitMetadata
from ondatra_dagster.deltalog.log_reader import (
    count_changed_bytes,
    is_changed_by_another,
    read_last_transaction,
    read_table_size,
    read_table_state,
    spark_type_name,
    split_feed_range,
)
from ondatra_dagster.errors import WarehouseError
from ondatra_dagster.planning.find_table_and_columns import invalid_table_path
from ondatra_dagster.row_changes import Column

NOTE = CommitMetadata(definition="d", inputs={"raw.a": "t@3"}, run_id="r", rows=2)


def field(name: str, of: Any = "string", *, physical: str | None = None) -> dict[str, Any]:
    metadata = {"delta.columnMapping.physicalName": physical or f"col-{name}"}
    return {"name": name, "type": of, "nullable": True, "metadata": metadata}


def metadata(*fields: dict[str, Any]) -> dict[str, Any]:
    schema = json.dumps({"type": "struct", "fields": fields})
    return {"metaData": {"id": "table-1", "schemaString": schema, "configuration": {"ondatra.kind": "merge"}}}


def add(size: int = 10, *, changes: bool = True) -> dict[str, Any]:
    return {"add": {"path": "x.parquet", "size": size, "dataChange": changes}}


def info(note: CommitMetadata | None = None) -> dict[str, Any]:
    return {
        "commitInfo": {"operationMetrics": {"numOutputRows": "2"}, **({"userMetadata": note.dump()} if note else {})}
    }


def commit(table: Path, version: int, *actions: dict[str, Any]) -> None:
    log = table / "_delta_log"
    log.mkdir(parents=True, exist_ok=True)
    lines = [json.dumps(action, separators=(",", ":")) for action in actions]
    (log / f"{version:020}.json").write_text("\n".join(lines) + "\n")


CREATED = metadata(field("id", "integer"), field("name"), field("__ondatra_rowid", "long"))


def test_a_missing_table_has_no_state(tmp_path: Path) -> None:
    assert read_table_state(tmp_path / "nothing") is None
    (tmp_path / "folder").mkdir()
    assert read_table_state(tmp_path / "folder") is None


def test_the_version_is_the_newest_commit_that_changed_rows(tmp_path: Path) -> None:
    """An OPTIMIZE or an ALTER starts no downstream model."""
    commit(tmp_path, 0, info(), CREATED)
    commit(tmp_path, 1, info(NOTE), add())
    commit(tmp_path, 2, info(), add(changes=False))
    commit(tmp_path, 3, info(), metadata(field("id", "integer"), field("name"), field("_content_hash")))
    state = read_table_state(tmp_path)
    assert state is not None
    assert ("table-1", 1, 3, NOTE) == (state.table_id, state.version, state.log_version, state.commit_metadata)
    assert (Column("id", "int"), Column("name", "string")) == state.columns
    assert ({"ondatra.kind": "merge"}, {"numOutputRows": "2"}) == (state.properties, state.metrics)


def test_the_version_of_a_table_without_rows_is_its_first_commit(tmp_path: Path) -> None:
    commit(tmp_path, 0, info(), CREATED)
    state = read_table_state(tmp_path)
    assert state is not None
    assert (0, 0, None) == (state.version, state.log_version, state.commit_metadata)


def test_a_commit_by_another_program_has_no_commit_metadata(tmp_path: Path) -> None:
    """After it, ondatra's earlier commit metadata no longer describes the table."""
    commit(tmp_path, 0, info(), CREATED)
    commit(tmp_path, 1, info(NOTE), add())
    commit(tmp_path, 2, {"commitInfo": {"userMetadata": "fixed by hand"}}, {"remove": {"dataChange": True}})
    state = read_table_state(tmp_path)
    assert state is not None
    assert (2, None) == (state.version, state.commit_metadata)


def test_changes_of_rows_by_another_definition_are_found(tmp_path: Path) -> None:
    """An ALTER, an OPTIMIZE or a commit by another program doesn't count."""
    commit(tmp_path, 0, info(), CREATED)
    commit(tmp_path, 1, info(NOTE), add())
    commit(tmp_path, 2, info(dataclasses.replace(NOTE, definition="e")), CREATED)
    commit(tmp_path, 3, info(dataclasses.replace(NOTE, definition="e")), add(changes=False))
    commit(tmp_path, 4, info(), add())
    changes_by_definition = {
        definition: [after for after in range(5) if is_changed_by_another(tmp_path, after=after, definition=definition)]
        for definition in ("d", "e")
    }
    assert {"d": [], "e": [0]} == changes_by_definition


def test_a_log_without_old_commits_is_read_from_its_checkpoint(tmp_path: Path) -> None:
    """Another program's table may keep its commits for only a month."""
    commit(tmp_path, 12, info(), add())
    table_metadata = CREATED["metaData"] | {"configuration": [("a", "b")]}
    kind = pa.struct(
        [("id", pa.string()), ("schemaString", pa.string()), ("configuration", pa.map_(pa.string(), pa.string()))]
    )
    table = pa.table({"metaData": pa.array([None, table_metadata], kind)})
    pq.write_table(table, tmp_path / "_delta_log" / f"{10:020}.checkpoint.parquet")
    state = read_table_state(tmp_path)
    assert state is not None
    assert ("table-1", 12, {"a": "b"}) == (state.table_id, state.version, state.properties)


def test_a_log_without_columns_is_refused(tmp_path: Path) -> None:
    commit(tmp_path, 12, info(), add())
    with pytest.raises(WarehouseError, match="restore it"):
        read_table_state(tmp_path)


def test_a_change_feed_is_split_where_a_column_was_removed_or_changed(tmp_path: Path) -> None:
    """Delta can't read the feed across such a commit. An added column causes no split."""
    commit(tmp_path, 0, CREATED)
    commit(tmp_path, 1, add())
    commit(
        tmp_path, 2, metadata(field("id", "integer"), field("name"), field("__ondatra_rowid", "long"), field("more"))
    )
    commit(tmp_path, 3, add())
    commit(tmp_path, 4, metadata(field("id", "integer"), field("__ondatra_rowid", "long"), field("more")))
    commit(tmp_path, 5, add())
    commit(tmp_path, 6, metadata(field("id", "long"), field("__ondatra_rowid", "long"), field("more")))
    commit(tmp_path, 7, add())
    commit(
        tmp_path, 8, metadata(field("ID", "long", physical="col-id"), field("__ondatra_rowid", "long"), field("more"))
    )
    commit(tmp_path, 9, add())
    assert [(0, 3), (3, 5), (5, 7), (7, 9)] == split_feed_range(tmp_path, after=0, upto=9)
    assert [(1, 3)] == split_feed_range(tmp_path, after=1, upto=3)
    assert [(3, 5), (5, 6)] == split_feed_range(tmp_path, after=3, upto=6)
    assert [] == split_feed_range(tmp_path, after=9, upto=9)


def test_sizes_are_read_from_the_log(tmp_path: Path) -> None:
    """So ondatra knows whether a job is large before it reads any rows."""
    commit(tmp_path, 0, CREATED)
    commit(tmp_path, 1, add(10), {"cdc": {"size": 5}})
    commit(tmp_path, 2, add(7), {"remove": {"size": 10, "dataChange": True}}, {"remove": {"dataChange": True}})
    assert 17 == count_changed_bytes(tmp_path, after=1, upto=2)
    assert 32 == count_changed_bytes(tmp_path, after=-1, upto=2)
    assert read_table_size(tmp_path) is None
    (tmp_path / "_delta_log" / f"{2:020}.crc").write_text('{"tableSizeBytes": 7}')
    assert 7 == read_table_size(tmp_path)


def test_types_have_the_names_that_spark_uses() -> None:
    nested = {
        "type": "struct",
        "fields": [
            {"name": "a", "type": {"type": "array", "elementType": "short"}},
            {"name": "b", "type": {"type": "map", "keyType": "byte", "valueType": "decimal(10,2)"}},
        ],
    }
    assert "struct<a:array<smallint>,b:map<tinyint,decimal(10,2)>>" == spark_type_name(nested)


def test_the_table_of_invalid_rows_is_next_to_the_model_table() -> None:
    assert "/w/mart/things__invalid" == invalid_table_path("/w/mart/things")


def test_json_with_spaces_is_read(tmp_path: Path) -> None:
    """Another program may write it. A change in a source that isn't found would never be read."""
    commit(tmp_path, 0, info(), CREATED, add())
    line = json.dumps({"add": {"path": "y", "size": 1, "dataChange": True}})
    (tmp_path / "_delta_log" / f"{1:020}.json").write_text(f'{{ "commitInfo": {{}} }}\r\n {line}\r\n')
    state = read_table_state(tmp_path)
    assert state is not None
    assert (1, 1) == (state.version, state.log_version)


def test_text_that_looks_like_an_action_is_ignored(tmp_path: Path) -> None:
    """Statistics contain the user's own values."""
    commit(tmp_path, 0, info(), CREATED, add())
    stats = json.dumps({"minValues": {"name": '{"add":{"dataChange":true}}'}})
    commit(tmp_path, 1, {"add": {"path": "y", "size": 1, "dataChange": False, "stats": stats}})
    state = read_table_state(tmp_path)
    assert state is not None
    assert 0 == state.version


@pytest.mark.parametrize("name", ["checkpoint.parquet", "checkpoint.0000000001.0000000001.parquet"])
def test_a_log_with_only_a_checkpoint_has_a_state(tmp_path: Path, name: str) -> None:
    """Other programs delete commits after a month."""
    log = tmp_path / "_delta_log"
    log.mkdir()
    row = {**CREATED["metaData"], "configuration": [("ondatra.kind", "merge")]}
    text = pa.string()
    of = pa.struct([("id", text), ("schemaString", text), ("configuration", pa.map_(text, text))])
    pq.write_table(pa.table({"metaData": pa.array([None, row], of)}), log / f"{7:020}.{name}")
    state = read_table_state(tmp_path)
    assert state is not None
    assert ("table-1", 7, 7) == (state.table_id, state.version, state.log_version)


def test_a_json_checkpoint_is_read(tmp_path: Path) -> None:
    """Its name contains an id, and begins like the name of a commit."""
    log = tmp_path / "_delta_log"
    log.mkdir()
    name = f"{7:020}.checkpoint.80a083e8-7026-4e79-81be-64bd76c43a11.json"
    (log / name).write_text(json.dumps({"protocol": {}}) + "\n" + json.dumps(CREATED) + "\n")
    state = read_table_state(tmp_path)
    assert state is not None
    assert 7 == state.log_version


def test_a_log_without_the_commits_of_its_rows_still_has_a_version(tmp_path: Path) -> None:
    """It may differ from the version before, which costs one more read of the rows."""
    commit(tmp_path, 8, info(), CREATED)
    commit(tmp_path, 9, info(), add(changes=False))
    state = read_table_state(tmp_path)
    assert state is not None
    assert (8, 9) == (state.version, state.log_version)


def test_a_restored_table_has_a_newer_version(tmp_path: Path) -> None:
    """Its rows are older, but its version isn't."""
    commit(tmp_path, 0, info(), CREATED, add())
    commit(tmp_path, 1, info(), add())
    commit(tmp_path, 2, info(), {"remove": {"path": "x.parquet", "dataChange": True}})
    state = read_table_state(tmp_path)
    assert state is not None
    assert 2 == state.version


def test_a_table_may_have_a_file_url(tmp_path: Path) -> None:
    table = tmp_path / "a table"
    commit(table, 0, info(), CREATED)
    state = read_table_state(table.as_uri())
    assert state is not None
    assert 0 == state.version


def test_a_table_on_an_unsupported_storage_raises_a_clear_error() -> None:
    with pytest.raises(WarehouseError, match="can't be read without Spark"):
        read_table_state("gs://bucket/table")


# --- the last transaction of a source


def transaction(source: str, number: int) -> dict[str, object]:
    return {"txn": {"appId": source, "version": number, "lastUpdated": 1}}


def write_log(table: Path, name: str, *actions: dict[str, object]) -> None:
    log = table / "_delta_log"
    log.mkdir(parents=True, exist_ok=True)
    (log / name).write_text("\n".join(map(json.dumps, actions)))


def test_the_newest_transaction_of_a_source_is_found(tmp_path):
    """A writer stores in its commits where it has to continue. Commits of other writers don't matter."""
    assert read_last_transaction(tmp_path / "t", "a") is None
    write_log(tmp_path / "t", f"{0:020}.json", {"commitInfo": {}}, transaction("a", 3))
    write_log(tmp_path / "t", f"{1:020}.json", transaction("a", 7), transaction("b", 1))
    write_log(tmp_path / "t", f"{2:020}.json", {"commitInfo": {}})
    assert (7, 1, None) == tuple(read_last_transaction(tmp_path / "t", source) for source in "abc")


@pytest.mark.parametrize("kind", ["json", "parquet"])
def test_a_transaction_is_kept_in_the_checkpoint_after_its_commit_is_deleted(tmp_path, kind):
    """Commits after the checkpoint have newer numbers, so they are read first."""
    rows = [{"txn": {"appId": "a", "version": 7}}, {"txn": {"appId": "b", "version": 2}}, {"txn": None}]
    if kind == "json":
        write_log(tmp_path / "t", f"{5:020}.checkpoint.0af.json", *rows)
    else:
        (tmp_path / "t" / "_delta_log").mkdir(parents=True)
        path = tmp_path / "t" / "_delta_log" / f"{5:020}.checkpoint.parquet"
        pq.write_table(pa.Table.from_pylist(rows), path)
    write_log(tmp_path / "t", f"{4:020}.json", transaction("a", 6))
    write_log(tmp_path / "t", f"{6:020}.json", transaction("b", 3))
    assert (7, 3, None) == tuple(read_last_transaction(tmp_path / "t", source) for source in "abc")
