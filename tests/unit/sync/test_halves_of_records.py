"""Runs that are killed between two files of records: what one of them tells isn't the whole of it."""

import dataclasses
from collections.abc import Iterable
from pathlib import Path

import pytest
from support.kind_desk import Api, Killed, KindDesk, pairs

from ondatra_dagster.sync.run import run_sync
from ondatra_dagster.sync.start import Occasion
from ondatra_dagster.tracking.addresses import BatchType
from ondatra_dagster.tracking.record import SyncRecord
from ondatra_dagster.tracking.store import TrackingStore


class HalfStore(TrackingStore):
    """Its process ends before the rows that came are recorded; those that went are."""

    def publish(
        self, sync_id: str, run_id: str, batch_type: BatchType, number: int, records: Iterable[SyncRecord]
    ) -> str:
        if batch_type is BatchType.UPDATED:
            raise Killed
        return super().publish(sync_id, run_id, batch_type, number, records)


class SilentApi(Api):
    """Nobody hears what became of the rows."""

    def __call__(self, parcel, journal):
        return super().__call__(parcel, journal)._replace(unanswered=1)


def run_to_the_half(desk: KindDesk) -> None:
    desk.now += 10_000
    half = dataclasses.replace(desk.ports(), tracking=HalfStore(str(desk.state / "tracking")))
    with pytest.raises(Killed):
        run_sync(desk.sync, half, Occasion(trigger="test"))
    desk.lose_queue()


@pytest.mark.parametrize("is_in_the_frontier", [False, True])
def test_a_row_that_came_back_is_not_gone_because_its_delete_is_recorded(
    tmp_path: Path, *, is_in_the_frontier: bool
) -> None:
    """Both went out together, as nobody knew of the delete before; the API has refused the new row."""
    desk = KindDesk(tmp_path, "merge")
    desk.deliver(z=[9])
    desk.deliver(a=[1])
    desk.table.remove("a")
    desk.api = SilentApi(lambda row: "error: later")
    desk.run()
    desk.write(a=[2])
    if is_in_the_frontier:
        desk.held = "paused"
        desk.run()
        desk.held = None
    desk.api = Api(lambda row: "ok" if row[0] == "delete" else "reject: no")
    run_to_the_half(desk)
    assert [("delete", 1), ("insert", 2)] == pairs(desk.api.take())
    desk.api = Api()
    assert [("insert", 2)] == pairs(desk.sends())


def test_a_row_that_a_group_could_not_get_rid_of_goes_with_its_next_rewrite(tmp_path: Path) -> None:
    """Refused deletes are published first: of the group's new rows alone all would seem well."""
    desk = KindDesk(tmp_path, "tracked")
    desk.deliver(z=[9])
    desk.deliver(a=[1])
    desk.write(a=[2])
    desk.api = Api(lambda row: "reject: locked" if row[0] == "delete" else "ok")
    run_to_the_half(desk)
    desk.api = Api()
    desk.write(a=[3])
    assert [("delete", 1), ("delete", 2), ("insert", 3)] == pairs(desk.sends())
