"""The changes that each kind leaves in its feed: exactly those that the contract's table names."""

import pytest
from support.spark.model_tables import QUERY_KINDS, ModelTables, build_model, values_query

from ondatra_dagster.deltalog.log_reader import read_table_state
from ondatra_dagster.errors import WarehouseError
from ondatra_dagster.planning.find_table_and_columns import invalid_table_path
from ondatra_dagster.project.model_kinds import KINDS

pytestmark = pytest.mark.spark

KEEPING = {"append": 5, "merge": 4, "scd2": 5}  # kinds that keep missing rows, and their rows after CHANGED

FIRST = values_query("1, 'a'", "2, 'b'", "3, null")
CHANGED = values_query("1, 'a'", "2, 'B'", "4, 'd'")  # 2 differs, 3 is gone, 4 is new


def test_table_replaces_all_rows_when_any_row_differs(model_tables: ModelTables) -> None:
    """The new rows have new rowids, because nothing shows which old row each of them replaces."""
    first = model_tables.write_query("table", FIRST)
    model = build_model("table", CHANGED)
    assert [("insert", 1, "a"), ("insert", 2, "b"), ("insert", 3, None)] == sorted(model_tables.feed_values(model, 0))
    result = model_tables.write(model)
    assert (True, 3, 3, 0, 3) == (result.has_changes, result.rows, result.inserted, result.updated, result.deleted)
    changes = model_tables.feed_values(model, first.version)
    assert ["delete"] * 3 + ["insert"] * 3 == [change[0] for change in changes]
    assert {("delete", 1, "a"), ("delete", 2, "b"), ("delete", 3, None)} == set(changes[:3])
    assert {("insert", 1, "a"), ("insert", 2, "B"), ("insert", 4, "d")} == set(changes[3:])
    told_of = [*model_tables.changes(model, 0, first.version), *model_tables.changes(model, first.version)]
    assert KINDS["table"].change_types == {change.change_type for change in told_of}


def test_a_row_that_was_inserted_and_deleted_is_not_in_the_feed(model_tables: ModelTables) -> None:
    """The row was never sent, so no delete is needed."""
    model = build_model("table", CHANGED)
    model_tables.write_query("table", FIRST)
    model_tables.write(model)
    assert ["insert"] * 3 == [change[0] for change in model_tables.feed_values(model, 0)]


def test_merge_writes_rows_that_differ_and_deletes_nothing(model_tables: ModelTables) -> None:
    """An unchanged row in the feed would be sent again without a need."""
    first = model_tables.write_query("merge", FIRST)
    model = build_model("merge", CHANGED)
    assert [("insert", 1, "a"), ("insert", 2, "b"), ("insert", 3, None)] == model_tables.feed_values(model, 0)
    result = model_tables.write(model)
    assert (True, 4, 1, 1, 0) == (result.has_changes, result.rows, result.inserted, result.updated, result.deleted)
    assert [("update_preimage", 2, "b"), ("update_postimage", 2, "B"), ("insert", 4, "d")] == model_tables.feed_values(
        model, first.version
    )
    assert KINDS["merge"].change_types == {change.change_type for change in model_tables.changes(model, 0)}


def test_a_merged_row_keeps_its_rowid(model_tables: ModelTables) -> None:
    """Statuses, records and retries refer to a rowid."""
    model_tables.write_query("merge", FIRST)
    model = build_model("merge", CHANGED)
    before = {change.key: change.rowid for change in model_tables.changes(model, None)}
    model_tables.write(model)
    after = {change.key: change.rowid for change in model_tables.changes(model, None)}
    assert before == {key: rowid for key, rowid in after.items() if key != "4"}
    assert {before["2"]} == {change.rowid for change in model_tables.changes(model, 0) if change.key == "2"}


def test_tracked_rewrites_the_groups_that_differ(model_tables: ModelTables) -> None:
    """A group is sent as a whole document. A removed group is sent as deletes, and an equal one isn't sent."""
    first = model_tables.write_query("tracked", values_query("1, 'a'", "1, 'b'", "2, 'c'", "3, 'd'", "3, 'e'"))
    model = build_model("tracked", values_query("1, 'b'", "1, 'a'", "2, 'c'", "2, 'new'", "4, 'f'"))
    result = model_tables.write(model)
    assert (True, 5, 3, 0, 3) == (result.has_changes, result.rows, result.inserted, result.updated, result.deleted)
    changes = model_tables.feed_values(model, first.version)
    assert [("delete", 2, "c")] == changes[:1]
    assert {("insert", 2, "c"), ("insert", 2, "new")} == set(changes[1:3])
    assert {("delete", 3, "d"), ("delete", 3, "e")} == set(changes[3:5])
    assert [("insert", 4, "f")] == changes[5:]
    assert KINDS["tracked"].change_types == {change.change_type for change in model_tables.changes(model, 0)}
    assert ["2", "2", "2", "3", "3", "4"] == [change.key for change in model_tables.changes(model, first.version)]


