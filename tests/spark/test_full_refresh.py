"""A full refresh: it computes all rows again into the same table, and equal rows keep their rowids."""

import itertools
from pathlib import Path

import pytest
from support.spark.model_tables import QUERY_KINDS, ModelTables, build_model, values_query
from support.spark.spark_project import SparkProject

from ondatra_dagster.cli.main import run_verb
from ondatra_dagster.errors import WarehouseError
from ondatra_dagster.project.model import Model
from ondatra_dagster.row_changes import Column
from ondatra_dagster.warehouse.kinds.kind_registry import BACKFILL_VALUES, OWN_COLUMNS
from ondatra_dagster.warehouse.schema_evolution import TableAlterer
from ondatra_dagster.warehouse.spark.session import Warehouse

pytestmark = pytest.mark.spark

FIRST = values_query("1, 'a'", "2, 'b'", "3, 'c'")
NOW = values_query("1, 'a'", "2, 'B'", "4, 'd'")


def rowids(model_tables: ModelTables, model: Model) -> dict[tuple[object, ...], int]:
    """Return each row's rowid by its values."""
    rows = model_tables.rows(model).select("id", "name", "__ondatra_rowid").collect()
    return {(row["id"], row["name"]): row["__ondatra_rowid"] for row in rows}


EXPECTED = {
    "table": {(1, "a"), (2, "B"), (4, "d")},
    "append": {(1, "a"), (2, "b"), (2, "B"), (3, "c"), (4, "d")},
    "merge": {(1, "a"), (2, "B"), (4, "d")},
    "tracked": {(1, "a"), (2, "B"), (4, "d")},
    "scd2": {(1, "a"), (2, "b"), (2, "B"), (3, "c"), (4, "d")},
    "partition": {(1, "a"), (2, "B"), (4, "d")},
}


@pytest.mark.parametrize("kind", QUERY_KINDS)
def test_equal_rows_keep_their_rowids_in_a_full_refresh(model_tables: ModelTables, kind: str) -> None:
    """The API has the equal rows, so only the differences may reach it."""
    model_tables.write_query(kind, FIRST)
    model = build_model(kind, NOW)
    table_id, before = model_tables.state(model).table_id, rowids(model_tables, model)
    result = model_tables.write(model, is_full=True)
    after = rowids(model_tables, model)
    assert EXPECTED[kind] == set(after)
    assert {row: before[row] for row in before.keys() & after.keys()} == {
        row: after[row] for row in before.keys() & after.keys()
    }
    assert (table_id, len(after)) == (model_tables.state(model).table_id, result.rows)
    gone = [change for change in model_tables.feed_values(model, result.version - 1) if change[0] == "delete"]
    expected = {"merge": 1, "table": 2, "tracked": 2, "partition": 2}  # an update is no delete
    assert expected.get(kind, 0) == len(gone)


@pytest.mark.parametrize("kind", QUERY_KINDS)
def test_a_full_refresh_without_differences_makes_no_commit(model_tables: ModelTables, kind: str) -> None:
    model_tables.write_query(kind, FIRST)
    model = build_model(kind, FIRST)
    before = model_tables.state(model).log_version
    assert (False, before) == (
        model_tables.write(model, is_full=True).has_changes,
        model_tables.state(model).log_version,
    )


@pytest.mark.parametrize("kind", QUERY_KINDS)
def test_another_column_type_is_refused_and_then_converted(model_tables: ModelTables, kind: str) -> None:
    """A value that can be cast is the same value, so its row doesn't change."""
    model_tables.write_query(kind, "select id, cast(id as string) as name from range(1, 4)")
    model = build_model(kind, "select id, cast(id as int) as name from range(1, 4)")
    before = rowids(model_tables, model)
    with pytest.raises(WarehouseError, match="run with --full-refresh"):
        model_tables.write(model)
    assert not model_tables.write(model, is_full=True).has_changes
    assert {(row[0], int(row[1])): rowid for row, rowid in before.items()} == rowids(model_tables, model)
    assert Column("name", "int") in model_tables.state(model).columns
    assert 4 == model_tables.write_query(kind, "select id, cast(id as int) as name from range(1, 5)").rows


