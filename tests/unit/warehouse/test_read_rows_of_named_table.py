"""The reading of a table's rows from its files. A table that Spark would read in another way is refused."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.spark.pyarrow_delta_table import write_table

from ondatra_dagster.deltalog.active_files import ActiveFile, TableSnapshot, UnsupportedTableError, read_table_snapshot
from ondatra_dagster.warehouse.read_rows_of_named_table import arrow_type, read_row_pages


def a_field(name: str, of: Any, physical: str) -> dict[str, Any]:
    return {"name": name, "type": of, "metadata": {"delta.columnMapping.physicalName": physical}}


def read(table: TableSnapshot, **how: Any) -> list[dict[str, Any]]:
    return [row for page in read_row_pages(table, "", **how) for row in page.to_pylist()]


def a_table(tmp_path: Path, rows: pa.Table, *fields: dict[str, Any], **partition: str | None) -> TableSnapshot:
    path = tmp_path / "x.parquet"
    pq.write_table(rows, path)
    return TableSnapshot(
        fields=fields,
        is_mapped=True,
        partition_columns=frozenset(field["name"] for field in fields if field["name"].startswith("part")),
        files=(ActiveFile(str(path), partition, rows.num_rows),),
    )


def test_columns_have_the_tables_names_at_every_depth(tmp_path: Path) -> None:
    """In the files their names are col-…, also in structs, lists and maps."""
    inner = {"type": "struct", "fields": [a_field("in ner", "long", "c2")]}
    listed = {"type": "array", "elementType": inner}
    rows = pa.table({"c1": [[{"c2": 1}], None], "c9": [1, 2]})
    table = a_table(tmp_path, rows, a_field("Out, er", listed, "c1"))
    assert [{"Out, er": [{"in ner": 1}]}, {"Out, er": None}] == read(table)


def test_an_old_file_lacks_a_new_column_and_has_a_narrower_type(tmp_path: Path) -> None:
    rows = pa.table({"c1": pa.array([1], pa.int32())})
    table = a_table(tmp_path, rows, a_field("id", "long", "c1"), a_field("new", "string", "c2"))
    assert [{"id": 1, "new": None}] == read(table)


def test_partition_values_come_from_the_log(tmp_path: Path) -> None:
    rows = pa.table({"c1": ["a"]})
    fields = [a_field("id", "string", "c1"), a_field("part", "long", "p"), a_field("part2", "date", "q")]
    assert [{"id": "a", "part": 7, "part2": None}] == read(a_table(tmp_path, rows, *fields, p="7", q=None))
    with pytest.raises(UnsupportedTableError, match="partitions by timestamp"):
        read(a_table(tmp_path, rows, a_field("part", "timestamp", "p"), p="2026-01-01 00:00:00"))


def test_dates_of_the_old_calendar_are_left_to_spark(tmp_path: Path) -> None:
    """They are wrong by days, and only the file's footer shows it."""
    rows = pa.table({"id": ["a"]}).replace_schema_metadata({"org.apache.spark.legacyDateTime": ""})
    with pytest.raises(UnsupportedTableError, match="old calendar"):
        read(a_table(tmp_path, rows, a_field("id", "string", "id")))


@pytest.mark.parametrize("written", ["variant", "void", "interval day", {"type": "udt"}])
def test_an_unknown_type_is_left_to_spark(written: Any) -> None:
    with pytest.raises(UnsupportedTableError, match="the type"):
        arrow_type(written)


def test_a_file_of_another_type_is_left_to_spark(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedTableError):
        read(a_table(tmp_path, pa.table({"c1": ["x"]}), a_field("id", "long", "c1")))


def test_reading_stops_at_the_limit(tmp_path: Path) -> None:
    """Later files aren't opened."""
    write_table(tmp_path, pa.table({"id": [1, 2]}))
    write_table(tmp_path, pa.table({"id": [3, 4]}))
    (tmp_path / "part 1.parquet").unlink()
    table = read_table_snapshot(str(tmp_path))
    assert table is not None
    assert [{"id": 1}, {"id": 2}] == [
        row for page in read_row_pages(table, str(tmp_path), limit=2) for row in page.to_pylist()
    ]