@pytest.mark.parametrize("kind", QUERY_KINDS)
def test_a_run_without_changes_makes_no_commit(model_tables: ModelTables, kind: str) -> None:
    """A commit is a version, and a version starts everything downstream."""
    has_duplicates = not KINDS[kind].checks_duplicates
    query = values_query("1, 'a'", "1, 'a'" if has_duplicates else "5, 'a'", "2, null")
    model_tables.write_query(kind, query)
    model = build_model(kind, f"{query} order by id desc")
    before = model_tables.state(model).log_version
    result = model_tables.write(model)
    assert (False, before, 3) == (result.has_changes, model_tables.state(model).log_version, result.rows)


@pytest.mark.parametrize("kind", QUERY_KINDS)
def test_a_write_is_one_commit_with_its_metadata(model_tables: ModelTables, kind: str) -> None:
    """The metadata says what the version was computed from. Without it the next run would compute everything again."""
    first = model_tables.write_query(kind, FIRST)
    model = build_model(kind, CHANGED)
    result = model_tables.write(model, **{"raw.things": "abc@7"})
    state = model_tables.state(model)
    assert (first.version + 1, first.version + 1) == (result.version, state.log_version)
    assert state.commit_metadata is not None
    assert (CHANGED, {"raw.things": "abc@7"}, result.rows) == (
        state.commit_metadata.definition,
        state.commit_metadata.inputs,
        state.commit_metadata.rows,
    )


