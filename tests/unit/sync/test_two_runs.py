"""Another run of the same sync that comes to its end between two looks of this one."""

import dataclasses
from collections.abc import Callable
from pathlib import Path

import pytest
from support.kind_desk import KindDesk

from ondatra_dagster.sync.intake import take_in_changes
from ondatra_dagster.sync.ports import Ports, SourceState
from ondatra_dagster.sync.resync import Way, resync
from ondatra_dagster.sync.run import run_sync
from ondatra_dagster.sync.start import Occasion


def a_run(desk: KindDesk, ports: Ports) -> None:
    run_sync(desk.sync, ports, Occasion(trigger="test"))


def a_resync(desk: KindDesk, ports: Ports) -> None:
    resync(desk.sync, ports, Way())


def an_intake(desk: KindDesk, ports: Ports) -> None:
    take_in_changes(desk.sync, ports)


@pytest.mark.parametrize("goes_on", [a_run, a_resync, an_intake])
def test_a_table_that_another_run_has_seen_meanwhile_was_not_put_back(
    tmp_path: Path, goes_on: Callable[[KindDesk, Ports], None]
) -> None:
    """It had moved on after one's look at the table, and before one's queue was one's own."""
    desk = KindDesk(tmp_path, "merge")
    desk.deliver(a=[1])
    ports, others = desk.ports(), [[2]]

    def source() -> SourceState | None:
        seen = desk.table.source()
        while others:
            desk.deliver(a=others.pop())
        return seen

    goes_on(desk, dataclasses.replace(ports, source=source))
    with desk.sync.open_queue() as queue:
        assert ([], 2) == (others, queue.watermark)
