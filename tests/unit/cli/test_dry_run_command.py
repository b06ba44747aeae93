"""The `ondatra run --dry-run` command: the rows that a run would write and send, for users and programs."""

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
    """Return the content of all files that a dry run must not change."""
    state = shop.root / ".ondatra"
    folders = ("warehouse", "queue", "tracking")
    return {name: content for folder in folders for name, content in read_folder(state / folder).items()}


def test_a_user_gets_two_tables(shop: ShopProject, api: DemoApi, ondatra: CommandLine) -> None:
    """One has the counts. The other has sample rows, with their values before and after."""
    run_shop(shop)
    before, calls = kept(shop), api.calls
    write_contacts(shop.root, a1="ada@example.com", b2="bob@example.org", c3="cyn@example.com")
    result = ondatra.run_project(shop, is_dry=True)
    assert 0 == result.exit_code
    assert "dry run: nothing is written and nothing is sent\n" in result.stderr
    assert "→ sync.crm      would create 1 row, update 1 row\n" in result.stderr
    numbers, values, head, *rows = result.stdout.splitlines()
    assert "sync.crm" == values.split()[0]
    assert ["3", "2", "0", "1", "1", "0", "2", "3"] == values.split()[1:]
    assert "source rows  changed  invalid" in numbers
    assert ["key", "change", "what"] == head.split()
    assert ["b2   update  email: bob@example.com → bob@example.org"] == rows[:1]
    assert (before, calls) == (kept(shop), api.calls)


def test_a_long_value_does_not_hide_the_new_value(shop: ShopProject, ondatra: CommandLine) -> None:
    write_contacts(shop.root, b2=f"{'long' * 100}@example.com")
    run_shop(shop)
    write_contacts(shop.root, b2="b@example.org")
    row = ondatra.run_project(shop, is_dry=True).stdout.splitlines()[3]
    assert f"b2   update  email: {'long' * 9}lon… → b@example.org" == row


def test_a_program_gets_one_object_per_line(shop: ShopProject, ondatra: CommandLine) -> None:
    """The names are the same as in other commands."""
    *models, sync, end = ondatra.run_project(shop, is_dry=True, as_json=True).json_lines
    assert ["raw.contacts", "sync.crm"] == [model["model"] for model in models]
    assert (True, 2, 0, 2) == tuple(
        sync[name] for name in ("dry_run", "creates", "destination_before", "destination_after")
    )
    assert {"deletes_guard", "invalid_records"} == set(sync["checks"])  # type: ignore[call-overload]
    assert {"id": [None, "a1"], "email": [None, "ada@example.com"]} == sync["samples"][0]["columns"]  # type: ignore[index]
    assert end["ok"]


def test_a_dry_run_without_work_leaves_no_files(shop: ShopProject, ondatra: CommandLine) -> None:
    """SQLite leaves no files next to the databases that were read."""
    run_shop(shop)
    before = kept(shop)
    result = ondatra("run", "--dry-run")
    assert (0, "dry run: nothing is written and nothing is sent") == (result.exit_code, result.stderr.splitlines()[0])
    assert "nothing to do: 2 models and 1 sync have no changes" in result.stderr
    assert before == kept(shop)


def test_the_history_shows_a_dry_run_but_the_status_ignores_it(shop: ShopProject, ondatra: CommandLine) -> None:
    """The last run of a sync is a run that did something."""
    ondatra.run_project(shop, is_dry=True)
    (run,) = ondatra("history", "--json").json_lines
    assert ("dry", 2) == (run["result"], run["dry"]["creates"])  # type: ignore[index, call-overload]
    assert "dry: create 2 rows" in ondatra("history").stdout
    (status,) = [line for line in ondatra("status", "--json").json_lines if "sync" in line]
    assert status["last_run"] is None


def test_the_dry_run_of_a_paused_sync_says_that_it_is_paused(shop: ShopProject, ondatra: CommandLine) -> None:
    """A run would send nothing. The dry run still shows the rows that wait."""
    ondatra("pause", "sync.crm")
    result = ondatra.run_project(shop, is_dry=True)
    assert "would create 2 rows; sync.crm is paused" in result.stderr


def test_deletes_over_the_limit_are_an_error_in_a_dry_run(
    shop: ShopProject, api: DemoApi, ondatra: CommandLine
) -> None:
    """The exit code is 1, as in a run. A dry run doesn't use up the permission to delete."""
    write_shop_files(shop.root, url=api.url, files={"models/sync/crm.sql": GUARDED})
    run_shop(shop)
    write_contacts(shop.root, a1="ada@example.com")
    result = ondatra.run_project(shop, is_dry=True, is_full=True)
    assert 1 == result.exit_code
    assert "1 of 2 keys would be removed: over @max_deletes" in result.stderr
    assert 0 == ondatra.run_project(shop, is_dry=True, is_full=True, allow_deletes=["sync.crm"]).exit_code
    assert 1 == ondatra.run_project(shop, is_dry=True, is_full=True).exit_code
    assert {"a1", "b2"} == set(api.contacts())


def test_a_failed_constraint_gives_exit_code_one(shop: ShopProject, api: DemoApi, ondatra: CommandLine) -> None:
    """Models below it aren't reported, because a run wouldn't reach them."""
    write_shop_files(shop.root, url=api.url, files={"models/sync/crm.sql": CHECKED})
    write_contacts(shop.root, a1="no address")
    result = ondatra.run_project(shop, is_dry=True)
    assert (1, "") == (result.exit_code, result.stdout)
    assert {} == kept(shop)