PROPERTIES = {
    "delta.enableChangeDataFeed": "true",
    "delta.columnMapping.mode": "name",
    "delta.logRetentionDuration": "interval 3650 days",
    "delta.deletedFileRetentionDuration": "interval 3650 days",
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_table_has_a_change_feed_and_keeps_its_history(model_tables: ModelTables, kind: str) -> None:
    """A feed must reach back to its slowest reader, but by default Delta deletes it after a week."""
    query = "select cast(null as int) as id, 'a' as name"  # invalid in a kind with a key
    model = build_model(kind, query if KINDS[kind].has_query else f"{query} where false")
    model_tables.write(model)
    tables = [model_tables.state(model), read_table_state(invalid_table_path(model_tables.path(model)))]
    properties = [{name: table.properties.get(name) for name in PROPERTIES} for table in tables if table]
    assert [PROPERTIES] * (2 if KINDS[kind].checks_nulls else 1) == properties


@pytest.mark.parametrize("kind", QUERY_KINDS)
def test_an_empty_result_empties_a_table_unless_its_kind_keeps_rows(model_tables: ModelTables, kind: str) -> None:
    model_tables.write_query(kind, FIRST)
    model = build_model(kind, f"{FIRST} where id > 100")
    result = model_tables.write(model)
    keeps = kind in (*KEEPING, "partition")  # an empty result replaces no partition
    assert (3 if keeps else 0) == result.rows == model_tables.rows(model).count()


@pytest.mark.parametrize("kind", QUERY_KINDS)
def test_an_empty_first_result_creates_an_empty_table(model_tables: ModelTables, kind: str) -> None:
    """A reader of the table must find its columns."""
    model = build_model(kind, f"{FIRST} where id > 100")
    result = model_tables.write(model)
    assert (False, 0, 0) == (result.has_changes, result.version, result.rows)
    columns = [column.name for column in model_tables.state(model).columns]
    assert ["id", "name", *KINDS[kind].own_columns] == columns
    assert model_tables.write(build_model(kind, FIRST)).inserted == 3


def test_a_table_that_another_program_changed_is_corrected(model_tables: ModelTables) -> None:
    """The query is compared with the current table, and not with the table that the last run wrote."""
    model_tables.write_query("table", FIRST)
    model = build_model("table", FIRST)
    model_tables.warehouse.session.sql(f"delete from delta.`{model_tables.path(model)}` where id = 1").collect()
    assert model_tables.write(model).has_changes
    assert model_tables.rows(model).count() == 3


@pytest.mark.parametrize("kind", QUERY_KINDS)
def test_a_failed_query_leaves_the_table_unchanged(model_tables: ModelTables, kind: str) -> None:
    """After the first failed run there is no table. After the second one the old table is still there."""
    failing = "select 1 as id, cast('x' as int) / 0 as name"
    model = build_model(kind, failing)
    with pytest.raises(WarehouseError, match=r"^models/mart/things\.sql:3: ") as failure:
        model_tables.write(model)
    assert "\n" not in str(failure.value)
    assert "at org.apache" not in str(failure.value)
    model_tables.write_query(kind, FIRST)
    before = model_tables.state(model).log_version
    with pytest.raises(WarehouseError):
        model_tables.write_query(kind, f"{FIRST} union all select id, raise_error('no') from values (9) as t(id)")
    assert before == model_tables.state(model).log_version


def test_partition_replaces_only_partitions_that_differ(model_tables: ModelTables) -> None:
    """The query decides only about the partitions that it returns."""
    first = model_tables.write_query("partition", values_query("1, 'a'", "1, 'b'", "2, 'c'", "3, 'd'", "null, 'n'"))
    model = build_model("partition", values_query("1, 'a'", "1, 'B'", "2, 'c'", "4, 'e'", "null, 'n'"))
    result = model_tables.write(model)
    assert (True, 6, 3, 0, 2) == (result.has_changes, result.rows, result.inserted, result.updated, result.deleted)
    changes = model_tables.feed_values(model, first.version)
    assert {("delete", 1, "a"), ("delete", 1, "b")} == set(changes[:2])
    assert {("insert", 1, "a"), ("insert", 1, "B"), ("insert", 4, "e")} == set(changes[2:])
    told_of = [*model_tables.changes(model, 0, first.version), *model_tables.changes(model, first.version)]
    assert KINDS["partition"].change_types == {change.change_type for change in told_of}
    assert (False, 6) == (model_tables.write(model).has_changes, model_tables.rows(model).count())


@pytest.mark.parametrize("key", ["''", "'a/b=c%'", "cast('NaN' as double)", "struct(1, 'x')", "X'00'"])
def test_a_partition_may_have_any_key(model_tables: ModelTables, key: str) -> None:
    """Not every value can be the name of a folder. An empty text would come back as null."""
    query = f"select {key} as id, 'a' as name union all select null, 'b'"
    model_tables.write_query("partition", query)
    model = build_model("partition", query)
    assert not model_tables.write(model).has_changes
    assert 1 == model_tables.write_query("partition", query.replace("'a' as", "'A' as")).deleted
    assert 2 == model_tables.rows(model).select("id").distinct().count()


def test_scd2_closes_and_adds_versions(model_tables: ModelTables) -> None:
    """A closed version ends where the next one begins: at the version of the commit itself."""
    first = model_tables.write_query("scd2", FIRST)
    model = build_model("scd2", CHANGED)
    result = model_tables.write(model)
    assert (True, 5, 2, 2, 0) == (result.has_changes, result.rows, result.inserted, result.updated, result.deleted)
    begin, now = first.version, result.version
    assert begin + 1 == now
    assert {
        ("update_preimage", 2, "b", begin, None, True),
        ("update_postimage", 2, "b", begin, now, False),
        ("update_preimage", 3, None, begin, None, True),
        ("update_postimage", 3, None, begin, now, False),
        ("insert", 2, "B", now, None, True),
        ("insert", 4, "d", now, None, True),
    } == set(model_tables.feed_values(model, begin))
    assert {("insert", *row, begin, None, True) for row in ((1, "a"), (2, "b"), (3, None))} == set(
        model_tables.feed_values(model, 0, begin)
    )
    told_of = [*model_tables.changes(model, 0, begin), *model_tables.changes(model, begin)]
    assert KINDS["scd2"].change_types == {change.change_type for change in told_of}
    # across both versions: a row that was never sent is sent closed
    changes = model_tables.feed_values(model, 0)
    assert {"insert"} == {change[0] for change in changes}
    assert ("insert", 2, "b", begin, now, False) in changes


def test_a_key_that_comes_back_opens_a_new_version(model_tables: ModelTables) -> None:
    """This holds even with the same values, because the key was missing in between."""
    model_tables.write_query("scd2", FIRST)
    gone = model_tables.write_query("scd2", CHANGED)
    model = build_model("scd2", FIRST)
    back = model_tables.write(model)
    versions = {tuple(row) for row in model_tables.rows(model).where("id = 3").drop("__ondatra_rowid").collect()}
    assert {(3, None, gone.version - 1, gone.version, False), (3, None, back.version, None, True)} == versions


def test_a_valid_from_snapshot_is_the_version_of_its_own_commit(model_tables: ModelTables) -> None:
    """OPTIMIZE and ALTER create versions too."""
    model_tables.write_query("scd2", FIRST)
    model = build_model("scd2", f"select *, 1 as more from ({CHANGED})")
    model_tables.warehouse.session.sql(f"optimize delta.`{model_tables.path(model)}`").collect()
    result = model_tables.write(model)
    assert model_tables.state(model).log_version == result.version
    assert {result.version} == {
        row[0] for row in model_tables.rows(model).where("is_current").select("valid_from_snapshot").collect()
    }


def test_events_have_a_table_with_their_columns(model_tables: ModelTables) -> None:
    """The table must exist before the first event, and for its readers."""
    model = build_model("events", "select cast(null as string) as name, cast(null as int) as n where false")
    result = model_tables.write(model)
    assert (False, 0) == (result.has_changes, result.rows)
    assert ["name", "n", "_extra"] == [column.name for column in model_tables.state(model).columns]
    model_tables.write_query("events", "select cast(null as string) as name, cast(null as date) as day where false")
    assert {"name", "day", "_extra"} == {column.name for column in model_tables.state(model).columns}
