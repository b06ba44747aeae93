"""The types of columns: their values are compared exactly, and sent as JSON."""

import dataclasses

import orjson
import pytest
from support.spark.model_tables import QUERY_KINDS, ModelTables, build_model

from ondatra_dagster.errors import WarehouseError
from ondatra_dagster.project.model_kinds import KINDS

pytestmark = pytest.mark.spark

# expression, its value as JSON
EVERY_TYPE = (
    ("true", True),
    ("cast(-1 as tinyint)", -1),
    ("cast(300 as smallint)", 300),
    ("9223372036854775807", 9223372036854775807),
    ("cast(0.1 as float)", 0.1),
    ("cast(0.1 as double)", 0.1),
    ("cast('NaN' as double)", None),
    ("cast('-Infinity' as float)", None),
    ("cast(12.50 as decimal(10,2))", "12.50"),
    ("cast(0.0000001 as decimal(38,10))", "0.0000001000"),
    ("cast('12345678901234567890123456789012345678' as decimal(38,0))", "1234567890" * 3 + "12345678"),
    ("'Zoë 🦦 \"quoted\"'", 'Zoë 🦦 "quoted"'),
    ("cast('' as string)", ""),
    ("cast(null as string)", None),
    ("x'00ff'", "AP8="),
    ("date'1582-10-14'", "1582-10-14"),
    ("date'2026-11-18'", "2026-11-18"),
    ("timestamp'1969-12-31 23:59:59.5Z'", "1969-12-31T23:59:59.500Z"),
    ("timestamp'2026-11-18 12:00:00+02:00'", "2026-11-18T10:00:00Z"),
    ("timestamp_ntz'2026-03-29 02:30:00'", "2026-03-29T02:30:00"),
    ("array(1, null, 2)", [1, None, 2]),
    ("cast(array() as array<int>)", []),
    ("named_struct('a b', 1, 'when', date'2026-01-02', 'none', cast(null as int))",
     {"a b": 1, "when": "2026-01-02", "none": None}),
    ("map('k', cast(1.10 as decimal(5,2)), 'l', null)", {"k": "1.10", "l": None}),
    ("timestamp'2026-11-18 12:00:00.123456Z'", "2026-11-18T12:00:00.123456Z"),
    ("map(2, array(named_struct('at', timestamp'2026-01-02 03:04:05Z')))",
     {"2": [{"at": "2026-01-02T03:04:05Z"}]}),
    ("array(cast('NaN' as float), cast(0.1 as float))", [None, 0.1]),
    ("array(x'01', x'02')", ["AQ==", "Ag=="]),
)  # fmt: skip
NAMES = [f"c{place}" for place in range(len(EVERY_TYPE))]
QUERY = "select 1 as id, " + ", ".join(
    f"{expression} as {name}" for name, (expression, _) in zip(NAMES, EVERY_TYPE, strict=True)
)


@pytest.mark.parametrize("kind", QUERY_KINDS)
def test_values_of_every_type_are_sent_as_json_and_equal_themselves(model_tables: ModelTables, kind: str) -> None:
    """A value that seemed to differ from itself would be sent in every run."""
    model = build_model(kind, QUERY)
    model_tables.write(model)
    [change] = model_tables.changes(model, None)
    payload = orjson.loads(change.payload)
    assert dict(zip(NAMES, [json_text for _, json_text in EVERY_TYPE], strict=True)) == dict(
        zip(NAMES, payload[1 : len(NAMES) + 1], strict=True)  # the columns of scd2 follow them
    )
    assert not model_tables.write(model).has_changes


SAME = (
    ("map('a', 1, 'b', 2)", "map('b', 2, 'a', 1)"),
    ("cast('NaN' as double)", "cast('NaN' as double)"),
    ("cast(0.0 as double)", "cast(-0.0 as double)"),
    ("array(map(1, 0.0D))", "array(map(1, -0.0D))"),
    ("named_struct('m', map('a', array(1), 'b', null))", "named_struct('m', map('b', null, 'a', array(1)))"),
)
# type, old value, new value: Spark's own hashes and comparisons treat many of these as equal
DIFFERENT = (
    ("array<string>", "array('a', null)", "array('a')"),
    ("array<string>", "array('a', null)", "array(null, 'a')"),
    ("array<string>", "null", "array()"),
    ("array<array<string>>", "array(array('a'), array('b'))", "array(array('a', 'b'))"),
    ("struct<x: string, y: string>", "named_struct('x', null, 'y', 'a')", "named_struct('x', 'a', 'y', null)"),
    ("struct<x: string>", "named_struct('x', null)", "null"),
    ("map<string, string>", "map('a', 'b')", "map('a', null)"),
    ("map<string, string>", "map('a', null)", "map()"),
    ("array<map<string, string>>", "array(map('a', null))", "array(map())"),
    ("struct<a: string, b: string>", "named_struct('a', 'ab', 'b', 'c')", "named_struct('a', 'a', 'b', 'bc')"),
    ("string", "null", "''"),
    ("double", "cast('NaN' as double)", "null"),
)
TWO_TEXTS = (("null, 'a'", "'a', null"), ("'ab', 'c'", "'a', 'bc'"), ("null, ''", "'', null"))


