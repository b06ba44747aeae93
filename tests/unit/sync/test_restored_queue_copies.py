"""The restored copies of a queue, and resyncs: neither undoes what the other has decided."""

import shutil
from pathlib import Path

import pytest
from support.syncs.kind_sync_harness import InMemoryKindApi, KindSyncHarness, change_values

from ondatra_dagster.errors import ResyncNeededError
from ondatra_dagster.sync.enqueue_step import catch_up_queue

ANOTHER = "https://other.example.com"


def back_up(harness: KindSyncHarness) -> None:
    shutil.copytree(harness.state / "queue", harness.state / "backup")


def bring_back(harness: KindSyncHarness) -> None:
    harness.lose_queue()
    shutil.copytree(harness.state / "backup", harness.state / "queue")


def take_in_paused(harness: KindSyncHarness, **values: list[int]) -> None:
    """Let these changes wait in the queue."""
    harness.hold_reason = "paused"
    harness.write(**values)
    harness.run()
    harness.hold_reason = None


@pytest.mark.parametrize("resyncs", [1, 2])
def test_rows_that_a_resync_assumed_delivered_are_not_sent_by_an_older_queue(tmp_path: Path, resyncs: int) -> None:
    """The rows still wait in the older queue. No run came between, so no run id says which of the two is newer."""
    desk = KindSyncHarness(tmp_path, "merge")
    desk.deliver_values(a=[1])
    take_in_paused(desk, b=[5])
    for place in reversed(range(resyncs)):
        if place == 0:
            back_up(desk)
        desk.resync(assume_delivered=not place)
    bring_back(desk)
    desk.write(c=[7])
    assert [("insert", 7)] == change_values(desk.run_and_pop_received())


def test_a_resync_is_not_undone_by_an_older_queue(tmp_path: Path) -> None:
    """The user wants all rows at the API, and would believe a run that says that nothing is new."""
    desk = KindSyncHarness(tmp_path, "merge")
    desk.deliver_values(a=[1])
    back_up(desk)
    desk.resync()
    bring_back(desk)
    assert [("update_preimage", 1), ("update_postimage", 1)] == change_values(desk.run_and_pop_received())
    assert [] == desk.run_and_pop_received()


def test_a_queue_from_after_a_resync_is_no_older_copy(tmp_path: Path) -> None:
    """The operator's changes to a queue between two runs count."""
    desk = KindSyncHarness(tmp_path, "merge")
    desk.deliver_values(a=[1])
    desk.resync()
    desk.run()
    back_up(desk)
    bring_back(desk)
    desk.api.pop_received()
    desk.write(a=[2])
    assert [("update_preimage", 1), ("update_postimage", 2)] == change_values(desk.run_and_pop_received())


def test_a_copy_from_before_an_intake_is_replaced_by_what_was_queued(tmp_path: Path) -> None:
    """The table's versions that the copy hasn't seen may be deleted by now."""
    desk = KindSyncHarness(tmp_path, "merge")
    desk.deliver_values(a=[1])
    back_up(desk)
    desk.write(a=[2])
    catch_up_queue(desk.sync, desk.build_ports())
    bring_back(desk)

    def segments(after, upto):
        raise AssertionError

    desk.table.segments = segments  # type: ignore[method-assign]
    assert [("update_preimage", 1), ("update_postimage", 2)] == change_values(desk.run_and_pop_received())


def test_a_resync_keeps_the_records_of_a_run_that_an_older_queue_calls_killed(tmp_path: Path) -> None:
    """The copy is from the middle of the run, and has only a part of the run's records to publish."""
    desk = KindSyncHarness(tmp_path, "merge", batch_size=1)

    def answer(row):
        if row[2] == 5:
            back_up(desk)
        return "reject: no" if row[2] == 9 else "ok"

    desk.api = InMemoryKindApi(answer)
    desk.deliver_values(a=[1], b=[5], c=[7], z=[9])
    records = desk.delivered_records()
    bring_back(desk)
    desk.batch_size, desk.kind, desk.api = 100, "tracked", InMemoryKindApi()
    with pytest.raises(ResyncNeededError, match="entered it with"):
        desk.run()
    desk.resync()
    assert (4, records) == (len(records), desk.delivered_records())


@pytest.mark.parametrize("is_lost", [False, True])
def test_a_resync_knows_since_when_it_sends_to_this_api_despite_an_older_queue(
    tmp_path: Path, *, is_lost: bool
) -> None:
    """The copy is from the time of the other API. Rows that were sent to this API since then are there."""
    desk = KindSyncHarness(tmp_path, "merge")
    desk.deliver_values(a=[1], b=[5])
    back_up(desk)
    desk.base_url = ANOTHER
    desk.write(b=[6])
    desk.resync(assume_delivered=True)
    desk.deliver_values(a=[2])
    if is_lost:
        desk.lose_queue()
    else:
        bring_back(desk)
    desk.resync(assume_delivered=True)
    desk.make_table("another")
    desk.write(a=[2], b=[6])
    desk.resync()
    changes = sorted(change_values(desk.run_and_pop_received()))
    assert [("insert", 6), ("update_postimage", 2), ("update_preimage", 2)] == changes
