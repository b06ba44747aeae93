"""Runs that are killed between two files of records: what one of them tells isn't the whole of it."""

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
    """Its process ends before the rows that came are recorded; those that went are."""

    def publish_records(
        self, sync_id: str, run_id: str, batch_type: RecordFileType, number: int, records: Iterable[SyncRecord]
    ) -> str:
        if batch_type is RecordFileType.UPDATED:
            raise KindSyncCrash
        return super().publish_records(sync_id, run_id, batch_type, number, records)


class SilentApi(InMemoryKindApi):
    """Nobody hears what became of the rows."""

    def __call__(self, parcel, journal):
        return super().__call__(parcel, journal)._replace(unanswered_calls=1)


def run_to_the_half(harness: KindSyncHarness) -> None:
    harness.now += 10_000
    half = dataclasses.replace(harness.build_ports(), record_store=OneFileStore(str(harness.state / "tracking")))
    with pytest.raises(KindSyncCrash):
        run_sync(harness.sync, half, RunOptions(trigger="test"))
    harness.lose_queue()


@pytest.mark.parametrize("is_in_the_frontier", [False, True])
def test_a_row_that_came_back_is_not_gone_because_its_delete_is_recorded(
    tmp_path: Path, *, is_in_the_frontier: bool
) -> None:
    """Both went out together, as nobody knew of the delete before; the API has refused the new row."""
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


def test_a_row_that_a_group_could_not_get_rid_of_goes_with_its_next_rewrite(tmp_path: Path) -> None:
    """Refused deletes are published first: of the group's new rows alone all would seem well."""
    desk = KindSyncHarness(tmp_path, "tracked")
    desk.deliver_values(z=[9])
    desk.deliver_values(a=[1])
    desk.write(a=[2])
    desk.api = InMemoryKindApi(lambda row: "reject: locked" if row[0] == "delete" else "ok")
    run_to_the_half(desk)
    desk.api = InMemoryKindApi()
    desk.write(a=[3])
    assert [("delete", 1), ("delete", 2), ("insert", 3)] == change_values(desk.run_and_pop_received())
