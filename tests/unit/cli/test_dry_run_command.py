"""`ondatra run --dry-run`: what a run would write and send, for people and for programs."""

from support.files.folder_contents import read_folder
from support.processes.cli_terminal import CommandLine
from support.projects.shop_project import ShopProject, write_contacts, write_shop_files
from support.projects.shop_with_history import run_shop

from ondatra_dagster.testing.demo_api.demo_server import DemoApi

GUARDED = (
    "-- @kind: merge\n-- @unique_key: id\n-- @sink: crm_push\n-- @max_deletes: 0\nSELECT id, email FROM raw.contacts\n"
)
CHECKED = GUARDED.replace("-- @max_deletes: 0", "-- @constraint: email LIKE '%@%'")


def kept(shop: ShopProject) -> dict[str, bytes]:
    """All that a dry run may not touch, byte for byte."""
    state = shop.root / ".ondatra"
    folders = ("warehouse", "queue", "tracking")
    return {name: content for each in folders for name, content in read_folder(state / each).items()}


def test_people_get_two_tables(shop: ShopProject, api: DemoApi, ondatra: CommandLine) -> None:
    """How much of what, and some of the rows, as they are and as they would be."""
    run_shop(shop)
    before, calls = kept(shop), api.calls
    write_contacts(shop.root, a1="ada@example.com", b2="bob@example.org", c3="cyn@example.com")
    said = ondatra.run_project(shop, is_dry=True)
    assert 0 == said.exit_code
    assert "dry run: nothing is written and nothing is sent\n" in said.stderr
    assert "→ sync.crm      would create 1 row, update 1 row\n" in said.stderr
    numbers, values, head, *rows = said.stdout.splitlines()
    assert "sync.crm" == values.split()[0]
    assert ["3", "2", "0", "1", "1", "0", "2", "3"] == values.split()[1:]
    assert "source rows  changed  invalid" in numbers
    assert ["key", "change", "what"] == head.split()
    assert ["b2   update  email: bob@example.com → bob@example.org"] == rows[:1]
    assert (before, calls) == (kept(shop), api.calls)


def test_a_long_value_does_not_hide_what_it_becomes(shop: ShopProject, ondatra: CommandLine) -> None:
    write_contacts(shop.root, b2=f"{'long' * 100}@example.com")
    run_shop(shop)
    write_contacts(shop.root, b2="b@example.org")
    row = ondatra.run_project(shop, is_dry=True).stdout.splitlines()[3]
    assert f"b2   update  email: {'long' * 9}lon… → b@example.org" == row


def test_programs_get_an_object_a_line(shop: ShopProject, ondatra: CommandLine) -> None:
    """With the same names as everywhere."""
    *models, sync, end = ondatra.run_project(shop, is_dry=True, as_json=True).json_lines
    assert ["raw.contacts", "sync.crm"] == [model["model"] for model in models]
    assert (True, 2, 0, 2) == tuple(
        sync[name] for name in ("dry_run", "creates", "destination_before", "destination_after")
    )
    assert {"deletes_guard", "invalid_records"} == set(sync["checks"])  # type: ignore[call-overload]
    assert {"id": [None, "a1"], "email": [None, "ada@example.com"]} == sync["samples"][0]["columns"]  # type: ignore[index]
    assert end["ok"]


def test_with_nothing_to_do_it_looks_and_leaves_nothing(shop: ShopProject, ondatra: CommandLine) -> None:
    """Not even what SQLite leaves where it has looked."""
    run_shop(shop)
    before = kept(shop)
    said = ondatra("run", "--dry-run")
    assert (0, "dry run: nothing is written and nothing is sent") == (said.exit_code, said.stderr.splitlines()[0])
    assert "nothing to do: 2 models and 1 sync have no changes" in said.stderr
    assert before == kept(shop)


def test_the_history_shows_it_and_nobody_else_goes_by_it(shop: ShopProject, ondatra: CommandLine) -> None:
    """The last run of a sync is one that did something."""
    ondatra.run_project(shop, is_dry=True)
    (run,) = ondatra("history", "--json").json_lines
    assert ("dry", 2) == (run["result"], run["dry"]["creates"])  # type: ignore[index, call-overload]
    assert "dry: create 2 rows" in ondatra("history").stdout
    (status,) = [line for line in ondatra("status", "--json").json_lines if "sync" in line]
    assert status["last_run"] is None


def test_a_paused_sync_says_so(shop: ShopProject, ondatra: CommandLine) -> None:
    """A run would send nothing of it; what would go is told all the same."""
    ondatra("pause", "sync.crm")
    said = ondatra.run_project(shop, is_dry=True)
    assert "would create 2 rows; sync.crm is paused" in said.stderr


def test_what_the_guard_would_hold_back_is_an_error(shop: ShopProject, api: DemoApi, ondatra: CommandLine) -> None:
    """Exit 1, as the run would, and the leave to delete is used up by no dry run."""
    write_shop_files(shop.root, url=api.url, files={"models/sync/crm.sql": GUARDED})
    run_shop(shop)
    write_contacts(shop.root, a1="ada@example.com")
    said = ondatra.run_project(shop, is_dry=True, is_full=True)
    assert 1 == said.exit_code
    assert "1 of 2 keys would be removed: over @max_deletes" in said.stderr
    assert 0 == ondatra.run_project(shop, is_dry=True, is_full=True, allow_deletes=["sync.crm"]).exit_code
    assert 1 == ondatra.run_project(shop, is_dry=True, is_full=True).exit_code
    assert {"a1", "b2"} == set(api.contacts())


def test_a_failed_constraint_is_exit_code_one(shop: ShopProject, api: DemoApi, ondatra: CommandLine) -> None:
    """What is below it isn't told of: a run wouldn't come to it."""
    write_shop_files(shop.root, url=api.url, files={"models/sync/crm.sql": CHECKED})
    write_contacts(shop.root, a1="no address")
    said = ondatra.run_project(shop, is_dry=True)
    assert (1, "") == (said.exit_code, said.stdout)
    assert {} == kept(shop)
