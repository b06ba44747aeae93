"""The invalid rows of a query: they aren't written, and the rows that the table has for their keys stay."""

import orjson
import pytest
from support.spark.model_tables import ModelTables, build_model, values_query

pytestmark = pytest.mark.spark


def test_rows_with_null_or_duplicate_keys_are_invalid(model_tables: ModelTables) -> None:
    """An invalid row doesn't stop the others."""
    model = build_model("merge", values_query("1, 'a'", "2, 'b'", "2, 'c'", "null, 'd'", "null, 'e'"))
    result = model_tables.write(model)
    assert ({"NULL": 2, "DUPLICATE": 2}, 1) == (dict(result.invalid_counts), result.inserted)
    assert {((None,), "NULL"), (("2",), "DUPLICATE")} == {
        (sample.key, sample.reason) for sample in result.invalid_samples
    }
    assert {("[null]", "NULL", "d"), ("[null]", "NULL", "e"), ("2", "DUPLICATE", "b"), ("2", "DUPLICATE", "c")} == {
        (row.key, row.reason, orjson.loads(row.payload)["name"]) for row in model_tables.invalid(model, -1)
    }


def test_the_row_of_a_duplicate_key_is_not_changed(model_tables: ModelTables) -> None:
    """It is unknown which of two rows for a key is right, so the old row stays until there is only one."""
    model_tables.write_query("merge", values_query("1, 'a'", "2, 'b'"))
    model = build_model("merge", values_query("1, 'x'", "1, 'y'", "2, 'B'"))
    first = model_tables.state(model).version
    model_tables.write(model)
    assert [("update_preimage", 2, "b"), ("update_postimage", 2, "B")] == model_tables.feed_values(model, first)
    assert [(1, "a"), (2, "B")] == [
        tuple(row) for row in model_tables.rows(model).select("id", "name").orderBy("id").collect()
    ]


def test_only_newly_invalid_rows_are_recorded(model_tables: ModelTables) -> None:
    """A row that stays invalid is recorded once. Equal rows are counted."""
    model = build_model("merge", values_query("1, 'a'", "null, 'd'"))
    model_tables.write(model)
    version = model_tables.invalid(model, -1)[-1].version
    model_tables.write(model)
    assert [] == model_tables.invalid(model, version)
    model_tables.write_query("merge", values_query("1, 'a'", "null, 'd'", "null, 'd'", "null, 'e'"))
    assert ['{"id":null,"name":"d"}', '{"id":null,"name":"e"}'] == sorted(
        row.payload for row in model_tables.invalid(model, version)
    )
    assert model_tables.write_query("merge", values_query("1, 'a'")).invalid_counts == {}
    path = f"{model_tables.path(model)}__invalid"
    assert model_tables.warehouse.session.read.format("delta").load(path).count() == 0


def test_in_kind_tracked_only_keys_with_all_columns_null_are_invalid(model_tables: ModelTables) -> None:
    """Columns of a key may be null, as long as one of them has a value."""
    query = values_query("1, null, 'a'", "null, null, 'b'", "null, 2, 'c'", columns="id, part, name")
    model = build_model("tracked", query, key=("id", "part"))
    result = model_tables.write(model)
    assert ({"NULL": 1}, 2) == (dict(result.invalid_counts), result.inserted)
    assert [("[null,null]", "NULL")] == [(row.key, row.reason) for row in model_tables.invalid(model, -1)]
    assert {"[1,null]", "[null,2]"} == {change.key for change in model_tables.changes(model, 0)}
    before = model_tables.state(model).log_version
    model_tables.write(model)
    assert before == model_tables.state(model).log_version
