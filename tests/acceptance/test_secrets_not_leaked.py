"""The files, events and output that a whole run leaves behind, from SQL to the API: they contain no secret."""

from collections.abc import Callable
from pathlib import Path

import pytest
from support.apis.secret_echo_api import running_echo_api
from support.files.secret_search import find_secrets_in_folder, find_secrets_in_text
from support.spark.spark_project import SparkProject

from ondatra_dagster.warehouse.spark.session import Warehouse

pytestmark = pytest.mark.acceptance

MODEL = """
-- @kind: merge
-- @unique_key: id
-- @sink: echo
SELECT id, name FROM csv.`data/rows.csv` WITH ('header' = 'true')
"""
PUSH = """
API = {
    "base_url": "BASE",
    "auth": {"oauth2": {
        "token_url": "/token", "client_id": "us", "client_secret": {"env": "SECRET"},
        "refresh_token": {"env": "REFRESH"},
    }},
    "headers": {"X-Team": {"env": "TEAM"}},
    "retry": 0,
}

def push(rows):
    statuses = {}
    for row in rows:
        answer = http.post("/" + row["id"], json = row)
        print(answer.text)
        word = {"1": "reject: ", "2": "warn: ", "3": "error: "}.get(row["id"], "")
        statuses[str(row["__ondatra_rowid"]) + ":" + row["__ondatra_change_type"]] = word + answer.text
    return statuses
"""
SECRETS = {"SECRET": "client/canary+secret", "REFRESH": "refresh canary token", "TEAM": "the canary team"}


def test_a_run_leaves_no_secret_behind(
    tmp_path: Path, shared_warehouse: Warehouse, captured_output: Callable[[], str]
) -> None:
    """The API even returns what it gets. Only .env and the file of the rotated token contain secrets."""
    shop = SparkProject(tmp_path / "shop", shared_warehouse.session)
    with running_echo_api() as url:
        shop.write_files(
            {
                "pyproject.toml": "[tool.ondatra]\n",
                ".env": "".join(f'{name}="{value}"\n' for name, value in SECRETS.items()),
                "lib/echo.star": PUSH.replace("BASE", url),
                "models/sync/echo.sql": MODEL,
            }
        )
        shop.write_rows("rows", ("id", "name"), [(number, f"row {number}") for number in range(1, 6)])
        shop.run()

    assert 1 == len(shop.workspace.history.list_runs("sync.echo"))
    assert [] == find_secrets_in_text(captured_output() + repr(shop.workspace))
    places_by_file = find_secrets_in_folder(shop.root)
    assert [".env", "json"] == sorted(name if name == ".env" else name.rpartition(".")[2] for name in places_by_file), (
        places_by_file
    )
    assert all(name == ".env" or name.startswith(".ondatra/tokens/") for name in places_by_file)
