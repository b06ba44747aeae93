"""The `ondatra query` command: the rows of a table, for users and for programs, without a JVM."""

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
    """Control characters are replaced. NULL and an empty text look different."""
    result = ondatra("query", "Sync.CRM")
    assert [
        "  id  name  amount  note",
        '   1  Åsa      1.5  a "b"',
        "  22        -22.25  two·lines ·[31m",
        "NULL  NULL     nan  NULL",
    ] == result.stdout.splitlines()
    assert (0, "(3 rows)\n") == (result.exit_code, result.stderr)


@pytest.mark.usefixtures("table")
def test_a_program_gets_one_object_per_row(ondatra: CommandLine) -> None:
    result = ondatra("query", "sync/crm", "--json")
    assert {"id": 22, "name": "", "amount": -22.25, "note": "two\nlines \x1b[31m"} == result.json_lines[1]
    assert (3, "") == (len(result.json_lines), result.stderr)


def test_a_user_gets_the_first_rows_only(ondatra: CommandLine, table: Path) -> None:
    """A program gets all rows."""
    write_table(table, pa.concat_tables([ROWS] * 30))
    result = ondatra("query", "sync.crm")
    assert (51, "(50 of 93 rows; --limit shows more)\n") == (len(result.stdout.splitlines()), result.stderr)
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
def test_a_missing_table_is_reported_with_what_to_do(ondatra: CommandLine, name: str, code: int, said: str) -> None:
    assert (code, "", said) == (lambda result: (result.exit_code, result.stdout, result.stderr))(ondatra("query", name))


@pytest.mark.usefixtures("shop")
def test_a_missing_table_of_a_source_is_reported(ondatra: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ONDATRA_SOURCES", '{"lake": "data/lake"}')
    assert "lake.x: there is no such table in data/lake\n" == ondatra("query", "lake.x").stderr


def test_the_sync_log_is_shown_like_any_table(shop: ShopProject, ondatra: CommandLine) -> None:
    """It is read without Spark. Before it exists, the message says when it is created."""
    assert "it is created by a run with Spark that sends something" in ondatra("query", "ondatra.sync_log").stderr
    workspace = shop.workspace
    execute_plan(workspace, workspace.plan(None), open_service=shop.open_engine)
    workspace.sync_log.append(shop.tables.log)
    result = ondatra("query", "ondatra.sync_log", "--json")
    rows = [orjson.loads(line) for line in result.stdout.splitlines()]
    assert {("a1", "succeeded"), ("b2", "succeeded")} == {(row["record_identifier"], row["status"]) for row in rows}
    assert "did you mean ondatra.sync_log?" in ondatra("query", "sync_log").stderr


def test_a_missing_data_file_is_reported(ondatra: CommandLine, table: Path) -> None:
    """Another user or a vacuum deleted it during the query."""
    for file in table.glob("*.parquet"):
        file.unlink()
    result = ondatra("query", "sync.crm")
    assert (1, "") == (result.exit_code, result.stdout)
    assert result.stderr.startswith("sync.crm changed while it was read (")
