"""The rows of a table, for people and for programs, and no JVM for it."""

from pathlib import Path

import orjson
import pyarrow as pa
import pytest
from support.parquet_table import write_table
from support.shop import Shop
from support.terminal import Terminal

from ondatra_dagster.cli.run import run

ROWS = pa.table(
    {
        "id": pa.array([1, 22, None]),
        "name": ["Åsa", "", None],
        "amount": [1.5, -22.25, float("nan")],
        "note": ['a "b"', "two\nlines \x1b[31m", None],
        "__ondatra_rowid": [1, 2, 3],
        "_content_hash": ["x", "y", "z"],
    }
)


@pytest.fixture
def table(shop: Shop) -> Path:
    path = shop.root / ".ondatra" / "warehouse" / "sync" / "crm"
    write_table(path, ROWS)
    return path


@pytest.mark.usefixtures("table")
def test_rows_are_shown_without_hidden_columns(ondatra: Terminal) -> None:
    """What a terminal would obey is made harmless; nothing and an empty text can be told apart."""
    said = ondatra("query", "Sync.CRM")
    assert [
        "  id  name  amount  note",
        '   1  Åsa      1.5  a "b"',
        "  22        -22.25  two·lines ·[31m",
        "NULL  NULL     nan  NULL",
    ] == said.out.splitlines()
    assert (0, "(3 rows)\n") == (said.code, said.err)


@pytest.mark.usefixtures("table")
def test_programs_get_an_object_a_row(ondatra: Terminal) -> None:
    said = ondatra("query", "sync/crm", "--json")
    assert {"id": 22, "name": "", "amount": -22.25, "note": "two\nlines \x1b[31m"} == said.objects[1]
    assert (3, "") == (len(said.objects), said.err)


def test_rows_are_cut_off_for_people(ondatra: Terminal, table: Path) -> None:
    """But a program that asks for all gets all."""
    write_table(table, pa.concat_tables([ROWS] * 30))
    said = ondatra("query", "sync.crm")
    assert (51, "(50 of 93 rows; --limit shows more)\n") == (len(said.out.splitlines()), said.err)
    assert 93 == len(ondatra("query", "sync.crm", "--json").objects)
    assert 4 == len(ondatra("query", "sync.crm", "--json", "--limit", "4").objects)
    assert ["id  name  amount  note"] == ondatra("query", "sync.crm", "--limit", "0").out.splitlines()


@pytest.mark.usefixtures("shop")
@pytest.mark.parametrize(
    ("name", "code", "said"),
    [
        ("sync.crm", 1, "sync.crm: it has no table yet; run it first: ondatra run sync.crm\n"),
        ("sync.crm__invalid", 1, "sync.crm__invalid: it never had an invalid row\n"),
        ("sync.cmr", 2, "there is no table 'sync.cmr'; did you mean sync.crm?\n"),
    ],
)
def test_a_table_that_is_not_there_says_what_to_do(
    ondatra: Terminal, name: str, code: int, said: str
) -> None:
    assert (code, "", said) == (lambda told: (told.code, told.out, told.err))(ondatra("query", name))


@pytest.mark.usefixtures("shop")
def test_a_source_that_has_no_such_table_says_so(ondatra: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ONDATRA_SOURCES", '{"lake": "data/lake"}')
    assert "lake.x: there is no such table in data/lake\n" == ondatra("query", "lake.x").err


def test_the_sync_log_is_shown_as_any_table(shop: Shop, ondatra: Terminal) -> None:
    """Without Spark; before there is one it says how it comes to be."""
    assert "it is made when a run with Spark has sent something" in ondatra("query", "ondatra.sync_log").err
    workspace = shop.workspace
    run(workspace, workspace.plan(None), as_json=False, opened=shop.opened)
    workspace.sync_log.append(shop.tables.log)
    said = ondatra("query", "ondatra.sync_log", "--json")
    rows = [orjson.loads(line) for line in said.out.splitlines()]
    assert {("a1", "succeeded"), ("b2", "succeeded")} == {
        (row["record_identifier"], row["status"]) for row in rows
    }
    assert "did you mean ondatra.sync_log?" in ondatra("query", "sync_log").err


def test_a_file_that_is_gone_is_told(ondatra: Terminal, table: Path) -> None:
    """Somebody tidied up by hand, or vacuumed while we looked."""
    for file in table.glob("*.parquet"):
        file.unlink()
    said = ondatra("query", "sync.crm")
    assert (1, "") == (said.code, said.out)
    assert said.err.startswith("sync.crm changed while it was read (")
