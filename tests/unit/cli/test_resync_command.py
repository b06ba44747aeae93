"""The `ondatra resync` command, which other messages recommend."""

import shutil

import pytest
from support.processes.cli_terminal import CommandLine
from support.projects.shop_project import ShopProject, write_contacts
from support.projects.shop_with_history import run_shop

from ondatra_dagster.testing.demo_api.demo_server import DemoApi


@pytest.fixture
def first_call_count(shop: ShopProject, ondatra: CommandLine, api: DemoApi) -> int:
    """Return the number of calls of the first delivery."""
    run_shop(shop)
    return len(api.calls)


def test_every_row_is_sent_again_as_an_update(
    shop: ShopProject, ondatra: CommandLine, api: DemoApi, first_call_count: int
) -> None:
    """The rows were acknowledged, so an insert would be a conflict."""
    result = ondatra("resync", "sync.crm", shop=shop)
    assert (0, "2 keys of sync.crm are sent again") == (result.exit_code, result.stderr.partition("\n")[0])
    assert ["PATCH", "PATCH"] == [call.method for call in api.calls[first_call_count:]]


def test_a_program_gets_one_object_per_line(shop: ShopProject, ondatra: CommandLine, first_call_count: int) -> None:
    """The output is the same as that of a run."""
    sync, end = ondatra("resync", "sync.crm", "--json", shop=shop).json_lines
    assert {"insert": 0, "update": 2, "delete": 0} == sync["counts"]["succeeded"]  # type: ignore[index]
    assert end["ok"]


@pytest.mark.parametrize(("flags", "held"), [([], {"a1", "b2"}), (["--deletes"], {"a1"})])
def test_missing_rows_are_deleted_only_with_the_deletes_flag(
    shop: ShopProject, ondatra: CommandLine, first_call_count: int, api: DemoApi, flags: list[str], held: set[str]
) -> None:
    """A rebuilt table doesn't show its earlier rows, but the records show the rows that were sent."""
    write_contacts(shop.root, a1="ada@example.com")
    for model in ("raw.contacts", "sync.crm"):
        shop.tables.drop_table(model)
    assert 1 == ondatra.run_project(shop).exit_code  # it requires a resync
    assert 0 == ondatra("resync", "sync.crm", *flags, shop=shop).exit_code
    assert held == set(api.contacts())


def test_a_renamed_model_keeps_its_sync(
    shop: ShopProject, ondatra: CommandLine, api: DemoApi, first_call_count: int
) -> None:
    """The model has another table, so the run requires a resync. Its @sync_id shows the rows that the API has."""
    old = shop.root / "models" / "sync" / "crm.sql"
    old.with_name("people.sql").write_text(f"-- @sync_id: sync.crm\n{old.read_text()}")
    old.unlink()
    result = ondatra.run_project(shop)
    assert (1, True) == (result.exit_code, "sync.people was created again since sync.crm last" in result.stderr)
    assert 0 == ondatra("resync", "sync.crm", shop=shop).exit_code
    assert ["PATCH", "PATCH"] == [call.method for call in api.calls[first_call_count:]]
    assert 3 == len(ondatra("history", "sync.crm", "--json").json_lines)


def test_a_resync_works_when_a_table_of_its_model_is_missing(
    shop: ShopProject, ondatra: CommandLine, api: DemoApi, first_call_count: int
) -> None:
    """It doesn't run the model."""
    shutil.rmtree(shop.root / ".ondatra" / "warehouse" / "raw")
    assert 0 == ondatra("resync", "sync.crm", shop=shop).exit_code
    assert first_call_count + 2 == len(api.calls)


def test_a_run_with_lost_state_is_refused_and_a_resync_helps(
    shop: ShopProject, ondatra: CommandLine, api: DemoApi, first_call_count: int
) -> None:
    """The refusal names the command, and the command works."""
    shutil.rmtree(shop.root / ".ondatra" / "queue")
    shutil.rmtree(shop.root / ".ondatra" / "tracking")
    write_contacts(shop.root, a1="ada@example.com", b2="new@example.com")
    result = ondatra.run_project(shop)
    assert 1 == result.exit_code
    assert "run `ondatra resync sync.crm`" in result.stderr
    assert first_call_count == len(api.calls)
    result = ondatra("resync", "sync.crm", "--assume-delivered", shop=shop)
    assert (0, "sync.crm regards its table as delivered; only later changes are sent\n") == (
        result.exit_code,
        result.stderr,
    )
    assert first_call_count == len(api.calls)
    assert 0 == ondatra.run_project(shop).exit_code


def test_contradictory_flags_are_a_wrong_invocation(shop: ShopProject, ondatra: CommandLine) -> None:
    """Sending nothing and sending deletes exclude each other."""
    result = ondatra("resync", "sync.crm", "--deletes", "--assume-delivered")
    assert 2 == result.exit_code
    assert "--assume-delivered sends nothing" in result.stderr


def test_forget_needs_a_confirmation_and_then_the_next_run_needs_a_resync(
    shop: ShopProject, ondatra: CommandLine, api: DemoApi, first_call_count: int
) -> None:
    """The lost state can't be restored."""
    result = ondatra("forget", "sync.crm")
    assert 2 == result.exit_code
    assert "sync.crm would lose 0 pending keys and 0 dead letters" in result.stderr
    assert 0 == ondatra("forget", "sync.crm", "--yes").exit_code
    write_contacts(shop.root, a1="ada@example.com", b2="new@example.com")
    result = ondatra.run_project(shop)
    assert 1 == result.exit_code
    assert "run `ondatra resync sync.crm`" in result.stderr
    assert first_call_count == len(api.calls)
    assert 0 == ondatra("resync", "sync.crm", shop=shop).exit_code
    assert {"PATCH"} == {call.method for call in api.calls[first_call_count:]}
