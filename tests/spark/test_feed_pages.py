"""The pages of a feed: they fit into memory at any length, in an order that readers rely on."""

import itertools

import pytest
from support.spark.model_tables import ModelTables, build_model, values_query

from ondatra_dagster.row_changes import ChangeType

pytestmark = pytest.mark.spark

MANY = "select id % 50 as id, id as n, concat('row ', id) as text from range({}, {})"


def test_changes_of_a_key_are_consecutive_across_pages(model_tables: ModelTables) -> None:
    """Changes are folded by key before they are queued. A key on two separate pages would be folded twice."""
    model = build_model("tracked", MANY.format(0, 200))
    model_tables.write(model)
    model_tables.write_query("tracked", MANY.format(100, 300))
    pages = [page for segment in model_tables.feed(model, page_bytes=2_000).segments(0, 2) for page in segment.pages]
    assert len(pages) > 2
    changes = [change for page in pages for change in page.changes]
    assert sorted(changes) == sorted(model_tables.changes(model, 0))
    assert 50 == len([key for key, _ in itertools.groupby(changes, key=lambda change: change.key)])
    for _, of_key in itertools.groupby(changes, key=lambda change: change.key):
        versions = [change.version for change in of_key]
        assert sorted(versions) == versions


def test_the_feed_of_a_table_has_deletes_before_inserts(model_tables: ModelTables) -> None:
    """An API that gets the inserts first may refuse a row that it still has."""
    model = build_model("table", MANY.format(0, 100))
    model_tables.write(model)
    model_tables.write_query("table", MANY.format(50, 150))
    model_tables.write_query("table", MANY.format(60, 160))
    for page_bytes in (1_000, 10_000_000):
        changes = model_tables.changes(model, 1, 3, page_bytes=page_bytes)
        order = [(change.version, change.change_type is ChangeType.INSERT, change.rowid) for change in changes]
        assert sorted(order) == order
        # the rows of version 2 were deleted in version 3
        assert [(2, ChangeType.DELETE)] * 100 + [(3, ChangeType.INSERT)] * 100 == [
            (change.version, change.change_type) for change in changes
        ]


def test_a_snapshot_is_the_table_at_that_version(model_tables: ModelTables) -> None:
    """The first run of a sync sends one version, whatever was written since then."""
    model = build_model("merge", values_query("1, 'a'", "2, 'b'"))
    model_tables.write(model)
    model_tables.write_query("merge", values_query("2, 'B'", "3, 'c'"))
    [segment] = model_tables.feed(model).segments(None, 1)
    assert (-1, 1) == (segment.after_version, segment.last_version)
    changes = [change for page in segment.pages for change in page.changes]
    assert [("1", "insert", 1, '[1,"a"]'), ("2", "insert", 1, '[2,"b"]')] == [
        (change.key, change.change_type, change.version, change.payload) for change in changes
    ]


def test_reading_a_feed_twice_gives_the_same_changes(model_tables: ModelTables) -> None:
    """After a crash between reading and queueing, the feed is read again."""
    model = build_model("tracked", MANY.format(0, 200))
    model_tables.write(model)
    assert model_tables.changes(model, 0) == model_tables.changes(model, 0)
    assert [] == model_tables.changes(model, 1, 1)


def test_several_keys_make_one_identifier(model_tables: ModelTables) -> None:
    model = build_model("merge", values_query("1, 'a', 2", columns="id, name, n"), key=("NAME", "id"))
    model_tables.write(model)
    assert [('["a",1]', '[1,"a",2]')] == [(change.key, change.payload) for change in model_tables.changes(model, None)]
