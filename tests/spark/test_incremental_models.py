"""The setting @incremental: a query that asks for rows newer than those in its table."""

import dataclasses

import pytest
from support.spark.model_tables import ModelTables, build_model

from ondatra_dagster.errors import WarehouseError
from ondatra_dagster.project.model import FileInput, Incremental, Model, Reference

pytestmark = pytest.mark.spark

OPTIONS = (("header", "true"), ("inferSchema", "true"))
SOURCE = FileInput(format="csv", path="payments.csv", options=OPTIONS)


def a_query(kind: str, *, initial: str | None = None, column: str = "at", compare: str = ">=") -> Model:
    sql = f"select id, at, amount from F where {column} {compare} {{{{ last_value }}}}"
    last_value = (sql.index("{{"), sql.index("}}") + 2)
    place = sql.index(" F ") + 1
    return build_model(
        kind,
        sql,
        inputs=(SOURCE,),
        references=(Reference(start=place, end=place + 1, input=SOURCE),),
        last_values=(last_value,),
        incremental=Incremental(column=column, initial=initial),
    )


def write_file(model_tables: ModelTables, *rows: str) -> None:
    (model_tables.warehouse.settings.root / SOURCE.path).write_text("\n".join(["id,at,amount", *rows]) + "\n")


def rows_of(model_tables: ModelTables, model: Model) -> list[tuple[object, ...]]:
    rows = model_tables.rows(model).selectExpr("id", "cast(at as string)", "amount").collect()
    return sorted(tuple(row) for row in rows)


def test_rows_as_new_as_the_newest_are_neither_lost_nor_duplicated(model_tables: ModelTables) -> None:
    """Some arrive later in the same second.

    With > they would be lost, and a blind insert would duplicate the others.
    """
    model = a_query("append")
    write_file(model_tables, "1,2024-01-01,10", "2,2024-01-02,20", "2,2024-01-02,20")
    assert 3 == model_tables.write(model).inserted
    write_file(
        model_tables, "1,2024-01-01,11", "2,2024-01-02,20", "2,2024-01-02,20", "3,2024-01-02,30", "4,2024-01-03,5"
    )
    assert 2 == model_tables.write(model).inserted
    assert 0 == model_tables.write(model).inserted
    expected = [(1, "2024-01-01", 10), *[(2, "2024-01-02", 20)] * 2, (3, "2024-01-02", 30), (4, "2024-01-03", 5)]
    assert expected == rows_of(model_tables, model)


def test_the_column_may_be_spelled_with_other_capitals(model_tables: ModelTables) -> None:
    """This is so everywhere in SQL. The second run is the first that looks for the column in the table."""
    model = dataclasses.replace(a_query("append"), incremental=Incremental(column="At", initial=None))
    write_file(model_tables, "1,2024-01-01,10")
    model_tables.write(model)
    write_file(model_tables, "1,2024-01-01,10", "2,2024-01-02,20")
    assert 1 == model_tables.write(model).inserted


def test_a_merge_reads_only_newer_rows(model_tables: ModelTables) -> None:
    model = a_query("merge")
    write_file(model_tables, "1,2024-01-01,10", "2,2024-01-02,20")
    model_tables.write(model)
    write_file(model_tables, "1,2024-01-01,99", "2,2024-01-03,21", "3,2024-01-03,30")
    result = model_tables.write(model)
    assert (1, 1) == (result.inserted, result.updated)
    assert [(1, "2024-01-01", 10), (2, "2024-01-03", 21), (3, "2024-01-03", 30)] == rows_of(model_tables, model)


def test_the_first_run_begins_at_the_initial_value_of_the_header(model_tables: ModelTables) -> None:
    write_file(model_tables, "1,2023-12-31,10", "2,2024-01-01,20")
    assert 1 == model_tables.write(a_query("append", initial="2024-01-01")).inserted


@pytest.mark.parametrize("column", ["at", "amount", "id"])
def test_without_an_initial_value_no_row_is_left_out(model_tables: ModelTables, column: str) -> None:
    """The type of the column doesn't matter. A comparison with null would leave out every row."""
    write_file(model_tables, "-1,0001-01-01,-10.5", "2,2024-01-01,20")
    assert 2 == model_tables.write(a_query("append", column=column)).inserted


def test_an_initial_value_of_another_type_is_refused(model_tables: ModelTables) -> None:
    write_file(model_tables, "1,2023-12-31,10")
    with pytest.raises(WarehouseError, match="@incremental_initial 'soon' isn't a date, as 'at' is"):
        model_tables.write(a_query("append", initial="soon"))


def test_a_column_that_the_query_lacks_is_refused(model_tables: ModelTables) -> None:
    write_file(model_tables, "1,2023-12-31,10")
    model = dataclasses.replace(a_query("append"), incremental=Incremental(column="nope"))
    with pytest.raises(WarehouseError, match="@incremental 'nope' isn't a column of the query"):
        model_tables.write(model)


def test_a_full_refresh_reads_all_rows_again(model_tables: ModelTables) -> None:
    """It also reads rows that an incremental run doesn't read any more."""
    model = a_query("merge")
    write_file(model_tables, "1,2024-01-01,10", "2,2024-01-02,20")
    model_tables.write(model)
    write_file(model_tables, "1,2024-01-01,99")
    result = model_tables.write(model, is_full=True)
    assert (0, 1, 1) == (result.inserted, result.updated, result.deleted)
    assert [(1, "2024-01-01", 99)] == rows_of(model_tables, model)


@pytest.mark.parametrize("of_type", ["timestamp", "timestamp_ntz", "date", "double", "decimal(38, 10)"])
def test_boundary_rows_of_any_type_are_not_duplicated(model_tables: ModelTables, of_type: str) -> None:
    """Python's dates have other time zones and calendars than Spark's, so no value passes through Python."""
    value = "1500-02-28 00:30:00" if of_type.startswith(("timestamp", "date")) else "0.1"
    model = a_query("append")
    sql = model.sql.replace("at, amount from F", f"cast(at as {of_type}) as at, amount from F")
    shift = len(sql) - len(model.sql)
    (place,), ((start, end),) = model.references, model.last_values
    model = dataclasses.replace(
        model,
        sql=sql,
        references=(dataclasses.replace(place, start=place.start + shift, end=place.end + shift),),
        last_values=((start + shift, end + shift),),
    )
    write_file(model_tables, f"1,{value},10")
    assert 1 == model_tables.write(model).inserted
    assert 0 == model_tables.write(model).inserted
