"""`ondatra resync`: the way on that other messages name."""

import shutil

import pytest
from support.shop import Shop, write_contacts
from support.terminal import Terminal

from ondatra_dagster.cli.resync import resync
from ondatra_dagster.sync.resync import Way
from ondatra_dagster.testing.demo_api.server import DemoApi


@pytest.fixture
def delivered(shop: Shop, ondatra: Terminal, api: DemoApi) -> int:
    """How many calls the first delivery made."""
    ondatra.run(shop)
    return len(api.calls)


def again(shop: Shop, *, assume_delivered: bool) -> int:
    workspace = shop.workspace
    return resync(
        workspace,
        workspace.sync("sync.crm"),
        Way(assume_delivered=assume_delivered),
        as_json=False,
        opened=shop.opened,
    )


def test_every_row_goes_again_as_an_update(shop: Shop, api: DemoApi, delivered: int) -> None:
    """They were acknowledged, so an insert would be a conflict."""
    assert 0 == again(shop, assume_delivered=False)
    assert ["PATCH", "PATCH"] == [call.method for call in api.calls[delivered:]]


def test_a_resync_looks_at_no_model(shop: Shop, api: DemoApi, delivered: int) -> None:
    """The table of one that its model reads may be gone."""
    shutil.rmtree(shop.root / ".ondatra" / "warehouse" / "raw")
    assert 0 == again(shop, assume_delivered=False)
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
    assert 0 == again(shop, assume_delivered=True)
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
    assert "sync.crm would lose 0 keys to go and 0 dead letters" in said.err
    assert 0 == ondatra("forget", "sync.crm", "--yes").code
    write_contacts(shop.root, a1="ada@example.com", b2="new@example.com")
    said = ondatra.run(shop)
    assert 1 == said.code
    assert "run `ondatra resync sync.crm`" in said.err
    assert delivered == len(api.calls)
    assert 0 == again(shop, assume_delivered=False)
    assert {"PATCH"} == {call.method for call in api.calls[delivered:]}
