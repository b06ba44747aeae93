"""The table reader that needs no Spark: it returns what Spark returns, or refuses."""

import dataclasses

import pytest
from support.spark.model_tables import ModelTables, build_model, values_query

from ondatra_dagster.deltalog.active_files import UnsupportedTableError, read_table_snapshot
from ondatra_dagster.planning.find_table_and_columns import NamedTable
from ondatra_dagster.project.settings.storage_access import StorageAddress, s3_access_of
from ondatra_dagster.warehouse.arrow_to_json import json_columns, object_texts
from ondatra_dagster.warehouse.read_rows_of_named_table import read_row_pages, read_table_rows

pytestmark = pytest.mark.spark

EVERYTHING = """
select id, 'é' || id as `Größe, in cm`, cast(id as decimal(20, 3)) / 3 as amount, cast(id as float) / 3 as f,
  cast(id as double) / 7 as d, id % 2 = 0 as even, cast(id as tinyint) as b, cast(id as smallint) as s,
  cast('x' as binary) as raw, date'1582-10-04' as old_day, date'2026-01-02' as day,
  timestamp'0001-01-01 00:00:00' as first, timestamp'2026-01-02 03:04:05.678901' as at,
  timestamp_ntz'1969-12-31 23:59:59.5' as ntz,
  named_struct('a', id, 'B b', array(named_struct('c', 'x', 'd', cast(null as int)), null)) as nested,
  map('k', named_struct('v', id), 'n', null) as m, cast(array() as array<int>) as none,
  if(id = 2, null, named_struct('a', id)) as maybe, if(id = 2, null, array(id, null)) as list
from values (1), (2), (3) as t(id)
"""


def both(model_tables: ModelTables, path: str) -> tuple[list[str], list[str]]:
    """Return the rows that we read and those that Spark reads, as texts."""
    table = read_table_snapshot(path)
    assert table is not None
    ours = [
        text for page in read_row_pages(table, path) for text in object_texts(page.column_names, json_columns(page))
    ]
    hidden = ("__ondatra_rowid", "_content_hash")
    rows = model_tables.warehouse.session.read.format("delta").load(path).drop(*hidden).toArrow()
    return sorted(ours), sorted(object_texts(rows.column_names, json_columns(rows)))


@pytest.mark.parametrize("kind", ["table", "tracked"])
def test_every_type_is_read_as_spark_reads_it(model_tables: ModelTables, kind: str) -> None:
    model = build_model(kind, EVERYTHING)
    model_tables.write(model)
    ours, theirs = both(model_tables, model_tables.path(model))
    assert theirs == ours
    assert 3 == len(ours)


def test_a_table_with_a_history_is_read_in_its_current_state(model_tables: ModelTables) -> None:
    """A checkpoint has some of the commits. Columns were added, dropped, added again and made wider."""
    first = build_model("merge", values_query("1, 'a'", "2, 'b'"))
    model_tables.write(first)
    model_tables.warehouse.session.sql(
        f"alter table delta.`{model_tables.path(first)}` set tblproperties ('delta.checkpointInterval' = '3')"
    ).collect()
    for number in range(3):
        model_tables.write_query("merge", values_query(f"1, 'a{number}'", f"{number + 2}, 'b'"))
    checkpoints = f"{model_tables.path(first)}/_delta_log/*.checkpoint*.parquet"
    assert model_tables.warehouse.session.read.parquet(checkpoints).count()
    columns = "cast(id as bigint) as id, named_struct('n', id) as name, 1.5 as more"
    wider = f"select {columns} from values (1), (50) as t(id)"
    without = "select id from values (1), (60) as t(id)"
    model_tables.write_query("merge", without)
    model_tables.write_query("merge", wider)
    model = build_model("merge", wider.replace("(50)", "(51)"))
    result = model_tables.write(model)
    ours, theirs = both(model_tables, model_tables.path(model))
    assert theirs == ours
    live = read_table_snapshot(model_tables.path(model))
    assert live is not None
    assert result.rows == live.rows == len(ours)


def test_a_table_in_partitions_is_read(model_tables: ModelTables) -> None:
    """The partition values are only in the names of folders."""
    path = str(model_tables.warehouse.settings.root / "parts")
    session = model_tables.warehouse.session
    session.sql(
        f"create table delta.`{path}` (id int, `a day` date, `t/x` string, n int) using delta"
        " partitioned by (`a day`, `t/x`, n) tblproperties ('delta.columnMapping.mode' = 'name')"
    ).collect()
    session.sql(
        f"insert into delta.`{path}` values (1, date'2026-01-02', 'a b/c%20', 7), (2, null, null, null)"
    ).collect()
    ours, theirs = both(model_tables, path)
    assert theirs == ours


def test_a_row_that_a_deletion_vector_hides_is_never_shown(model_tables: ModelTables) -> None:
    """The row is still in the file, so the reader refuses the table."""
    path = str(model_tables.warehouse.settings.root / "vectors")
    session = model_tables.warehouse.session
    session.sql(
        f"create table delta.`{path}` using delta tblproperties ('delta.enableDeletionVectors' = 'true')"
        " as select /*+ coalesce(1) */ id from range(1000)"
    ).collect()
    ours, theirs = both(model_tables, path)
    assert theirs == ours
    session.sql(f"delete from delta.`{path}` where id = 3").collect()
    with pytest.raises(UnsupportedTableError, match="deletion vectors"):
        both(model_tables, path)


def test_a_clone_is_read_from_the_files_of_another_table(model_tables: ModelTables) -> None:
    model = build_model("table", values_query("1, 'a'"))
    model_tables.write(model)
    path = model_tables.path(model) + " clone"
    model_tables.warehouse.session.sql(
        f"create table delta.`{path}` shallow clone delta.`{model_tables.path(model)}`"
    ).collect()
    ours, theirs = both(model_tables, path)
    assert theirs == ours


def test_rows_are_cut_off_and_counted(model_tables: ModelTables) -> None:
    model = build_model("table", "select id from range(100)")
    model_tables.write(model)
    table = NamedTable(
        name="x", address=StorageAddress(model_tables.path(model), s3_access_of(model_tables.path(model))), remedy=""
    )
    table_rows = read_table_rows(dataclasses.replace(model_tables.warehouse.settings), table, limit=7)
    assert (["id"], 7, 100) == (table_rows.columns, len(list(table_rows.json_rows())), table_rows.row_count)
