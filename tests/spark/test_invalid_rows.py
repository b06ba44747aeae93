"""Rows that can't be written are set aside, and what the table has of them stays."""

import orjson
import pytest
from support.model_tables import ModelTables, a_model, values

pytestmark = pytest.mark.spark


def test_null_and_duplicate_keys_are_set_aside(lake: ModelTables) -> None:
    """One bad row takes no other with it."""
    model = a_model("merge", values("1, 'a'", "2, 'b'", "2, 'c'", "null, 'd'", "null, 'e'"))
    written = lake.write(model)
    assert ({"NULL": 2, "DUPLICATE": 2}, 1) == (dict(written.invalid), written.inserted)
    assert {((None,), "NULL"), (("2",), "DUPLICATE")} == {
        (sample.key, sample.reason) for sample in written.invalid_samples
    }
    assert {
        ("[null]", "NULL", "d"),
        ("[null]", "NULL", "e"),
        ("2", "DUPLICATE", "b"),
        ("2", "DUPLICATE", "c"),
    } == {(row.key, row.reason, orjson.loads(row.payload)["name"]) for row in lake.invalid(model, -1)}


def test_a_frozen_key_is_not_changed(lake: ModelTables) -> None:
    """Which of two rows of a key is right nobody knows: the old one stays until there is one."""
    lake.run("merge", values("1, 'a'", "2, 'b'"))
    model = a_model("merge", values("1, 'x'", "1, 'y'", "2, 'B'"))
    first = lake.state(model).version
    lake.write(model)
    assert [("update_preimage", 2, "b"), ("update_postimage", 2, "B")] == lake.told(model, first)
    assert [(1, "a"), (2, "B")] == [
        tuple(row) for row in lake.rows(model).select("id", "name").orderBy("id").collect()
    ]


def test_only_newly_appeared_rows_are_told(lake: ModelTables) -> None:
    """A row that stays invalid is recorded once, equal ones are counted."""
    model = a_model("merge", values("1, 'a'", "null, 'd'"))
    lake.write(model)
    version = lake.invalid(model, -1)[-1].version
    lake.write(model)
    assert [] == lake.invalid(model, version)
    lake.run("merge", values("1, 'a'", "null, 'd'", "null, 'd'", "null, 'e'"))
    assert ['{"id":null,"name":"d"}', '{"id":null,"name":"e"}'] == sorted(
        row.payload for row in lake.invalid(model, version)
    )
    assert lake.run("merge", values("1, 'a'")).invalid == {}
    path = f"{lake.path(model)}__invalid"
    assert lake.warehouse.session.read.format("delta").load(path).count() == 0


def test_tracked_sets_aside_only_keys_that_are_all_null(lake: ModelTables) -> None:
    """Part of a key may be unknown, as long as something of it is known."""
    query = values("1, null, 'a'", "null, null, 'b'", "null, 2, 'c'", columns="id, part, name")
    model = a_model("tracked", query, key=("id", "part"))
    written = lake.write(model)
    assert ({"NULL": 1}, 2) == (dict(written.invalid), written.inserted)
    assert [("[null,null]", "NULL")] == [(row.key, row.reason) for row in lake.invalid(model, -1)]
    assert {"[1,null]", "[null,2]"} == {change.key for change in lake.changes(model, 0)}
    before = lake.state(model).log_version
    lake.write(model)
    assert before == lake.state(model).log_version
