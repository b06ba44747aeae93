"""The rows of a table, for people and for programs, and no JVM for it."""

from pathlib import Path

import orjson
import pyarrow as pa
import pytest
from support.processes.cli_terminal import CommandLine
from support.projects.shop_project import ShopProject
from support.spark.pyarrow_delta_table import write_table

from ondatra_dagster.cli.commands.run import execute_plan

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
def table(shop: ShopProject) -> Path:
    path = shop.root / ".ondatra" / "warehouse" / "sync" / "crm"
    write_table(path, ROWS)
    return path


@pytest.mark.usefixtures("table")
def test_rows_are_shown_without_hidden_columns(ondatra: CommandLine) -> None:
    """What a terminal would obey is made harmless; nothing and an empty text can be told apart."""
    said = ondatra("query", "Sync.CRM")
    assert [
        "  id  name  amount  note",
        '   1  Åsa      1.5  a "b"',
        "  22        -22.25  two·lines ·[31m",
        "NULL  NULL     nan  NULL",
    ] == said.stdout.splitlines()
    assert (0, "(3 rows)\n") == (said.exit_code, said.stderr)


@pytest.mark.usefixtures("table")
def test_programs_get_an_object_a_row(ondatra: CommandLine) -> None:
    said = ondatra("query", "sync/crm", "--json")
    assert {"id": 22, "name": "", "amount": -22.25, "note": "two\nlines \x1b[31m"} == said.json_lines[1]
    assert (3, "") == (len(said.json_lines), said.stderr)


def test_rows_are_cut_off_for_people(ondatra: CommandLine, table: Path) -> None:
    """But a program that asks for all gets all."""
    write_table(table, pa.concat_tables([ROWS] * 30))
    said = ondatra("query", "sync.crm")
    assert (51, "(50 of 93 rows; --limit shows more)\n") == (len(said.stdout.splitlines()), said.stderr)
    assert 93 == len(ondatra("query", "sync.crm", "--json").json_lines)
    assert 4 == len(ondatra("query", "sync.crm", "--json", "--limit", "4").json_lines)
    assert ["id  name  amount  note"] == ondatra("query", "sync.crm", "--limit", "0").stdout.splitlines()


@pytest.mark.usefixtures("shop")
@pytest.mark.parametrize(
    ("name", "code", "said"),
    [
        ("sync.crm", 1, "sync.crm: it has no table yet; run it first: ondatra run sync.crm\n"),
        ("sync.crm__invalid", 1, "sync.crm__invalid: it never had an invalid row\n"),
        ("sync.cmr", 2, "there is no table 'sync.cmr'; did you mean sync.crm?\n"),
    ],
)
def test_a_table_that_is_not_there_says_what_to_do(ondatra: CommandLine, name: str, code: int, said: str) -> None:
    assert (code, "", said) == (lambda told: (told.exit_code, told.stdout, told.stderr))(ondatra("query", name))


@pytest.mark.usefixtures("shop")
def test_a_source_that_has_no_such_table_says_so(ondatra: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ONDATRA_SOURCES", '{"lake": "data/lake"}')
    assert "lake.x: there is no such table in data/lake\n" == ondatra("query", "lake.x").stderr


def test_the_sync_log_is_shown_as_any_table(shop: ShopProject, ondatra: CommandLine) -> None:
    """Without Spark; before there is one it says how it comes to be."""
    assert "it is made when a run with Spark has sent something" in ondatra("query", "ondatra.sync_log").stderr
    workspace = shop.workspace
    execute_plan(workspace, workspace.plan(None), opened=shop.open_engine)
    workspace.sync_log.append(shop.tables.log)
    said = ondatra("query", "ondatra.sync_log", "--json")
    rows = [orjson.loads(line) for line in said.stdout.splitlines()]
    assert {("a1", "succeeded"), ("b2", "succeeded")} == {(row["record_identifier"], row["status"]) for row in rows}
    assert "did you mean ondatra.sync_log?" in ondatra("query", "sync_log").stderr


def test_a_file_that_is_gone_is_told(ondatra: CommandLine, table: Path) -> None:
    """Somebody tidied up by hand, or vacuumed while we looked."""
    for file in table.glob("*.parquet"):
        file.unlink()
    said = ondatra("query", "sync.crm")
    assert (1, "") == (said.exit_code, said.stdout)
    assert said.stderr.startswith("sync.crm changed while it was read (")
