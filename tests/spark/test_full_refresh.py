"""A full refresh computes anew into the same table: equal rows stay, under their rowids."""

import itertools
from pathlib import Path

import pytest
from support.model_tables import QUERIED, ModelTables, a_model, values
from support.spark_project import SparkProject

from ondatra_dagster.changes import Column
from ondatra_dagster.cli.main import code_of
from ondatra_dagster.errors import WarehouseError
from ondatra_dagster.project.model import Model
from ondatra_dagster.warehouse.altered_table import AlteredTable
from ondatra_dagster.warehouse.kinds.writers import FIRST_VALUES, OWN_COLUMNS
from ondatra_dagster.warehouse.spark_session import Warehouse

pytestmark = pytest.mark.spark

FIRST = values("1, 'a'", "2, 'b'", "3, 'c'")
NOW = values("1, 'a'", "2, 'B'", "4, 'd'")


def rowids(lake: ModelTables, model: Model) -> dict[tuple[object, ...], int]:
    """Each row's rowid by its values."""
    found = lake.rows(model).select("id", "name", "__ondatra_rowid").collect()
    return {(row["id"], row["name"]): row["__ondatra_rowid"] for row in found}


EXPECTED = {
    "table": {(1, "a"), (2, "B"), (4, "d")},
    "append": {(1, "a"), (2, "b"), (2, "B"), (3, "c"), (4, "d")},
    "merge": {(1, "a"), (2, "B"), (4, "d")},
    "tracked": {(1, "a"), (2, "B"), (4, "d")},
    "scd2": {(1, "a"), (2, "b"), (2, "B"), (3, "c"), (4, "d")},
    "partition": {(1, "a"), (2, "B"), (4, "d")},
}


@pytest.mark.parametrize("kind", QUERIED)
def test_equal_rows_keep_their_rowids_and_the_others_go(lake: ModelTables, kind: str) -> None:
    """The API has the equal ones: only what differs may reach it."""
    lake.run(kind, FIRST)
    model = a_model(kind, NOW)
    table_id, before = lake.state(model).table_id, rowids(lake, model)
    written = lake.write(model, is_full=True)
    after = rowids(lake, model)
    assert EXPECTED[kind] == set(after)
    assert {row: before[row] for row in before.keys() & after.keys()} == {
        row: after[row] for row in before.keys() & after.keys()
    }
    assert (table_id, len(after)) == (lake.state(model).table_id, written.rows)
    gone = [change for change in lake.told(model, written.version - 1) if change[0] == "delete"]
    expected = {"merge": 1, "table": 2, "tracked": 2, "partition": 2}  # an update is no delete
    assert expected.get(kind, 0) == len(gone)


@pytest.mark.parametrize("kind", QUERIED)
def test_a_full_refresh_that_finds_nothing_is_no_commit(lake: ModelTables, kind: str) -> None:
    lake.run(kind, FIRST)
    model = a_model(kind, FIRST)
    before = lake.state(model).log_version
    assert (False, before) == (lake.write(model, is_full=True).changed, lake.state(model).log_version)


@pytest.mark.parametrize("kind", QUERIED)
def test_another_type_is_refused_and_then_converted(lake: ModelTables, kind: str) -> None:
    """A value that can be cast is the same value: its row stays as it is."""
    lake.run(kind, "select id, cast(id as string) as name from range(1, 4)")
    model = a_model(kind, "select id, cast(id as int) as name from range(1, 4)")
    before = rowids(lake, model)
    with pytest.raises(WarehouseError, match="run with --full-refresh"):
        lake.write(model)
    assert not lake.write(model, is_full=True).changed
    assert {(row[0], int(row[1])): rowid for row, rowid in before.items()} == rowids(lake, model)
    assert Column("name", "int") in lake.state(model).columns
    assert 4 == lake.run(kind, "select id, cast(id as int) as name from range(1, 5)").rows


def test_a_value_that_cannot_be_cast_is_computed_anew(lake: ModelTables) -> None:
    lake.run("merge", FIRST)
    model = a_model("merge", "select id, id * 2 as name from range(1, 4)")
    assert 3 == lake.write(model, is_full=True).updated
    assert {(1, 2), (2, 4), (3, 6)} == set(rowids(lake, model))


# each kind once from and once to another; the other pairs share their steps
PAIRS = [*itertools.pairwise([*QUERIED, QUERIED[0]]), ("scd2", "merge"), ("append", "tracked")]


@pytest.mark.parametrize(("old", "new"), PAIRS)
def test_another_kind_is_refused_and_then_converted(lake: ModelTables, old: str, new: str) -> None:
    """The table stays: who reads it, and the sink, go on from where they are."""
    lake.run(old, FIRST)
    model = a_model(new, FIRST)
    before = rowids(lake, model)
    with pytest.raises(WarehouseError, match=f"was made with the kind {old}.*run with --full-refresh"):
        lake.write(model)
    lake.write(model, is_full=True)
    assert before == rowids(lake, model)
    lake.run(new, NOW)
    kept = {(3, "c")} if new == "merge" else {(2, "b"), (3, "c")} if new in ("append", "scd2") else set()
    kept = {(3, "c")} if new == "partition" else kept
    assert {(1, "a"), (2, "B"), (4, "d"), *kept} == set(rowids(lake, model))


