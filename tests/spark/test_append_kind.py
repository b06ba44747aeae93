"""The kind append: it adds the rows that its query newly returns, however they are found."""

import shutil

import pytest
from support.spark.model_tables import ModelTables, build_model, values_query

from ondatra_dagster.deltalog.log_reader import read_table_state
from ondatra_dagster.planning.input_versions import format_table_version
from ondatra_dagster.project.model import FileInput, Incremental, Model, ModelInput, Reference
from ondatra_dagster.project.model_kinds import KINDS
from ondatra_dagster.warehouse.model_run import evaluate_query

pytestmark = pytest.mark.spark

SOURCE = "raw.things"


def reading(sql: str, **more: object) -> Model:
    """Return a model of kind append that reads raw.things where its query says SOURCE."""
    text = sql.replace("SOURCE", SOURCE)
    start = text.index(SOURCE)
    source = ModelInput(model=SOURCE)
    reference = Reference(start=start, end=start + len(SOURCE), input=source, alias="s")
    return build_model("append", text, key=(), inputs=(source,), references=(reference,), **more)


class AppendSource:
    """A table that the models here read, and runs of them."""

    def __init__(self, model_tables: ModelTables) -> None:
        self.lake = model_tables

    def pending_properties(self, *rows: str, kind: str = "merge") -> None:
        self.lake.write_query(kind, values_query(*rows), name=SOURCE)

    def run(self, model: Model) -> list[tuple[object, ...]]:
        """Run a model and return the appended rows in the order of their rowids."""
        state = self.lake.state(build_model("merge", "", name=SOURCE))
        old = read_table_state(self.lake.path(model))
        self.lake.write(model, **{SOURCE: format_table_version(state)})
        new = self.lake.state(model)
        after = old.version if old else 0
        return [change[1:] for change in self.lake.feed_values(model, after)] if new.version > after else []


@pytest.fixture
def source(model_tables: ModelTables) -> AppendSource:
    return AppendSource(model_tables)


ROW_BY_ROW = reading("select id, name from SOURCE where id > 0", is_row_by_row=True)
IN_FULL = reading("select id, name from SOURCE where id > 0")


@pytest.mark.parametrize("model", [ROW_BY_ROW, IN_FULL], ids=["from the feed", "in full"])
def test_rows_that_the_query_newly_returns_are_added(source: AppendSource, model: Model) -> None:
    """A changed row is a new row. A row that disappears adds nothing, and an unchanged row adds nothing either."""
    source.pending_properties("1, 'a'", "2, 'b'", "-1, 'x'")
    assert [(1, "a"), (2, "b")] == sorted(source.run(model))
    assert [] == source.run(model)
    source.pending_properties("1, 'a'", "2, 'B'", "3, 'c'", "-2, 'y'")
    assert [(2, "B"), (3, "c")] == sorted(source.run(model))
    assert KINDS["append"].change_types == {change.change_type for change in source.lake.changes(model, 0)}
    assert 4 == source.lake.rows(model).count()


@pytest.mark.parametrize("model", [ROW_BY_ROW, IN_FULL], ids=["from the feed", "in full"])
def test_two_equal_new_rows_are_two_rows(source: AppendSource, model: Model) -> None:
    """An event that happened twice is two rows. One that the table already had isn't added again."""
    source.pending_properties("1, 'a'", kind="table")
    assert [(1, "a")] == source.run(model)
    source.pending_properties("1, 'a'", "1, 'a'", "1, 'a'", "2, 'b'", "2, 'b'", kind="table")
    assert [(1, "a"), (1, "a"), (2, "b"), (2, "b")] == sorted(source.run(model))


@pytest.mark.parametrize("model", [ROW_BY_ROW, IN_FULL], ids=["from the feed", "in full"])
def test_a_rewrite_of_the_source_adds_only_new_rows(source: AppendSource, model: Model) -> None:
    """The kind table replaces every row when one differs, so its feed deletes and inserts all of them."""
    source.pending_properties("1, 'a'", "2, 'b'", kind="table")
    source.run(model)
    source.pending_properties("1, 'a'", "2, 'b'", "3, 'c'", kind="table")
    assert [(3, "c")] == source.run(model)


