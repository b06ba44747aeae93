"""A full or read-only disk: each command ends with a sentence that names it, and nothing is lost."""

import re
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import NamedTuple

import pytest
from support.files.unwritable_disks import UNWRITABLE_MESSAGE, fill_disk, make_read_only, mount_small_disk
from support.processes.cli_terminal import CommandLine
from support.projects.shop_project import ShopProject, write_contacts

from ondatra_dagster.testing.demo_api.demo_server import DemoApi

Spoil = Callable[..., AbstractContextManager[None]]
BOTH = pytest.mark.parametrize("spoil", [fill_disk, make_read_only])


class ShopDisk(NamedTuple):
    shop: ShopProject
    is_mounted: bool

    def make_unwritable(self, spoil: Spoil) -> AbstractContextManager[None]:
        return spoil(self.shop.root / ".ondatra", is_mounted=self.is_mounted)


@pytest.fixture
def disk(shop: ShopProject, ondatra: CommandLine, monkeypatch: pytest.MonkeyPatch) -> Iterator[ShopDisk]:
    """Yield the shop with its whole state and Dagster's history on one disk. It has run once and has new rows."""
    monkeypatch.delenv("DAGSTER_HOME")
    with mount_small_disk(shop.root / ".ondatra") as is_mounted:
        assert 0 == ondatra.run_project(shop).exit_code
        write_contacts(shop.root, a1="ann@example.com", b2="bob@example.com")
        yield ShopDisk(shop, is_mounted)


@BOTH
def test_a_run_ends_with_a_sentence_and_continues_later(
    disk: ShopDisk, ondatra: CommandLine, api: DemoApi, spoil: Spoil
) -> None:
    """Dagster's own database is the first file that can't be written."""
    with disk.make_unwritable(spoil):
        result = ondatra("run", shop=disk.shop)
    assert 1 == result.exit_code
    assert "Traceback" not in result.stdout + result.stderr
    assert re.search(UNWRITABLE_MESSAGE, result.stderr)
    assert 0 == ondatra.run_project(disk.shop).exit_code
    assert {"ann@example.com", "bob@example.com"} == {row["email"] for row in api.contacts().values()}


@BOTH
def test_each_duty_of_maintain_ends_with_a_sentence(disk: ShopDisk, ondatra: CommandLine, spoil: Spoil) -> None:
    """A duty that can't write reports the disk, and the other duties still run."""
    with disk.make_unwritable(spoil):
        result = ondatra("maintain", "--json", shop=disk.shop)
    assert (1, 9) == (result.exit_code, len(result.json_lines))
    assert "Traceback" not in result.stderr
    assert re.search(UNWRITABLE_MESSAGE, result.stderr)
    assert {"logs", "tracking_retention"} <= {str(line["task"]) for line in result.json_lines if line["ok"]}


@BOTH
def test_commands_that_only_read_still_work(disk: ShopDisk, ondatra: CommandLine, spoil: Spoil) -> None:
    """The user needs them to find the problem."""
    words = [["status"], ["history"], ["dead", "sync.crm"], ["records", "sync.crm"]]
    with disk.make_unwritable(spoil):
        assert [0, 0, 0, 0] == [ondatra(*command, shop=disk.shop).exit_code for command in words]


def test_a_command_that_writes_ends_with_a_sentence(disk: ShopDisk, ondatra: CommandLine) -> None:
    with disk.make_unwritable(make_read_only):
        ends = [ondatra(word, "sync.crm") for word in ("replay", "resync")]
    assert [1, 1] == [result.exit_code for result in ends]
    assert all(re.search(UNWRITABLE_MESSAGE, result.stderr) for result in ends)
    assert [1, 1] == [len(result.stderr.splitlines()) for result in ends]