def test_another_key_is_refused_and_then_converted(lake: ModelTables) -> None:
    lake.run("merge", FIRST)
    model = a_model("merge", FIRST, key=("name",))
    with pytest.raises(WarehouseError, match=r"was made with the key.*run with --full-refresh"):
        lake.write(model)
    assert not lake.write(model, is_full=True).changed
    assert 1 == lake.run("merge", values("1, 'a'", "1, 'z'"), key=("name",)).inserted


def test_a_table_with_many_rows_a_key_becomes_one_with_one(lake: ModelTables) -> None:
    lake.run("append", values("1, 'a'", "1, 'b'", "2, 'c'"))
    model = a_model("merge", values("1, 'a'", "2, 'c'"))
    written = lake.write(model, is_full=True)
    assert (0, 0, 1) == (written.inserted, written.updated, written.deleted)
    assert {(1, "a"), (2, "c")} == set(rowids(lake, model))


@pytest.mark.parametrize("old", ["table", "append"])
@pytest.mark.parametrize("new", ["merge", "scd2"])
def test_of_many_rows_a_key_that_stays_which_the_query_gives(lake: ModelTables, old: str, new: str) -> None:
    """The API has it just so. Of equal ones the oldest stays; what nobody gives any more goes, all of it."""
    lake.run(old, values(*DOUBLED, "null, 'y'"))
    model = a_model(new, values("1, 'b'", "2, 'c'", "4, 'D'", "5, 'new'"))
    before = numbered_rows(lake, model)
    lake.write(model, is_full=True)
    is_current = "is_current" if new == "scd2" else "true"
    after = numbered_rows(lake, model, where=is_current)
    assert [(1, "b"), (2, "c"), (4, "D"), (5, "new")] == [row[:2] for row in after]
    assert [row for row in before if row[:2] == (1, "b")] == after[:1]
    assert [row for row in before if row[:2] == (2, "c")][:1] == after[1:2]
    if new == "merge":
        told = [change[0] for change in lake.told(model, lake.state(model).version - 1)]
        assert 6 == told.count("delete")  # of 1, 2 and 4 one each, both of 3, and the one without a key
        oldest = min(row[2] for row in before if row[0] == 4)
        assert oldest == after[2][2]
    assert not lake.write(model).changed
    assert not lake.write(model, is_full=True).changed


DOUBLED = ("1, 'a'", "1, 'b'", "2, 'c'", "2, 'c'", "3, 'x'", "3, 'y'", "4, 'p'", "4, 'q'")


def numbered_rows(
    lake: ModelTables, model: Model, *, where: str = "true"
) -> list[tuple[int | None, str, int]]:
    rows = lake.rows(model).where(where).select("id", "name", "__ondatra_rowid")
    return [tuple(row) for row in rows.orderBy("id", "name", "__ondatra_rowid").collect()]


@pytest.mark.parametrize("new", ["merge", "scd2"])
def test_a_key_that_comes_more_than_once_on_both_sides_is_refused(lake: ModelTables, new: str) -> None:
    """Whichever row stayed would be a guess; and with all of them the table would have several a key."""
    lake.run("table", values(*DOUBLED, "6, 'z'"))
    model = a_model(new, values("1, 'b'", "1, 'q'", "3, 'x'", "3, 'y'", "6, 'z'", "6, 'Z'"))
    before = lake.state(model)
    said = "keys that the table has more than once come more than once in the query too: 1, 3 of id;"
    with pytest.raises(WarehouseError, match=f"{said} .*let it give one row a key"):
        lake.write(model, is_full=True)
    assert before == lake.state(model)
    written = lake.run(new, values("1, 'b'", "3, 'x'", "6, 'z'", "6, 'Z'"), is_full=True)
    assert {"DUPLICATE": 2} == dict(written.invalid)
    current = lake.rows(model).where("is_current" if new == "scd2" else "true")
    assert [1, 3, 6] == sorted(row["id"] for row in current.collect())


def test_rows_that_somebody_else_has_doubled_are_no_guess_either(lake: ModelTables) -> None:
    """The table is of its kind all along, so nothing of it is altered before its rows are looked at."""
    lake.run("merge", FIRST)
    model = a_model("merge", values("1, 'a'", "1, 'b'", "2, 'b'", "3, 'c'"))
    lake.warehouse.session.sql(f"insert into delta.`{lake.path(model)}` (id, name) values (1, 'A'), (2, 'B')")
    before = lake.state(model).log_version
    with pytest.raises(WarehouseError, match="query too: 1 of id; which row is to stay"):
        lake.write(model, is_full=True)
    assert before == lake.state(model).log_version
    written = lake.run("merge", values("1, 'A'", "2, 'b'", "3, 'c'"), is_full=True)
    assert (0, 0, 2) == (written.inserted, written.updated, written.deleted)
    assert {(1, "A"), (2, "b"), (3, "c")} == set(rowids(lake, model))


