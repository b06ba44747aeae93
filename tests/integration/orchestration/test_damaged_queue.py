"""A queue with damaged pages: only its own sync fails, the message names file and remedy, and no row is hidden."""

from pathlib import Path

import pytest
from support.files.sqlite_page_damage import overwrite_sqlite_page, replace_in_sqlite_page
from support.processes.cli_terminal import CommandLine
from support.projects.shop_project import ShopProject, write_contacts

from ondatra_dagster.testing.demo_api.demo_server import DemoApi

TAKES_ALL = """
def push(rows):
    return {str(row["__ondatra_rowid"]) + ":" + row["__ondatra_change_type"]: "ok" for row in rows}
"""
FAILS = TAKES_ALL.replace('"ok"', '"error: not now"')
MODEL = "-- @kind: merge\n-- @unique_key: id\n-- @sink: {}\nSELECT id, email FROM raw.contacts\n"
NAMES = [f"a{number}" for number in range(8)]
REMEDY = "move it away: the next run rebuilds it from the queue snapshot and the records"


@pytest.fixture
def shop(
    tmp_path: Path, api: DemoApi, ondatra: CommandLine, dagster_home: Path, monkeypatch: pytest.MonkeyPatch
) -> ShopProject:
    """Return a shop with eight rows waiting in the queue of sync.ads, which runs before sync.crm."""
    files = {"models/sync/ads.sql": MODEL.format("ads_push"), "lib/ads_push.star": FAILS}
    shop = ShopProject.create(tmp_path / "shop", url=api.url, files=files)
    monkeypatch.setenv("DAGSTER_HOME", str(dagster_home))
    monkeypatch.chdir(shop.root)
    write_contacts(shop.root, **{name: f"{name}@example.com" for name in NAMES})
    ondatra.run_project(shop)
    assert 8 == _waiting(shop)
    return shop


@pytest.fixture
def ondatra(capfd: pytest.CaptureFixture[str]) -> CommandLine:
    return CommandLine(capfd)


def _waiting(shop: ShopProject) -> int:
    state = shop.workspace.queue("sync.ads")
    return state.waiting_units if state else 0


def _queue(shop: ShopProject) -> Path:
    return shop.workspace.syncs["sync.ads"].queue_file


@pytest.mark.parametrize("name", ["batch", "unit_next", "settled", "unit", "meta"])
def test_a_damaged_page_fails_only_its_own_sync(
    shop: ShopProject, ondatra: CommandLine, api: DemoApi, name: str
) -> None:
    """Runs and maintenance report the damage in the same words, wherever it is, and do all other work."""
    overwrite_sqlite_page(_queue(shop), name)
    write_contacts(shop.root, new="new@example.com")
    result = ondatra.run_project(shop)
    assert 1 == result.exit_code
    assert f"{_queue(shop)} is damaged (" in result.stderr
    assert REMEDY in result.stderr
    assert "→ sync.crm" in result.stderr
    assert ["new@example.com"] == [row["email"] for row in api.contacts().values() if row["customer_id"] == "new"]
    result = ondatra("maintain", "--json", shop=shop)
    assert 9 == len(result.json_lines)
    files = {str(line["task"]): str(line["did"]) for line in result.json_lines}["state_files"]
    assert f"{_queue(shop)} is damaged (" in files
    assert REMEDY in files
    assert "whole trace" not in result.stderr


@pytest.mark.parametrize(
    ("place", "why"),
    [
        ("unit_next", "its index on waiting rows and its table disagree"),
        ("unit", "8 of its rows are in no known state"),
    ],
)
def test_rows_hidden_by_a_damaged_index_make_the_sync_fail(
    shop: ShopProject, ondatra: CommandLine, place: str, why: str
) -> None:
    """SQLite finds the page valid. Neither the table nor the index shows which of them is right."""
    assert 8 == replace_in_sqlite_page(_queue(shop), place, b"waiting", b"waitinc")
    result = ondatra.run_project(shop)
    assert 1 == result.exit_code
    assert "nothing to do" not in result.stderr
    assert f"{_queue(shop)} is damaged ({why})" in result.stderr
    assert REMEDY in result.stderr
    assert f"is damaged ({why})" in ondatra("status").stdout
    assert 1 == ondatra("replay", "sync.ads").exit_code


def test_the_remedy_brings_the_rows_back(shop: ShopProject, ondatra: CommandLine) -> None:
    """After the file is moved away, the next run rebuilds the queue and delivers all eight rows."""
    replace_in_sqlite_page(_queue(shop), "unit_next", b"waiting", b"waitinc")
    ondatra.run_project(shop)
    (shop.root / "lib" / "ads_push.star").write_text(TAKES_ALL)
    _queue(shop).rename(shop.root / "away")
    shop.clock_offset = 100_000
    result = ondatra.run_project(shop)
    assert 0 == result.exit_code
    assert "→ sync.ads      delivered 8 inserts" in result.stderr
