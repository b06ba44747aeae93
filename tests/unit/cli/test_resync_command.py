"""`ondatra resync`: the way on that other messages name."""

import shutil

import pytest
from support.shop import Shop, write_contacts
from support.terminal import Terminal

from ondatra_dagster.testing.demo_api.server import DemoApi


@pytest.fixture
def delivered(shop: Shop, ondatra: Terminal, api: DemoApi) -> int:
    """How many calls the first delivery made."""
    ondatra.run(shop)
    return len(api.calls)


def test_every_row_goes_again_as_an_update(
    shop: Shop, ondatra: Terminal, api: DemoApi, delivered: int
) -> None:
    """They were acknowledged, so an insert would be a conflict."""
    said = ondatra("resync", "sync.crm", shop=shop)
    assert (0, "2 keys of sync.crm go out again") == (said.code, said.err.partition("\n")[0])
    assert ["PATCH", "PATCH"] == [call.method for call in api.calls[delivered:]]


def test_programs_get_an_object_a_line(shop: Shop, ondatra: Terminal, delivered: int) -> None:
    """As from a run."""
    sync, end = ondatra("resync", "sync.crm", "--json", shop=shop).objects
    assert {"insert": 0, "update": 2, "delete": 0} == sync["counts"]["succeeded"]  # type: ignore[index]
    assert end["ok"]


@pytest.mark.parametrize(("flags", "held"), [([], {"a1", "b2"}), (["--deletes"], {"a1"})])
def test_what_the_table_no_longer_has_goes_where_that_is_asked_for(
    shop: Shop, ondatra: Terminal, delivered: int, api: DemoApi, flags: list[str], held: set[str]
) -> None:
    """A table that was made anew says nothing of the rows before; the records know what was sent."""
    write_contacts(shop.root, a1="ada@example.com")
    for model in ("raw.contacts", "sync.crm"):
        shop.tables.lose(model)
    assert 1 == ondatra.run(shop).code  # it asks for a resync
    assert 0 == ondatra("resync", "sync.crm", *flags, shop=shop).code
    assert held == set(api.contacts())


def test_a_renamed_model_keeps_its_sync(shop: Shop, ondatra: Terminal, api: DemoApi, delivered: int) -> None:
    """Its table is another, so it asks; by its @sync_id it finds what the API was sent."""
    old = shop.root / "models" / "sync" / "crm.sql"
    old.with_name("people.sql").write_text(f"-- @sync_id: sync.crm\n{old.read_text()}")
    old.unlink()
    said = ondatra.run(shop)
    assert (1, True) == (said.code, "the table of sync.people was made anew since sync.crm last" in said.err)
    assert 0 == ondatra("resync", "sync.crm", shop=shop).code
    assert ["PATCH", "PATCH"] == [call.method for call in api.calls[delivered:]]
    assert 3 == len(ondatra("history", "sync.crm", "--json").objects)


def test_a_resync_looks_at_no_model(shop: Shop, ondatra: Terminal, api: DemoApi, delivered: int) -> None:
    """The table of one that its model reads may be gone."""
    shutil.rmtree(shop.root / ".ondatra" / "warehouse" / "raw")
    assert 0 == ondatra("resync", "sync.crm", shop=shop).code
    assert delivered + 2 == len(api.calls)


def test_lost_state_is_refused_and_resync_goes_on(
    shop: Shop, ondatra: Terminal, api: DemoApi, delivered: int
) -> None:
    """The refusal tells of the command, and the command helps."""
    shutil.rmtree(shop.root / ".ondatra" / "queue")
    shutil.rmtree(shop.root / ".ondatra" / "tracking")
    write_contacts(shop.root, a1="ada@example.com", b2="new@example.com")
    said = ondatra.run(shop)
    assert 1 == said.code
    assert "run `ondatra resync sync.crm`" in said.err
    assert delivered == len(api.calls)
    said = ondatra("resync", "sync.crm", "--assume-delivered", shop=shop)
    assert (0, "sync.crm takes its table as delivered; only what changes from now on is sent\n") == (
        said.code,
        said.err,
    )
    assert delivered == len(api.calls)
    assert 0 == ondatra.run(shop).code


def test_contradicting_ways_are_a_wrong_invocation(shop: Shop, ondatra: Terminal) -> None:
    """To send nothing and to send deletes can't both be meant."""
    said = ondatra("resync", "sync.crm", "--deletes", "--assume-delivered")
    assert 2 == said.code
    assert "--assume-delivered sends nothing" in said.err


def test_forget_wants_to_be_asked_twice_and_the_next_run_asks_for_a_resync(
    shop: Shop, ondatra: Terminal, api: DemoApi, delivered: int
) -> None:
    """What is lost can't be brought back."""
    said = ondatra("forget", "sync.crm")
    assert 2 == said.code
    assert "sync.crm would lose 0 pending keys and 0 dead letters" in said.err
    assert 0 == ondatra("forget", "sync.crm", "--yes").code
    write_contacts(shop.root, a1="ada@example.com", b2="new@example.com")
    said = ondatra.run(shop)
    assert 1 == said.code
    assert "run `ondatra resync sync.crm`" in said.err
    assert delivered == len(api.calls)
    assert 0 == ondatra("resync", "sync.crm", shop=shop).code
    assert {"PATCH"} == {call.method for call in api.calls[delivered:]}
