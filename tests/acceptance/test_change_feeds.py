"""The cells of the table of kinds, each read from the real change feed."""

from pathlib import Path

import pytest
from support.spark.spark_project import SparkProject

from ondatra_dagster.project.model_kinds import KINDS
from ondatra_dagster.row_changes import ChangeType
from ondatra_dagster.warehouse.change_feed import ChangeFeed
from ondatra_dagster.warehouse.kinds.kind_registry import WRITERS
from ondatra_dagster.warehouse.spark.session import Warehouse

pytestmark = pytest.mark.acceptance

QUERY = "SELECT g, k, v FROM csv.`data/rows.csv` WITH ('header' = 'true')\n"
HEADERS = {
    "table": "-- @kind: table\n",
    "merge": "-- @kind: merge\n-- @unique_key: k\n",
    "tracked": "-- @kind: tracked\n-- @group_key: g\n",
    "append": "-- @kind: append\n",
    "scd2": "-- @kind: scd2\n-- @unique_key: k\n",
    "partition": "-- @kind: partition\n-- @partitioned_by: g\n",
}
COLUMNS = ("g", "k", "v")
A1, A2, B3 = ("a", "1", "x"), ("a", "2", "y"), ("b", "3", "z")
NEW_A2 = ("a", "2", "Y")
INSERT, DELETE, BEFORE, AFTER = "insert", "delete", "update_preimage", "update_postimage"

# kind → what the feed has after: the first run, a changed row, a row that disappeared
CELLS = {
    "table": (
        [(INSERT, A1), (INSERT, A2), (INSERT, B3)],
        [(DELETE, A1), (DELETE, A2), (DELETE, B3), (INSERT, A1), (INSERT, B3), (INSERT, NEW_A2)],
        [(DELETE, A1), (DELETE, B3), (DELETE, NEW_A2), (INSERT, A1), (INSERT, NEW_A2)],
    ),
    "merge": ([(INSERT, A1), (INSERT, A2), (INSERT, B3)], [(AFTER, NEW_A2), (BEFORE, A2)], []),
    "tracked": (
        [(INSERT, A1), (INSERT, A2), (INSERT, B3)],
        [(DELETE, A1), (DELETE, A2), (INSERT, A1), (INSERT, NEW_A2)],
        [(DELETE, B3)],
    ),
    "append": ([(INSERT, A1), (INSERT, A2), (INSERT, B3)], [(INSERT, NEW_A2)], []),
    "scd2": (  # with from, to and whether it is current; the first version is 1, after the table's creation
        [(INSERT, (*row, 1, None, True)) for row in (A1, A2, B3)],
        [(AFTER, (*A2, 1, 2, False)), (BEFORE, (*A2, 1, None, True)), (INSERT, (*NEW_A2, 2, None, True))],
        [(AFTER, (*B3, 1, 3, False)), (BEFORE, (*B3, 1, None, True))],
    ),
    "partition": (
        [(INSERT, A1), (INSERT, A2), (INSERT, B3)],
        [(DELETE, A1), (DELETE, A2), (INSERT, A1), (INSERT, NEW_A2)],
        [],  # the query doesn't return it
    ),
}


@pytest.fixture
def shop(tmp_path: Path, shared_warehouse: Warehouse) -> SparkProject:
    shop = SparkProject(tmp_path / "a project", shared_warehouse.session)
    shop.write_files({"pyproject.toml": "[tool.ondatra]\n", "lib/none.star": "def push(rows):\n    return {}\n"})
    return shop


def test_every_kind_has_a_writer():
    """A kind without one would fail only when it runs."""
    assert set(KINDS) == set(WRITERS) == {*CELLS, "events"}  # whose rows don't come from a query


@pytest.mark.parametrize("kind", CELLS)
def test_the_feed_of_a_kind_is_what_the_table_of_kinds_says(shop: SparkProject, kind: str) -> None:
    """The rows that push functions get depend on it, and so does every promise of delivery."""
    name, (first, changed, gone) = f"m.{kind}", CELLS[kind]
    shop.write_files({f"models/m/{kind}.sql": HEADERS[kind] + QUERY})
    change_types = []
    before = -1
    for rows, expected in (
        ([A1, A2, B3], first),
        ([A1, A2, B3], []),
        ([A1, NEW_A2, B3], changed),
        ([A1, NEW_A2], gone),
        ([NEW_A2, A1], []),
    ):
        shop.write_rows("rows", COLUMNS, rows)
        assert 0 == shop.run()
        feed = shop.read_feed(name, after=before)
        assert sorted(expected, key=str) == feed
        change_types += [change_type for change_type, _ in feed]
        if not expected:
            assert before == shop.log_version(name)  # no commit
        before = shop.log_version(name)
    assert KINDS[kind].change_types == {ChangeType(change_type) for change_type in change_types}


def test_an_updated_row_keeps_its_rowid(shop: SparkProject) -> None:
    """Statuses and records refer to a row by its rowid."""
    shop.write_files({"models/m/merge.sql": HEADERS["merge"] + QUERY})
    shop.write_rows("rows", COLUMNS, [A1, A2])
    shop.run()
    before = shop.rowids_by_value("m.merge", "k")
    shop.write_rows("rows", COLUMNS, [A1, NEW_A2, B3])
    shop.run()
    after = shop.rowids_by_value("m.merge", "k")
    assert before == {key: after[key] for key in before}
    assert 3 == len(set(after.values()))