def test_an_aggregate_is_added_when_it_is_new(source: AppendSource) -> None:
    """A changed total is a row that the query didn't return before."""
    model = reading("select name, count(*) as n from SOURCE group by name")
    source.pending_properties("1, 'a'", "2, 'a'", "3, 'b'")
    assert [("a", 2), ("b", 1)] == sorted(source.run(model))
    source.pending_properties("4, 'a'", "5, 'c'")
    assert [("a", 3), ("c", 1)] == sorted(source.run(model))


@pytest.mark.parametrize("is_row_by_row", [True, False])
def test_rows_are_written_and_pushed_in_the_order_of_the_query(source: AppendSource, *, is_row_by_row: bool) -> None:
    """A user who appends rows to a sheet wants them in this order."""
    model = reading("select id, name from SOURCE order by id desc", is_row_by_row=is_row_by_row, is_ordered=True)
    session = source.lake.warehouse.session
    before = session.conf.get("spark.sql.shuffle.partitions")
    source.pending_properties(*(f"{number}, 'n'" for number in range(60)))
    session.conf.set("spark.sql.shuffle.partitions", 4)
    try:
        assert [(number, "n") for number in reversed(range(60))] == source.run(model)
        source.pending_properties(*(f"{number}, 'n'" for number in range(60, 90)))
        session.conf.set("spark.sql.shuffle.partitions", 4)
        assert [(number, "n") for number in reversed(range(60, 90))] == source.run(model)
    finally:
        session.conf.set("spark.sql.shuffle.partitions", before)


def test_a_changed_definition_adds_only_rows_that_are_new_from_now_on(source: AppendSource) -> None:
    """Rows that the new query would have returned before aren't new."""
    source.pending_properties("1, 'a'", "2, 'b'")
    source.run(IN_FULL)
    model = reading("select id, upper(name) as name from SOURCE")
    source.pending_properties("3, 'c'")
    assert [(3, "C")] == source.run(model)
    assert {(1, "a"), (2, "b"), (3, "C")} == {tuple(row)[:2] for row in source.lake.rows(model).collect()}


@pytest.mark.parametrize("name", ["upper(name) as name", "name, length(name) as more"])
def test_a_changed_incremental_definition_adds_only_rows_from_now_on(source: AppendSource, name: str) -> None:
    """The table has the boundary rows of the old definition.

    Compared with them, every row of the new one would look new.
    """

    def incremental(columns: str) -> Model:
        sql = f"select {columns} from SOURCE where id >= {{{{ last_value }}}}"
        text = sql.replace("SOURCE", SOURCE)
        place = (text.index("{{"), text.index("}}") + 2)
        return reading(sql, last_values=(place,), incremental=Incremental(column="id", initial=None))

    source.pending_properties("1, 'a'", "2, 'b'")
    source.run(incremental("id, name"))
    assert [] == source.run(incremental(f"id, {name}"))
    source.pending_properties("3, 'c'")
    assert 1 == len(source.run(incremental(f"id, {name}")))
    assert [] == source.run(incremental(f"id, {name}"))


def test_an_input_without_old_versions_is_compared_with_the_table(model_tables: ModelTables) -> None:
    """A file has no old versions. Its rows are never inserted without a comparison."""
    file = model_tables.warehouse.settings.root / "x.csv"
    source = FileInput(format="csv", path="x.csv", options=(("header", "true"),))
    reference = Reference(start=14, end=15, input=source)
    model = build_model("append", "select * from F", key=(), inputs=(source,), references=(reference,))
    file.write_text("id,name\n1,a\n1,a\n")
    assert 2 == model_tables.write(model, **{source.name: "one"}).inserted
    file.write_text("id,name\n1,a\n1,a\n1,a\n2,b\n")
    assert 2 == model_tables.write(model, **{source.name: "two"}).inserted
    file.write_text("id,name\n2,b\n")
    assert not model_tables.write(model, **{source.name: "three"}).has_changes


