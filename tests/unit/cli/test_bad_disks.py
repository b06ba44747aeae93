"""A disk that is full or read-only: each command ends with a sentence that names it, and nothing is lost."""

import re
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import NamedTuple

import pytest
from support.bad_disks import SENTENCE, a_disk, full, read_only
from support.shop import Shop, write_contacts
from support.terminal import Terminal

from ondatra_dagster.testing.demo_api.server import DemoApi

Spoil = Callable[..., AbstractContextManager[None]]
BOTH = pytest.mark.parametrize("spoil", [full, read_only])


class Disk(NamedTuple):
    shop: Shop
    is_mounted: bool

    def be(self, spoil: Spoil) -> AbstractContextManager[None]:
        return spoil(self.shop.root / ".ondatra", is_mounted=self.is_mounted)


@pytest.fixture
def disk(shop: Shop, ondatra: Terminal, monkeypatch: pytest.MonkeyPatch) -> Iterator[Disk]:
    """The shop with all that it keeps, Dagster's history too, on one disk; it has run once and has news."""
    monkeypatch.delenv("DAGSTER_HOME")
    with a_disk(shop.root / ".ondatra") as is_mounted:
        assert 0 == ondatra.run(shop).code
        write_contacts(shop.root, a1="ann@example.com", b2="bob@example.com")
        yield Disk(shop, is_mounted)


@BOTH
def test_a_run_ends_with_a_sentence_and_goes_on_later(
    disk: Disk, ondatra: Terminal, api: DemoApi, spoil: Spoil
) -> None:
    """Dagster's own database is the first that can't be written."""
    with disk.be(spoil):
        said = ondatra("run", shop=disk.shop)
    assert 1 == said.code
    assert "Traceback" not in said.out + said.err
    assert re.search(SENTENCE, said.err)
    assert 0 == ondatra.run(disk.shop).code
    assert {"ann@example.com", "bob@example.com"} == {row["email"] for row in api.contacts().values()}


@BOTH
def test_maintain_has_each_duty_end_with_a_sentence(disk: Disk, ondatra: Terminal, spoil: Spoil) -> None:
    """What can't be written is told of by the duty that would write it, and the others have their turn."""
    with disk.be(spoil):
        said = ondatra("maintain", "--json", shop=disk.shop)
    assert (1, 9) == (said.code, len(said.objects))
    assert "Traceback" not in said.err
    assert re.search(SENTENCE, said.err)
    assert {"logs", "tracking_retention"} <= {str(line["duty"]) for line in said.objects if line["ok"]}


@BOTH
def test_commands_that_read_go_on(disk: Disk, ondatra: Terminal, spoil: Spoil) -> None:
    """Who looks for what is wrong needs them just then."""
    words = [["status"], ["history"], ["dead", "sync.crm"], ["records", "sync.crm"]]
    with disk.be(spoil):
        assert [0, 0, 0, 0] == [ondatra(*each, shop=disk.shop).code for each in words]


def test_a_command_that_writes_ends_with_a_sentence(disk: Disk, ondatra: Terminal) -> None:
    with disk.be(read_only):
        ends = [ondatra(word, "sync.crm") for word in ("replay", "resync")]
    assert [1, 1] == [said.code for said in ends]
    assert all(re.search(SENTENCE, said.err) for said in ends)
    assert [1, 1] == [len(said.err.splitlines()) for said in ends]