@pytest.mark.parametrize(
    ("kind", "rows", "kept", "reasons"),
    [
        (
            "merge",
            [A1, ("a", None, "n"), ("b", "2", "y"), ("b", "2", "y2")],
            [A1, A2],
            ["DUPLICATE", "DUPLICATE", "NULL"],
        ),
        ("tracked", [A1, A2, (None, "9", "n")], [A1, A2], ["NULL"]),
    ],
)
def test_rows_with_null_or_duplicate_keys_are_invalid(
    shop: SparkProject, kind: str, rows: list[tuple[object, ...]], kept: list[tuple[object, ...]], reasons: list[str]
) -> None:
    """It is unknown which of two rows with equal keys is right, so the row that the table has stays."""
    shop.write_files({f"models/m/{kind}.sql": HEADERS[kind] + QUERY})
    shop.write_rows("rows", COLUMNS, [A1, A2])
    assert 0 == shop.run()
    shop.write_rows("rows", COLUMNS, rows)
    assert 0 == shop.run()
    table = shop.session.read.format("delta").load(shop.table_path(f"m.{kind}"))
    assert kept == sorted(tuple(row[name] for name in COLUMNS) for row in table.collect())
    invalid = shop.session.read.format("delta").load(shop.table_path(f"m.{kind}") + "__invalid")
    assert reasons == sorted(row["__ondatra_reason"] for row in invalid.collect())


def test_a_new_comment_changes_nothing_and_a_new_definition_does(shop: SparkProject) -> None:
    """A user who tidies a query must not send a table again."""
    shop.write_files({"models/m/table.sql": HEADERS["table"] + QUERY})
    shop.write_rows("rows", COLUMNS, [A1])
    shop.run()
    version = shop.log_version("m.table")
    shop.write_files({"models/m/table.sql": "-- why\n" + HEADERS["table"] + QUERY.replace("g, k", "g,  k")})
    assert not shop.workspace.plan(None).has_work
    shop.write_files({"models/m/table.sql": HEADERS["table"] + QUERY.replace(" v ", " upper(v) AS v ")})
    assert shop.workspace.plan(None).has_work
    shop.run()
    assert [("delete", A1), ("insert", ("a", "1", "X"))] == shop.read_feed("m.table", after=version)


def test_a_query_that_fails_leaves_the_table_and_reports_its_file(shop: SparkProject, capfd) -> None:
    """Half of a table is worse than yesterday's table."""
    shop.write_files({"models/m/table.sql": HEADERS["table"] + QUERY})
    shop.write_rows("rows", COLUMNS, [A1])
    shop.run()
    version = shop.log_version("m.table")
    broken = QUERY.replace(" v ", " CAST(v AS int) / 0 AS v ")
    shop.write_files({"models/m/table.sql": HEADERS["table"] + broken})
    capfd.readouterr()
    assert 1 == shop.run()
    assert version == shop.log_version("m.table")
    stderr = capfd.readouterr().err
    assert "models/m/table.sql" in stderr
    assert "\tat " not in stderr
    assert 'File "' not in stderr


TYPES = """
-- @kind: merge
-- @unique_key: id
SELECT 1 AS id, DATE'1969-07-20' AS `the day`, TIMESTAMP'2026-01-02 03:04:05.678 UTC' AS at,
    TIMESTAMP_NTZ'2026-01-02 03:04:05' AS local, CAST('12345678901234567890.10' AS decimal(38, 2)) AS amount,
    9007199254740993 AS big, 0.1D AS ratio, CAST('NaN' AS double) AS nan, X'00ff' AS raw, true AS yes,
    array(1, null) AS list, named_struct('a', 'b', 'c', CAST(null AS int)) AS record,
    map('k', DATE'2026-01-02') AS dict,
    'é 😀 "q"' AS text, CAST(null AS string) AS nothing, 'dot' AS `a.b`
"""


def test_every_type_reaches_push_as_the_contract_says(shop: SparkProject) -> None:
    """A date as debug text, or a decimal with lost digits, is a wrong row in the user's ERP."""
    shop.write_files({"models/m/types.sql": TYPES})
    assert 0 == shop.run()
    feed = ChangeFeed(
        warehouse=shop.open_tables().warehouse, table=shop.table_path("m.types"), key_columns=(), groups_by_key=False
    )
    (segment,) = feed.segments(None, shop.log_version("m.types"))
    (page,) = segment.pages
    (change,) = page.changes
    assert {
        "id": 1,
        "the day": "1969-07-20",
        "at": "2026-01-02T03:04:05.678Z",
        "local": "2026-01-02T03:04:05",
        "amount": "12345678901234567890.10",
        "big": 9007199254740993,
        "ratio": 0.1,
        "nan": None,
        "raw": "AP8=",
        "yes": True,
        "list": [1, None],
        "record": {"a": "b", "c": None},
        "dict": {"k": "2026-01-02"},
        "text": 'é 😀 "q"',
        "nothing": None,
        "a.b": "dot",
    } == page.layout.parse_row(change.payload)
    assert not shop.workspace.plan(None).has_work
    shop.write_files({"models/m/types.sql": TYPES.replace("'dot'", "'d' || 'ot'")})
    version = shop.log_version("m.types")
    assert 0 == shop.run()
    assert version == shop.log_version("m.types")  # equal in every type: maps, NaN and nested ones too