def test_a_value_that_cannot_be_cast_is_computed_again(model_tables: ModelTables) -> None:
    model_tables.write_query("merge", FIRST)
    model = build_model("merge", "select id, id * 2 as name from range(1, 4)")
    assert 3 == model_tables.write(model, is_full=True).updated
    assert {(1, 2), (2, 4), (3, 6)} == set(rowids(model_tables, model))


# each kind is converted once from and once to another; the other pairs share their steps
PAIRS = [*itertools.pairwise([*QUERY_KINDS, QUERY_KINDS[0]]), ("scd2", "merge"), ("append", "tracked")]


@pytest.mark.parametrize(("old", "new"), PAIRS)
def test_another_kind_is_refused_and_then_converted(model_tables: ModelTables, old: str, new: str) -> None:
    """The table stays, so its readers and the sink continue from where they are."""
    model_tables.write_query(old, FIRST)
    model = build_model(new, FIRST)
    before = rowids(model_tables, model)
    with pytest.raises(WarehouseError, match=f"was created with the kind {old}.*run with --full-refresh"):
        model_tables.write(model)
    model_tables.write(model, is_full=True)
    assert before == rowids(model_tables, model)
    model_tables.write_query(new, NOW)
    remaining_rows = {(3, "c")} if new == "merge" else {(2, "b"), (3, "c")} if new in ("append", "scd2") else set()
    remaining_rows = {(3, "c")} if new == "partition" else remaining_rows
    assert {(1, "a"), (2, "B"), (4, "d"), *remaining_rows} == set(rowids(model_tables, model))


def test_another_key_is_refused_and_then_converted(model_tables: ModelTables) -> None:
    model_tables.write_query("merge", FIRST)
    model = build_model("merge", FIRST, key=("name",))
    with pytest.raises(WarehouseError, match=r"was created with the key.*run with --full-refresh"):
        model_tables.write(model)
    assert not model_tables.write(model, is_full=True).has_changes
    assert 1 == model_tables.write_query("merge", values_query("1, 'a'", "1, 'z'"), key=("name",)).inserted


def test_a_table_with_several_rows_for_a_key_gets_one_row_for_each(model_tables: ModelTables) -> None:
    model_tables.write_query("append", values_query("1, 'a'", "1, 'b'", "2, 'c'"))
    model = build_model("merge", values_query("1, 'a'", "2, 'c'"))
    result = model_tables.write(model, is_full=True)
    assert (0, 0, 1) == (result.inserted, result.updated, result.deleted)
    assert {(1, "a"), (2, "c")} == set(rowids(model_tables, model))


@pytest.mark.parametrize("old", ["table", "append"])
@pytest.mark.parametrize("new", ["merge", "scd2"])
def test_the_row_of_the_query_stays_when_a_key_has_several_rows(model_tables: ModelTables, old: str, new: str) -> None:
    """The API has that row. The oldest of equal rows stays, and rows that the query no longer returns are removed."""
    model_tables.write_query(old, values_query(*DOUBLED, "null, 'y'"))
    model = build_model(new, values_query("1, 'b'", "2, 'c'", "4, 'D'", "5, 'new'"))
    before = numbered_rows(model_tables, model)
    model_tables.write(model, is_full=True)
    is_current = "is_current" if new == "scd2" else "true"
    after = numbered_rows(model_tables, model, where=is_current)
    assert [(1, "b"), (2, "c"), (4, "D"), (5, "new")] == [row[:2] for row in after]
    assert [row for row in before if row[:2] == (1, "b")] == after[:1]
    assert [row for row in before if row[:2] == (2, "c")][:1] == after[1:2]
    if new == "merge":
        change_types = [change[0] for change in model_tables.feed_values(model, model_tables.state(model).version - 1)]
        assert 6 == change_types.count("delete")  # one row of 1, 2 and 4, both of 3, and the row without a key
        oldest = min(row[2] for row in before if row[0] == 4)
        assert oldest == after[2][2]
    assert not model_tables.write(model).has_changes
    assert not model_tables.write(model, is_full=True).has_changes


DOUBLED = ("1, 'a'", "1, 'b'", "2, 'c'", "2, 'c'", "3, 'x'", "3, 'y'", "4, 'p'", "4, 'q'")