def test_a_replaced_source_table_adds_only_new_rows(source: AppendSource) -> None:
    """The other table has another history, so its rows are compared with those of the target."""
    source.pending_properties("1, 'a'", "2, 'b'")
    source.run(ROW_BY_ROW)
    shutil.rmtree(source.lake.path(build_model("merge", "", name=SOURCE)))
    source.pending_properties("2, 'b'", "3, 'c'")
    assert [(3, "c")] == source.run(ROW_BY_ROW)
    source.pending_properties("4, 'd'")
    assert [(4, "d")] == source.run(ROW_BY_ROW)


def test_a_column_that_the_source_lost_does_not_stop_the_run(source: AppendSource) -> None:
    """The feed can't be read across that change, but both complete results can."""
    source.pending_properties("1, 'a'")
    source.run(ROW_BY_ROW)
    source.lake.write_query("merge", "select 2 as id, 'b' as name, 5 as more", name=SOURCE)
    source.lake.write_query("merge", "select 3 as id, 'c' as name", name=SOURCE)
    assert [(2, "b"), (3, "c")] == sorted(source.run(ROW_BY_ROW))


def test_a_new_input_of_a_definition_adds_rows_from_then_on(model_tables: ModelTables) -> None:
    """This holds even if nothing else is committed in between.

    Otherwise each run would begin at the present and lose all rows.
    """
    for name in ("raw.a", "raw.b"):
        model_tables.write_query("merge", values_query("1, 'a'"), name=name)
    a, b = (ModelInput(model=name) for name in ("raw.a", "raw.b"))

    def run(model: Model) -> list[tuple[object, ...]]:
        versions = {
            i.name: format_table_version(model_tables.state(build_model("merge", "", name=i.name)))
            for i in model.inputs
        }
        result = model_tables.write(model, **versions)
        return (
            [change[1:] for change in model_tables.feed_values(model, result.version - 1)] if result.has_changes else []
        )

    only_a = "select id, name from A"
    start = only_a.index("A")
    run(build_model("append", only_a, inputs=(a,), references=(Reference(start=start, end=start + 1, input=a),)))
    both = "select id, name from A union all select id, name from B"
    places = [
        Reference(start=both.index(f" {x}") + 1, end=both.index(f" {x}") + 2, input=i) for x, i in (("A", a), ("B", b))
    ]
    model = build_model("append", both, inputs=(a, b), references=tuple(places))
    assert [] == run(model)
    model_tables.write_query("merge", values_query("2, 'b'"), name="raw.b")
    assert [(2, "b")] == run(model)
    model_tables.write_query("merge", values_query("3, 'c'"), name="raw.b")
    assert [(3, "c")] == run(model)
    only_b = both.replace("A union all select id, name from B", "B")
    swapped = build_model(
        "append", only_b, inputs=(b,), is_row_by_row=True, references=(Reference(start=start, end=start + 1, input=b),)
    )
    assert [] == run(swapped)


@pytest.mark.parametrize("sql", ["select distinct * from SOURCE", "select distinct id, name, more from SOURCE"])
def test_a_new_column_of_the_source_is_null_in_old_versions(source: AppendSource, sql: str) -> None:
    """The current query reads the column, and is also run over the old version."""
    source.pending_properties("1, 'a'")
    source.run(reading("select distinct * from SOURCE"))
    source.lake.write_query("merge", "select 2 as id, 'b' as name, 5 as more", name=SOURCE)
    assert [(2, "b", 5)] == source.run(reading(sql))


def test_a_run_that_was_overtaken_runs_its_query_again(source: AppendSource) -> None:
    """The run waited until the other one had written, so its first result is out of date."""
    source.pending_properties("1, 'a'")
    source.run(ROW_BY_ROW)
    lake, table = source.lake, build_model("merge", "", name=SOURCE)
    old = format_table_version(lake.state(table))
    planned = format_table_version(lake.state(ROW_BY_ROW))
    frame = evaluate_query(lake.warehouse, ROW_BY_ROW, {SOURCE: old})
    source.pending_properties("2, 'b'")
    assert [(2, "b")] == source.run(ROW_BY_ROW)
    result = lake.write_frame(ROW_BY_ROW, frame, planned_version=planned, **{SOURCE: old})
    assert not result.has_changes
    assert {SOURCE: format_table_version(lake.state(table))} == result.inputs
