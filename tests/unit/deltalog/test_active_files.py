"""The active files of a table: ondatra knows them exactly, or leaves the table to Spark."""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from support.spark.pyarrow_delta_table import write_table

from ondatra_dagster.deltalog.active_files import UnsupportedTableError, read_table_snapshot

ROWS = pa.table({"id": [1, 2]})


def act(table: Path, version: int, *actions: dict[str, Any]) -> None:
    (table / "_delta_log" / f"{version:020}.json").write_text("\n".join(map(json.dumps, actions)))


def test_a_folder_without_a_log_is_not_a_table(tmp_path: Path) -> None:
    assert read_table_snapshot(str(tmp_path)) is None


def test_a_file_that_was_removed_is_not_read(tmp_path: Path) -> None:
    write_table(tmp_path, ROWS)
    write_table(tmp_path, ROWS)
    act(tmp_path, 2, {"remove": {"path": "part%200.parquet", "dataChange": True}})
    live = read_table_snapshot(str(tmp_path))
    assert live is not None
    assert [f"{tmp_path}/part 1.parquet"] == [file.path for file in live.files]
    assert 2 == live.rows


@pytest.mark.parametrize(
    ("of_file", "expected"),
    [
        ({"path": "file:/other%20place/x.parquet"}, "/other place/x.parquet"),
        ({"path": "file:///other/x.parquet"}, "/other/x.parquet"),
        ({"path": "s3a://lake/x.parquet"}, "s3a://lake/x.parquet"),
    ],
)
def test_a_file_may_be_outside_of_the_table(tmp_path: Path, of_file: dict[str, Any], expected: str) -> None:
    """The files of a clone are."""
    write_table(tmp_path, ROWS, **of_file)
    live = read_table_snapshot(str(tmp_path))
    assert live is not None
    assert [expected] == [file.path for file in live.files]


@pytest.mark.parametrize(
    ("action", "said"),
    [
        ({"protocol": {"minReaderVersion": 3, "readerFeatures": ["deletionVectors", "new"]}}, "new"),
        ({"protocol": {"minReaderVersion": 4}}, "version 4"),
        ({"add": {"path": "x", "deletionVector": {"storageType": "u"}}}, "deletion vectors"),
        ({"metaData": {"configuration": {"delta.columnMapping.mode": "id"}}}, "mapping by id"),
        ({"metaData": {}}, "mapping"),
    ],
)
def test_a_table_with_unknown_features_is_left_to_spark(tmp_path: Path, action: dict[str, Any], said: str) -> None:
    write_table(tmp_path, ROWS)
    act(tmp_path, 1, action)
    with pytest.raises(UnsupportedTableError, match=said):
        read_table_snapshot(str(tmp_path))


def test_a_log_with_a_gap_is_left_to_spark(tmp_path: Path) -> None:
    write_table(tmp_path, ROWS)
    act(tmp_path, 2, {"commitInfo": {}})
    with pytest.raises(UnsupportedTableError, match="gaps"):
        read_table_snapshot(str(tmp_path))


def test_the_number_of_rows_is_unknown_without_statistics(tmp_path: Path) -> None:
    write_table(tmp_path, ROWS, stats=None)
    live = read_table_snapshot(str(tmp_path))
    assert live is not None
    assert live.rows is None


def test_a_file_that_is_added_again_with_a_deletion_vector_stays_active(tmp_path: Path) -> None:
    """Delta adds the new form first and then removes the old one, both with the same path."""
    write_table(tmp_path, ROWS)
    vector = {"storageType": "u", "pathOrInlineDv": "ab", "offset": 1}
    again = {"path": "part%200.parquet", "deletionVector": vector}
    act(tmp_path, 1, {"add": again}, {"remove": {"path": "part%200.parquet", "dataChange": True}})
    with pytest.raises(UnsupportedTableError, match="deletion vectors"):
        read_table_snapshot(str(tmp_path))
