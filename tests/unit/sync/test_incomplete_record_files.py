"""Runs that are killed between two files of records: one file alone doesn't say everything."""

import dataclasses
from collections.abc import Iterable
from pathlib import Path

import pytest
from support.syncs.kind_sync_harness import InMemoryKindApi, KindSyncCrash, KindSyncHarness, change_values

from ondatra_dagster.records.file_paths import RecordFileType
from ondatra_dagster.records.record_schema import SyncRecord
from ondatra_dagster.records.record_store import RecordStore
from ondatra_dagster.sync.run_context import RunOptions
from ondatra_dagster.sync.sync_run import run_sync


class OneFileStore(RecordStore):
    """A store whose process ends before the updated rows are recorded; the deleted rows are recorded."""

    def publish_records(
        self, sync_id: str, run_id: str, batch_type: RecordFileType, number: int, records: Iterable[SyncRecord]
    ) -> str:
        if batch_type is RecordFileType.UPDATED:
            raise KindSyncCrash
        return super().publish_records(sync_id, run_id, batch_type, number, records)


class SilentApi(InMemoryKindApi):
    """An API whose answers don't arrive, so that the outcomes of the rows are unknown."""

    def __call__(self, parcel, journal):
        return super().__call__(parcel, journal)._replace(unanswered_calls=1)


def run_to_the_half(harness: KindSyncHarness) -> None:
    harness.now += 10_000
    half = dataclasses.replace(harness.build_ports(), record_store=OneFileStore(str(harness.state / "tracking")))
    with pytest.raises(KindSyncCrash):
        run_sync(harness.sync, half, RunOptions(trigger="test"))
    harness.lose_queue()


@pytest.mark.parametrize("is_in_the_frontier", [False, True])
def test_a_row_that_came_back_is_sent_although_its_delete_is_recorded(
    tmp_path: Path, *, is_in_the_frontier: bool
) -> None:
    """Both were sent together, because the outcome of the delete was unknown. The API rejected the new row."""
    desk = KindSyncHarness(tmp_path, "merge")
    desk.deliver_values(z=[9])
    desk.deliver_values(a=[1])
    desk.table.remove("a")
    desk.api = SilentApi(lambda row: "error: later")
    desk.run()
    desk.write(a=[2])
    if is_in_the_frontier:
        desk.hold_reason = "paused"
        desk.run()
        desk.hold_reason = None
    desk.api = InMemoryKindApi(lambda row: "ok" if row[0] == "delete" else "reject: no")
    run_to_the_half(desk)
    assert [("delete", 1), ("insert", 2)] == change_values(desk.api.pop_received())
    desk.api = InMemoryKindApi()
    assert [("insert", 2)] == change_values(desk.run_and_pop_received())


def test_a_row_that_a_group_could_not_delete_is_deleted_with_its_next_rewrite(tmp_path: Path) -> None:
    """Rejected deletes are published first. With only the group's new rows, everything would seem to be right."""
    desk = KindSyncHarness(tmp_path, "tracked")
    desk.deliver_values(z=[9])
    desk.deliver_values(a=[1])
    desk.write(a=[2])
    desk.api = InMemoryKindApi(lambda row: "reject: locked" if row[0] == "delete" else "ok")
    run_to_the_half(desk)
    desk.api = InMemoryKindApi()
    desk.write(a=[3])
    assert [("delete", 1), ("delete", 2), ("insert", 3)] == change_values(desk.run_and_pop_received())
