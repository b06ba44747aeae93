"""The commands that stop or allow sending: pause, resume and `run --allow-deletes`."""

from pathlib import Path

import pytest
from support.processes.cli_terminal import CommandLine, CommandResult
from support.projects.shop_project import ShopProject, write_contacts

from ondatra_dagster.testing.demo_api.demo_server import DemoApi


def test_a_paused_sync_sends_nothing_until_it_is_resumed(shop: ShopProject, api: DemoApi, ondatra: CommandLine) -> None:
    """New rows are added to the queue, and `run` says that they wait, and why."""
    assert "sync.crm is paused, with 0 rows pending" in ondatra("pause", "sync.crm").stderr
    result = ondatra.run_project(shop)
    assert (0, ()) == (result.exit_code, api.calls)
    assert "2 inserts pending" in result.stderr
    idle = ondatra("run")
    assert 0 == idle.exit_code
    assert "sync.crm is paused; `ondatra resume sync.crm` continues it: 2 rows pending" in idle.stderr
    *_, line = ondatra("status", "--json").json_lines
    assert ("it is paused: 2 pending in the queue", True) == (line["plan"], line["paused"])
    assert "2 rows pending: ondatra run" in ondatra("resume", "sync.crm").stderr
    assert 0 == ondatra("run").exit_code  # nothing has to be read, so Spark doesn't start
    assert {"a1", "b2"} == set(api.contacts())


def test_a_pause_remains_when_the_queue_is_deleted(shop: ShopProject, api: DemoApi, ondatra: CommandLine) -> None:
    """A user who deletes the queue file hasn't allowed sending."""
    ondatra("pause", "sync.crm")
    ondatra.run_project(shop)
    for path in (shop.root / ".ondatra" / "queue").glob("*.sqlite*"):
        path.unlink()
    ondatra.run_project(shop)
    assert () == api.calls


def test_a_replay_of_a_paused_sync_sends_nothing(shop: ShopProject, api: DemoApi, ondatra: CommandLine) -> None:
    """A pause stops every way of sending."""
    write_contacts(shop.root, a1="ada@example.com", b2="nonsense")
    ondatra.run_project(shop)
    calls = len(api.calls)
    ondatra("pause", "sync.crm")
    assert "1 dead letter" in ondatra("replay", "sync.crm").stderr
    assert calls == len(api.calls)


def test_resuming_a_sync_that_is_not_paused_is_no_error(shop: ShopProject, ondatra: CommandLine) -> None:
    """The sync is already in the wanted state."""
    result = ondatra("resume", "sync.crm")
    assert (0, "sync.crm isn't paused\n") == (result.exit_code, result.stderr)


def test_deletes_over_the_limit_fail_the_run_until_they_are_allowed(
    shop: ShopProject, api: DemoApi, ondatra: CommandLine
) -> None:
    """The flag names the sync, and the message names the flag."""
    model = shop.root / "models" / "sync" / "crm.sql"
    model.write_text(f"-- @max_deletes: 40%\n{model.read_text()}")
    ondatra.run_project(shop)
    write_contacts(shop.root, a1="ada@example.com")
    result = ondatra.run_project(shop, is_full=True)
    assert 1 == result.exit_code
    assert "1 of 2 keys would be removed: over @max_deletes" in result.stderr
    assert "ondatra run --allow-deletes sync.crm" in result.stderr
    assert {"a1", "b2"} == set(api.contacts())
    assert 1 == ondatra("run").exit_code
    assert 0 == ondatra("run", "--allow-deletes", "sync.crm").exit_code
    assert {"a1"} == set(api.contacts())


def test_a_permission_that_has_no_effect_is_reported(shop: ShopProject, ondatra: CommandLine) -> None:
    """Otherwise the user would wait for deletes that aren't sent."""
    ondatra.run_project(shop)
    result = ondatra("run", "raw.contacts", "--allow-deletes", "sync.crm")
    assert (0, "--allow-deletes sync.crm allows nothing: it isn't selected") == (result.exit_code, first_line(result))
    ondatra("pause", "sync.crm")
    result = ondatra("run", "--allow-deletes", "sync.crm")
    assert "--allow-deletes sync.crm allows nothing: sync.crm is paused; `ondatra resume" in first_line(result)


def first_line(captured_output: CommandResult) -> str:
    return captured_output.stderr.partition("\n")[0]


def test_a_pause_in_a_new_project_creates_a_private_state_folder(shop: ShopProject, ondatra: CommandLine) -> None:
    """It is the first command to write there, and later the folder contains customers' rows."""
    ondatra("pause", "sync.crm")
    assert 0o700 == mode(shop.root / ".ondatra") == mode(shop.root / ".ondatra" / "paused")


def test_a_run_makes_a_readable_state_folder_private(shop: ShopProject, ondatra: CommandLine) -> None:
    """Dagster creates the folder for its own history with the usual permissions."""
    state = shop.root / ".ondatra"
    state.mkdir(mode=0o755)
    ondatra.run_project(shop)
    assert 0o700 == mode(state)


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o777


@pytest.mark.parametrize("words", [["pause", "crmm"], ["resume", "crmm"], ["run", "--allow-deletes", "crmm"]])
def test_an_unknown_sync_is_a_wrong_invocation(shop: ShopProject, ondatra: CommandLine, words: list[str]) -> None:
    """Otherwise the user would believe that the deletes are allowed."""
    assert 2 == ondatra(*words).exit_code
