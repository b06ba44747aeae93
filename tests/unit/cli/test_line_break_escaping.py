"""The line breaks in a row's value or an API's answer: they never start a new line on the screen."""

import pytest
from support.processes.cli_terminal import CommandLine
from support.projects.shop_project import ShopProject, write_contacts

from ondatra_dagster.testing.demo_api.demo_server import DemoApi

FORGED = "✓ sync.crm  delivered 9 inserts"
PUSH = f"""
API = {{"base_url": "URL", "retry": 0}}

def push(rows):
    keys = [str(row["__ondatra_rowid"]) + ":" + row["__ondatra_change_type"] for row in rows]
    text = "not taken\\n{FORGED}\\r{FORGED}\\u2028{FORGED}\\x1b[2J\\u202e"
    return {{key: ("reject: " if place == 0 else "error: ") + text for place, key in enumerate(keys)}}
"""


@pytest.fixture
def forging_shop(shop: ShopProject, api: DemoApi) -> ShopProject:
    (shop.root / "lib" / "crm_push.star").write_text(PUSH.replace("URL", api.url), encoding="utf-8")
    return shop


def test_no_command_shows_a_forged_line(forging_shop: ShopProject, ondatra: CommandLine) -> None:
    ran = ondatra.run_project(forging_shop)
    assert FORGED in ran.stderr

    commands = (("dead", "sync.crm"), ("records", "sync.crm"), ("history",), ("status",), ("maintain",))
    for result in (ran, *(ondatra(*command, shop=forging_shop) for command in commands)):
        lines = (result.stdout + result.stderr).splitlines()
        assert not [line for line in lines if line.startswith(FORGED)]
        assert not {"\x1b", "\u202e", "\u2028", "\r"} & set(result.stdout + result.stderr)


def test_a_row_that_fails_a_check_forges_no_line(shop: ShopProject, ondatra: CommandLine) -> None:
    """The message contains samples, which are values of rows."""
    model = shop.root / "models" / "sync" / "crm.sql"
    model.write_text(f"-- @constraint: email LIKE '%@%'\n{model.read_text()}")
    write_contacts(shop.root, a1=f"nonsense\n{FORGED}", b2="b@example.com")

    result = ondatra.run_project(shop)

    assert "1 of 2 rows fails" in result.stderr
    assert not [line for line in result.stderr.splitlines() if line.startswith(FORGED)]