def numbered_rows(model_tables: ModelTables, model: Model, *, where: str = "true") -> list[tuple[int | None, str, int]]:
    rows = model_tables.rows(model).where(where).select("id", "name", "__ondatra_rowid")
    return [tuple(row) for row in rows.orderBy("id", "name", "__ondatra_rowid").collect()]


@pytest.mark.parametrize("new", ["merge", "scd2"])
def test_a_key_that_is_duplicated_in_table_and_query_is_refused(model_tables: ModelTables, new: str) -> None:
    """Any choice of a row would be a guess. If all rows stayed, the key would have several."""
    model_tables.write_query("table", values_query(*DOUBLED, "6, 'z'"))
    model = build_model(new, values_query("1, 'b'", "1, 'q'", "3, 'x'", "3, 'y'", "6, 'z'", "6, 'Z'"))
    before = model_tables.state(model)
    message = "keys that are duplicates in the table are duplicates in the query's result too: 1, 3 of id;"
    with pytest.raises(WarehouseError, match=f"{message} .*change the query so that it returns one row per key"):
        model_tables.write(model, is_full=True)
    assert before == model_tables.state(model)
    result = model_tables.write_query(new, values_query("1, 'b'", "3, 'x'", "6, 'z'", "6, 'Z'"), is_full=True)
    assert {"DUPLICATE": 2} == dict(result.invalid_counts)
    current = model_tables.rows(model).where("is_current" if new == "scd2" else "true")
    assert [1, 3, 6] == sorted(row["id"] for row in current.collect())


def test_a_key_that_another_program_duplicated_is_refused_as_well(model_tables: ModelTables) -> None:
    """The kind of the table doesn't change, so nothing is altered before the rows are checked."""
    model_tables.write_query("merge", FIRST)
    model = build_model("merge", values_query("1, 'a'", "1, 'b'", "2, 'b'", "3, 'c'"))
    model_tables.warehouse.session.sql(
        f"insert into delta.`{model_tables.path(model)}` (id, name) values (1, 'A'), (2, 'B')"
    )
    before = model_tables.state(model).log_version
    with pytest.raises(WarehouseError, match="query's result too: 1 of id; change the query"):
        model_tables.write(model, is_full=True)
    assert before == model_tables.state(model).log_version
    result = model_tables.write_query("merge", values_query("1, 'A'", "2, 'b'", "3, 'c'"), is_full=True)
    assert (0, 0, 2) == (result.inserted, result.updated, result.deleted)
    assert {(1, "A"), (2, "b"), (3, "c")} == set(rowids(model_tables, model))


def test_a_conversion_that_was_killed_is_finished(model_tables: ModelTables) -> None:
    """Between dropping the old column and renaming the new one, only the temporary name shows the column's name."""
    model_tables.write_query("merge", FIRST)
    model = build_model("merge", FIRST)
    session, table = model_tables.warehouse.session, f"delta.`{model_tables.path(model)}`"
    session.sql(f"alter table {table} rename column name to __ondatra_cast_name").collect()
    assert not model_tables.write(model).has_changes
    session.sql(f"alter table {table} add columns (__ondatra_cast_name int)").collect()
    assert not model_tables.write(model).has_changes
    assert {"id", "name", "__ondatra_rowid"} == set(model_tables.rows(model).columns)


def test_a_key_of_another_type_does_not_stop_the_sync(model_tables: ModelTables) -> None:
    """Between the steps of the ALTER the table has no key. Its feed has no row there either."""
    model_tables.write_query(
        "merge", "select cast(id as string) as id, name from values (1, 'a'), (null, 'x') as t(id, name)"
    )
    model = build_model("merge", values_query("1, 'a'", "2, 'b'", "null, 'x'"))
    model_tables.write(model, is_full=True)
    first, before, after, new = model_tables.feed_values(model, 0)
    assert (("insert", "1", "a"), ("insert", "b", 2)) == (first, new)
    assert ("update_preimage", *first[1:]) == before  # the cast: the feed shows the old values
    assert ("update_postimage", *first[1:]) == after
    assert {"NULL"} == {row.reason for row in model_tables.invalid(model, 0)}


