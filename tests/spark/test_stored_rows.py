"""What is read of a table without Spark is what Spark reads, or nothing."""

import dataclasses

import pytest
from support.model_tables import ModelTables, a_model, values

from ondatra_dagster.planning.live_files import BeyondUsError, live_table
from ondatra_dagster.planning.named_tables import NamedTable
from ondatra_dagster.project.settings.addresses import Address, s3_access
from ondatra_dagster.warehouse.payloads import json_columns, object_texts
from ondatra_dagster.warehouse.stored_rows import stored_rows
from ondatra_dagster.warehouse.table_rows import rows_of

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


def both(lake: ModelTables, path: str) -> tuple[list[str], list[str]]:
    """What we read and what Spark reads, as texts."""
    table = live_table(path)
    assert table is not None
    ours = [
        text for page in rows_of(table, path) for text in object_texts(page.column_names, json_columns(page))
    ]
    hidden = ("__ondatra_rowid", "_content_hash")
    rows = lake.warehouse.session.read.format("delta").load(path).drop(*hidden).toArrow()
    return sorted(ours), sorted(object_texts(rows.column_names, json_columns(rows)))


@pytest.mark.parametrize("kind", ["table", "tracked"])
def test_every_type_is_read_as_spark_reads_it(lake: ModelTables, kind: str) -> None:
    model = a_model(kind, EVERYTHING)
    lake.write(model)
    ours, theirs = both(lake, lake.path(model))
    assert theirs == ours
    assert 3 == len(ours)


def test_a_table_with_a_history_is_read_as_it_is_now(lake: ModelTables) -> None:
    """Commits of which a checkpoint holds some; columns came, went, came again and grew wider."""
    first = a_model("merge", values("1, 'a'", "2, 'b'"))
    lake.write(first)
    lake.warehouse.session.sql(
        f"alter table delta.`{lake.path(first)}` set tblproperties ('delta.checkpointInterval' = '3')"
    ).collect()
    for number in range(3):
        lake.run("merge", values(f"1, 'a{number}'", f"{number + 2}, 'b'"))
    checkpoints = f"{lake.path(first)}/_delta_log/*.checkpoint*.parquet"
    assert lake.warehouse.session.read.parquet(checkpoints).count()
    given = "cast(id as bigint) as id, named_struct('n', id) as name, 1.5 as more"
    wider = f"select {given} from values (1), (50) as t(id)"
    without = "select id from values (1), (60) as t(id)"
    lake.run("merge", without)
    lake.run("merge", wider)
    model = a_model("merge", wider.replace("(50)", "(51)"))
    written = lake.write(model)
    ours, theirs = both(lake, lake.path(model))
    assert theirs == ours
    live = live_table(lake.path(model))
    assert live is not None
    assert written.rows == live.rows == len(ours)


def test_a_table_in_partitions_is_read(lake: ModelTables) -> None:
    """Their values are in the names of folders only."""
    path = str(lake.warehouse.settings.root / "parts")
    session = lake.warehouse.session
    session.sql(
        f"create table delta.`{path}` (id int, `a day` date, `t/x` string, n int) using delta"
        " partitioned by (`a day`, `t/x`, n) tblproperties ('delta.columnMapping.mode' = 'name')"
    ).collect()
    session.sql(
        f"insert into delta.`{path}` values (1, date'2026-01-02', 'a b/c%20', 7), (2, null, null, null)"
    ).collect()
    ours, theirs = both(lake, path)
    assert theirs == ours


def test_a_row_that_a_deletion_vector_hides_is_never_shown(lake: ModelTables) -> None:
    """It is in the file still."""
    path = str(lake.warehouse.settings.root / "vectors")
    session = lake.warehouse.session
    session.sql(
        f"create table delta.`{path}` using delta tblproperties ('delta.enableDeletionVectors' = 'true')"
        " as select /*+ coalesce(1) */ id from range(1000)"
    ).collect()
    ours, theirs = both(lake, path)
    assert theirs == ours
    session.sql(f"delete from delta.`{path}` where id = 3").collect()
    with pytest.raises(BeyondUsError, match="deletion vectors"):
        both(lake, path)


def test_a_clone_is_read_from_the_files_of_another_table(lake: ModelTables) -> None:
    model = a_model("table", values("1, 'a'"))
    lake.write(model)
    path = lake.path(model) + " clone"
    lake.warehouse.session.sql(
        f"create table delta.`{path}` shallow clone delta.`{lake.path(model)}`"
    ).collect()
    ours, theirs = both(lake, path)
    assert theirs == ours


def test_rows_are_cut_off_and_counted(lake: ModelTables) -> None:
    model = a_model("table", "select id from range(100)")
    lake.write(model)
    table = NamedTable(name="x", address=Address(lake.path(model), s3_access(lake.path(model))), remedy="")
    found = stored_rows(dataclasses.replace(lake.warehouse.settings), table, limit=7)
    assert (["id"], 7, 100) == (found.columns, len(list(found.values())), found.total)
