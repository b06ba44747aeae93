"""`ondatra resync`: the way on that other messages name."""

import shutil

import pytest
from support.processes.cli_terminal import CommandLine
from support.projects.shop_project import ShopProject, write_contacts
from support.projects.shop_with_history import run_shop

from ondatra_dagster.testing.demo_api.demo_server import DemoApi


@pytest.fixture
def first_call_count(shop: ShopProject, ondatra: CommandLine, api: DemoApi) -> int:
    """How many calls the first delivery made."""
    run_shop(shop)
    return len(api.calls)


def test_every_row_goes_again_as_an_update(
    shop: ShopProject, ondatra: CommandLine, api: DemoApi, first_call_count: int
) -> None:
    """They were acknowledged, so an insert would be a conflict."""
    said = ondatra("resync", "sync.crm", shop=shop)
    assert (0, "2 keys of sync.crm are sent again") == (said.exit_code, said.stderr.partition("\n")[0])
    assert ["PATCH", "PATCH"] == [call.method for call in api.calls[first_call_count:]]


def test_programs_get_an_object_a_line(shop: ShopProject, ondatra: CommandLine, first_call_count: int) -> None:
    """As from a run."""
    sync, end = ondatra("resync", "sync.crm", "--json", shop=shop).json_lines
    assert {"insert": 0, "update": 2, "delete": 0} == sync["counts"]["succeeded"]  # type: ignore[index]
    assert end["ok"]


@pytest.mark.parametrize(("flags", "held"), [([], {"a1", "b2"}), (["--deletes"], {"a1"})])
def test_what_the_table_no_longer_has_goes_where_that_is_asked_for(
    shop: ShopProject, ondatra: CommandLine, first_call_count: int, api: DemoApi, flags: list[str], held: set[str]
) -> None:
    """A table that was made anew says nothing of the rows before; the records know what was sent."""
    write_contacts(shop.root, a1="ada@example.com")
    for model in ("raw.contacts", "sync.crm"):
        shop.tables.drop_table(model)
    assert 1 == ondatra.run_project(shop).exit_code  # it asks for a resync
    assert 0 == ondatra("resync", "sync.crm", *flags, shop=shop).exit_code
    assert held == set(api.contacts())


def test_a_renamed_model_keeps_its_sync(
    shop: ShopProject, ondatra: CommandLine, api: DemoApi, first_call_count: int
) -> None:
    """Its table is another, so it asks; by its @sync_id it finds what the API was sent."""
    old = shop.root / "models" / "sync" / "crm.sql"
    old.with_name("people.sql").write_text(f"-- @sync_id: sync.crm\n{old.read_text()}")
    old.unlink()
    said = ondatra.run_project(shop)
    assert (1, True) == (said.exit_code, "sync.people was created again since sync.crm last" in said.stderr)
    assert 0 == ondatra("resync", "sync.crm", shop=shop).exit_code
    assert ["PATCH", "PATCH"] == [call.method for call in api.calls[first_call_count:]]
    assert 3 == len(ondatra("history", "sync.crm", "--json").json_lines)


def test_a_resync_looks_at_no_model(
    shop: ShopProject, ondatra: CommandLine, api: DemoApi, first_call_count: int
) -> None:
    """The table of one that its model reads may be gone."""
    shutil.rmtree(shop.root / ".ondatra" / "warehouse" / "raw")
    assert 0 == ondatra("resync", "sync.crm", shop=shop).exit_code
    assert first_call_count + 2 == len(api.calls)


def test_lost_state_is_refused_and_resync_goes_on(
    shop: ShopProject, ondatra: CommandLine, api: DemoApi, first_call_count: int
) -> None:
    """The refusal tells of the command, and the command helps."""
    shutil.rmtree(shop.root / ".ondatra" / "queue")
    shutil.rmtree(shop.root / ".ondatra" / "tracking")
    write_contacts(shop.root, a1="ada@example.com", b2="new@example.com")
    said = ondatra.run_project(shop)
    assert 1 == said.exit_code
    assert "run `ondatra resync sync.crm`" in said.stderr
    assert first_call_count == len(api.calls)
    said = ondatra("resync", "sync.crm", "--assume-delivered", shop=shop)
    assert (0, "sync.crm regards its table as delivered; only later changes are sent\n") == (
        said.exit_code,
        said.stderr,
    )
    assert first_call_count == len(api.calls)
    assert 0 == ondatra.run_project(shop).exit_code


def test_contradicting_ways_are_a_wrong_invocation(shop: ShopProject, ondatra: CommandLine) -> None:
    """To send nothing and to send deletes can't both be meant."""
    said = ondatra("resync", "sync.crm", "--deletes", "--assume-delivered")
    assert 2 == said.exit_code
    assert "--assume-delivered sends nothing" in said.stderr


def test_forget_wants_to_be_asked_twice_and_the_next_run_asks_for_a_resync(
    shop: ShopProject, ondatra: CommandLine, api: DemoApi, first_call_count: int
) -> None:
    """What is lost can't be brought back."""
    said = ondatra("forget", "sync.crm")
    assert 2 == said.exit_code
    assert "sync.crm would lose 0 pending keys and 0 dead letters" in said.stderr
    assert 0 == ondatra("forget", "sync.crm", "--yes").exit_code
    write_contacts(shop.root, a1="ada@example.com", b2="new@example.com")
    said = ondatra.run_project(shop)
    assert 1 == said.exit_code
    assert "run `ondatra resync sync.crm`" in said.stderr
    assert first_call_count == len(api.calls)
    assert 0 == ondatra("resync", "sync.crm", shop=shop).exit_code
    assert {"PATCH"} == {call.method for call in api.calls[first_call_count:]}
