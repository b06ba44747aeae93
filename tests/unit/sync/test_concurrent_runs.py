"""A second run of the same sync that ends between two steps of this run."""

import dataclasses
from collections.abc import Callable
from pathlib import Path

import pytest
from support.syncs.kind_sync_harness import KindSyncHarness

from ondatra_dagster.sync.enqueue_step import catch_up_queue
from ondatra_dagster.sync.recovery.queue_reset_by_resync_or_forget import ResyncOptions, resync_queue
from ondatra_dagster.sync.run_context import Ports, RunOptions, SourceState
from ondatra_dagster.sync.sync_run import run_sync


def a_run(harness: KindSyncHarness, ports: Ports) -> None:
    run_sync(harness.sync, ports, RunOptions(trigger="test"))


def a_resync(harness: KindSyncHarness, ports: Ports) -> None:
    resync_queue(harness.sync, ports, ResyncOptions())


def an_intake(harness: KindSyncHarness, ports: Ports) -> None:
    catch_up_queue(harness.sync, ports)


@pytest.mark.parametrize("goes_on", [a_run, a_resync, an_intake])
def test_a_table_that_another_run_has_read_meanwhile_was_not_restored(
    tmp_path: Path, goes_on: Callable[[KindSyncHarness, Ports], None]
) -> None:
    """The other run delivered a newer version after this run read the table, and before it locked the queue."""
    desk = KindSyncHarness(tmp_path, "merge")
    desk.deliver_values(a=[1])
    ports, others = desk.build_ports(), [[2]]

    def source() -> SourceState | None:
        state = desk.table.source()
        while others:
            desk.deliver_values(a=others.pop())
        return state

    goes_on(desk, dataclasses.replace(ports, read_source=source))
    with desk.sync.open_queue() as queue:
        assert ([], 2) == (others, queue.watermark)
