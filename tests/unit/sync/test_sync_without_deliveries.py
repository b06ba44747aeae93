"""A sync that has sent nothing yet: it simply begins, with or without its queue, whatever happened before."""

import dataclasses
import shutil
from pathlib import Path

import pytest
from support.syncs.kind_sync_harness import (
    InMemoryKindApi,
    KindSyncCrash,
    KindSyncHarness,
    change_values,
    crash_at_value,
)

from ondatra_dagster.delivery.queue.snapshot_and_restore import QueueSnapshot
from ondatra_dagster.errors import ResyncNeededError, StateError, WarehouseError
from ondatra_dagster.records.record_store import RecordStore
from ondatra_dagster.sync.run_context import RunOptions
from ondatra_dagster.sync.sync_run import run_sync

ANOTHER = "https://other.example.com"


class FullTrackingStore(RecordStore):
    def write_snapshot(self, snapshot: QueueSnapshot) -> None:
        raise StateError("the disk is full; make room there, and run again")


def is_refused_for_want_of_room(harness: KindSyncHarness) -> None:
    ports = dataclasses.replace(harness.build_ports(), record_store=FullTrackingStore(str(harness.state / "tracking")))
    with pytest.raises(StateError, match="full"):
        run_sync(harness.sync, ports, RunOptions(trigger="test"))


def can_not_read_its_table(harness: KindSyncHarness) -> None:
    def segments(after, upto):
        raise WarehouseError("no Spark")

    harness.table.segments = segments  # type: ignore[method-assign]
    with pytest.raises(WarehouseError):
        harness.run()
    del harness.table.segments


@pytest.mark.parametrize("is_lost", [False, True])
def test_a_sync_whose_first_run_was_refused_begins_with_the_next_run(tmp_path: Path, *, is_lost: bool) -> None:
    """A snapshot that couldn't be written is no reason to ask the user what the API has."""
    desk = KindSyncHarness(tmp_path, "merge")
    desk.write(a=[1])
    is_refused_for_want_of_room(desk)
    if is_lost:
        desk.lose_queue()
    assert [("insert", 1)] == change_values(desk.run_and_pop_received())
    assert ["failed", "succeeded"] == sorted(run.result for run in desk.build_ports().history.list_runs())


@pytest.mark.parametrize("is_lost", [False, True])
def test_if_nothing_was_sent_the_table_and_the_api_may_change(tmp_path: Path, *, is_lost: bool) -> None:
    """The first run could not read its table. The table was then created again, for another API."""
    desk = KindSyncHarness(tmp_path, "merge")
    desk.write(a=[1])
    can_not_read_its_table(desk)
    if is_lost:
        desk.lose_queue()
    desk.make_table("another")
    desk.write(b=[5])
    desk.base_url = ANOTHER
    assert [("insert", 5)] == change_values(desk.run_and_pop_received())
    assert [("insert", "succeeded")] == [record[2:] for record in desk.delivered_records()]
    desk.lose_queue()
    desk.write(b=[6])
    assert [("update_preimage", 5), ("update_postimage", 6)] == change_values(desk.run_and_pop_received())


def test_a_run_that_was_killed_may_have_sent_something(tmp_path: Path) -> None:
    """It has no records and no snapshot, but it has a folder."""
    desk = KindSyncHarness(tmp_path, "merge", api=InMemoryKindApi(crash_at_value(1)))
    desk.write(a=[1])
    with pytest.raises(KindSyncCrash):
        desk.run()
    desk.lose_queue()
    desk.base_url, desk.api = ANOTHER, InMemoryKindApi()
    with pytest.raises(ResyncNeededError, match="now sends to"):
        desk.run()


def test_a_refusal_after_a_loss_does_not_let_the_next_run_begin(tmp_path: Path) -> None:
    """It may be the only sign that the sync has run before."""
    desk = KindSyncHarness(tmp_path, "merge")
    desk.deliver_values(a=[1])
    desk.lose_queue()
    desk.tracking.remove_snapshots(desk.sync.id)
    (desk.state / "history.sqlite").unlink()
    for _ in range(2):
        with pytest.raises(ResyncNeededError, match="are lost"):
            desk.run()
        shutil.rmtree(desk.state / "tracking", ignore_errors=True)
    assert [] == desk.api.pop_received()