def test_a_new_key_may_be_a_new_column(model_tables: ModelTables) -> None:
    model_tables.write_query("table", "select 'a' as name union all select 'b'")
    model = build_model("merge", values_query("1, 'a'", "2, 'b'"))
    model_tables.write(model, is_full=True)
    assert {(1, "a"), (2, "b")} == set(rowids(model_tables, model))


LINES = "SELECT line, invoice, amount FROM csv.`data/lines.csv` WITH ('header' = 'true')\n"
ROWS = "-- @kind: merge\n-- @unique_key: line\n-- @sink: erp\n" + LINES
GROUPS = "-- @kind: tracked\n-- @group_key: invoice\n-- @sink: erp\n" + LINES
ERP = """
def push(rows):
    return {str(row["__ondatra_rowid"]) + ":" + row["__ondatra_change_type"]: "ok" for row in rows}
"""
COLUMNS = ("line", "invoice", "amount")


@pytest.fixture
def shop(tmp_path: Path, shared_warehouse: Warehouse) -> SparkProject:
    """Return a project whose ERP has an invoice of two lines, and whose model now delivers invoices and not rows."""
    shop = SparkProject(tmp_path / "shop", shared_warehouse.session)
    shop.write_files({"pyproject.toml": "[tool.ondatra]\n", "lib/erp.star": ERP, "models/m/lines.sql": ROWS})
    shop.write_rows("lines", COLUMNS, [("1", "a", "10"), ("2", "a", "20")])
    assert 0 == shop.run()
    shop.write_files({"models/m/lines.sql": GROUPS})
    return shop


def sent(shop: SparkProject) -> list[tuple[str, str]]:
    """Return every record, except those of the first run."""
    ends = shop.workspace.tracking.read_delivered_since("m.lines", None)
    return [(end.identifier, end.change_type) for end in ends][2:]


def test_rows_become_groups_without_being_sent_again(shop: SparkProject) -> None:
    """The ERP has the rows. From then on a change sends the whole invoice."""
    assert 0 == shop.run(is_full=True)
    assert [] == sent(shop)
    shop.write_rows("lines", COLUMNS, [("1", "a", "10"), ("2", "a", "21")])
    assert 0 == shop.run()
    assert [("a", "insert")] * 2 == sent(shop)


def test_a_change_that_no_sync_has_read_is_not_sent_as_part_of_its_group(
    shop: SparkProject, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sinks were off for a while. The ERP would take an invoice of one line for the whole invoice."""
    shop.write_files({"models/m/lines.sql": ROWS})
    shop.write_rows("lines", COLUMNS, [("1", "a", "10"), ("2", "a", "21")])
    monkeypatch.setenv("ONDATRA_SINKS", "off")
    assert 0 == shop.run()
    monkeypatch.delenv("ONDATRA_SINKS")
    shop.write_files({"models/m/lines.sql": GROUPS})
    assert (1, 1) == (shop.run(is_full=True), shop.run())
    assert "hasn't enqueued yet what m.lines changed while it had kind merge" in capfd.readouterr().err
    assert [] == sent(shop)
    monkeypatch.chdir(shop.root)
    assert 0 == run_verb(["resync", "m.lines"], open_service=shop.open_engine)
    assert [("a", "insert")] * 2 == sent(shop)


@pytest.mark.parametrize("new", ["scd2", "tracked", "partition"])
def test_a_killed_conversion_still_has_to_be_done(model_tables: ModelTables, new: str) -> None:
    """The table keeps its old kind until its rows are converted."""
    model_tables.write_query("table", FIRST)
    model = build_model(new, FIRST)
    table = TableAlterer(model_tables.warehouse.session, model_tables.path(model))
    table.prepare_conversion(OWN_COLUMNS[new], BACKFILL_VALUES.get(new, {}))  # the conversion ends here
    with pytest.raises(WarehouseError, match="run with --full-refresh"):
        model_tables.write(model)
    model_tables.write(model, is_full=True)
    model_tables.write(model)
    assert {(1, "a"), (2, "b"), (3, "c")} == set(rowids(model_tables, model))
    assert 3 == model_tables.rows(model).count()