def test_a_conversion_that_was_killed_is_finished(lake: ModelTables) -> None:
    """Between dropping the old column and renaming the new one nothing else is left to tell what it was."""
    lake.run("merge", FIRST)
    model = a_model("merge", FIRST)
    session, table = lake.warehouse.session, f"delta.`{lake.path(model)}`"
    session.sql(f"alter table {table} rename column name to __ondatra_cast_name").collect()
    assert not lake.write(model).changed
    session.sql(f"alter table {table} add columns (__ondatra_cast_name int)").collect()
    assert not lake.write(model).changed
    assert {"id", "name", "__ondatra_rowid"} == set(lake.rows(model).columns)


def test_a_key_of_another_type_stops_no_sync(lake: ModelTables) -> None:
    """Between the steps of the ALTER the table has no key: its feed there has no row either."""
    lake.run(
        "merge", "select cast(id as string) as id, name from values (1, 'a'), (null, 'x') as t(id, name)"
    )
    model = a_model("merge", values("1, 'a'", "2, 'b'", "null, 'x'"))
    lake.write(model, is_full=True)
    first, before, after, new = lake.told(model, 0)
    assert (("insert", "1", "a"), ("insert", "b", 2)) == (first, new)
    assert ("update_preimage", *first[1:]) == before  # the cast: what it reads is what it was
    assert ("update_postimage", *first[1:]) == after
    assert {"NULL"} == {row.reason for row in lake.invalid(model, 0)}


def test_a_new_key_may_be_a_new_column(lake: ModelTables) -> None:
    lake.run("table", "select 'a' as name union all select 'b'")
    model = a_model("merge", values("1, 'a'", "2, 'b'"))
    lake.write(model, is_full=True)
    assert {(1, "a"), (2, "b")} == set(rowids(lake, model))


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
    """An invoice of two lines, which the ERP has, and its model no longer of rows but of invoices."""
    shop = SparkProject(tmp_path / "shop", shared_warehouse.session)
    shop.write({"pyproject.toml": "[tool.ondatra]\n", "lib/erp.star": ERP, "models/m/lines.sql": ROWS})
    shop.write_rows("lines", COLUMNS, [("1", "a", "10"), ("2", "a", "20")])
    assert 0 == shop.run()
    shop.write({"models/m/lines.sql": GROUPS})
    return shop


def sent(shop: SparkProject) -> list[tuple[str, str]]:
    """Every record, but for those of the first run."""
    ends = shop.workspace.tracking.delivered_since("m.lines", None)
    return [(end.identifier, end.change_type) for end in ends][2:]


def test_rows_become_groups_without_being_sent_again(shop: SparkProject) -> None:
    """The ERP has them; and from then on an invoice goes whole."""
    assert 0 == shop.run(is_full=True)
    assert [] == sent(shop)
    shop.write_rows("lines", COLUMNS, [("1", "a", "10"), ("2", "a", "21")])
    assert 0 == shop.run()
    assert [("a", "insert")] * 2 == sent(shop)


def test_a_change_that_no_sync_has_seen_is_not_sent_as_a_part_of_its_group(
    shop: SparkProject, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sinks were off for a while: to the ERP an invoice of one line would be the invoice."""
    shop.write({"models/m/lines.sql": ROWS})
    shop.write_rows("lines", COLUMNS, [("1", "a", "10"), ("2", "a", "21")])
    monkeypatch.setenv("ONDATRA_SINKS", "off")
    assert 0 == shop.run()
    monkeypatch.delenv("ONDATRA_SINKS")
    shop.write({"models/m/lines.sql": GROUPS})
    assert (1, 1) == (shop.run(is_full=True), shop.run())
    assert "hasn't seen yet what m.lines changed while it had kind merge" in capfd.readouterr().err
    assert [] == sent(shop)
    monkeypatch.chdir(shop.root)
    assert 0 == code_of(["resync", "m.lines"], opened=shop.opened)
    assert [("a", "insert")] * 2 == sent(shop)


@pytest.mark.parametrize("new", ["scd2", "tracked", "partition"])
def test_a_killed_conversion_is_still_one_to_do(lake: ModelTables, new: str) -> None:
    """The table is called what it was until its rows are what they should be."""
    lake.run("table", FIRST)
    model = a_model(new, FIRST)
    table = AlteredTable(lake.warehouse.session, lake.path(model))
    table.prepare(OWN_COLUMNS[new], FIRST_VALUES.get(new, {}))  # and no further
    with pytest.raises(WarehouseError, match="run with --full-refresh"):
        lake.write(model)
    lake.write(model, is_full=True)
    lake.write(model)
    assert {(1, "a"), (2, "b"), (3, "c")} == set(rowids(lake, model))
    assert 3 == lake.rows(model).count()