@pytest.mark.parametrize("kind", QUERY_KINDS)
def test_an_equal_value_that_is_written_differently_is_no_change(model_tables: ModelTables, kind: str) -> None:
    """Otherwise it would be sent in every run."""
    for side in (0, 1):
        columns = ", ".join(f"{pair[side]} as v{place}" for place, pair in enumerate(SAME))
        assert model_tables.write_query(kind, f"select 1 as id, {columns}").has_changes is (side == 0)


@pytest.mark.parametrize("kind", ["merge", "tracked"])
def test_position_and_null_make_a_difference(model_tables: ModelTables, kind: str) -> None:
    """Spark's own hashes skip nulls, so such a change would be lost forever."""

    def query(side: int) -> str:
        rows = []
        for row, (of, *sides) in enumerate(DIFFERENT):
            cells = [
                f"cast({sides[side] if row == place else 'null'} as {DIFFERENT[place][0]}) as v{place}"
                for place in range(len(DIFFERENT))
            ]
            rows.append(f"select {row} as id, {', '.join(cells)}, null as a, null as b /* {of} */")
        nothing = ", ".join(f"null as v{place}" for place in range(len(DIFFERENT)))
        for row, pair in enumerate(TWO_TEXTS):
            a, b = pair[side].split(", ")
            rows.append(f"select {100 + row} as id, {nothing}, cast({a} as string) as a, cast({b} as string) as b")
        return " union all ".join(rows)

    model_tables.write_query(kind, query(0))
    result = model_tables.write_query(kind, query(1))
    assert len(DIFFERENT) + len(TWO_TEXTS) == (result.updated or result.inserted)


@pytest.mark.parametrize("kind", QUERY_KINDS)
def test_columns_with_unusual_names_are_supported(model_tables: ModelTables, kind: str) -> None:
    """The users' columns have the names that their sources use."""
    names = ["a b", "a.b", "select", "Größe", "1st", 'quo"te', "semi;colon", "Ünï🦦"]
    quoted = ["`" + name.replace("`", "``") + "`" for name in names]
    columns = ", ".join(f"{{0}} as {name}" for name in quoted)
    model = build_model(kind, f"select 1 as `the id`, {columns.format(1)}", key=("the id",), name="odd.things")
    model_tables.write(model)
    changed = f"select 1 as `the id`, {columns.format(2)}"
    model_tables.write(dataclasses.replace(model, sql=changed))
    own = KINDS[kind].own_columns
    assert ["the id", *names, *own] == [column.name for column in model_tables.state(model).columns]
    newest = orjson.loads(model_tables.changes(model, None)[-1].payload)
    assert [1, *[2] * len(names)] == newest[: len(names) + 1]
    if kind == "merge":
        assert ["update_preimage", "update_postimage"] == [change[0] for change in model_tables.feed_values(model, 1)]


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("select 1 as id, null as v", "CAST"),
        ("select 1 as id, interval 1 day as v", "CAST it to STRING"),
        ("select 1 as id, parse_json('1') as v", "to_json"),
        ("select 1 as id, 2 as _change_type", "rename it with AS"),
        ("select 1 as id, 2 as __ondatra_rowid", "rename it with AS"),
        ("select 1 as id, 2 as ID", "is a duplicate"),
        ("select 1 as id, 2 as `a``b`", "rename it with AS"),
        ("select 1 as other", "'id' isn't a column of the query"),
        ("select map(1, 2) as id", "choose another column"),
    ],
)
def test_columns_that_a_table_cannot_have_are_refused(model_tables: ModelTables, query: str, said: str) -> None:
    """The message says what to write instead."""
    with pytest.raises(WarehouseError, match=r"models/mart/things\.sql:3: ") as refusal:
        model_tables.write_query("merge", query)
    assert said in str(refusal.value)
