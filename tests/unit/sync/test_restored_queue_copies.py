"""Copies of a queue that are put back, and resyncs: neither undoes what the other had decided."""

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
    """Let changes wait in the queue."""
    harness.hold_reason = "paused"
    harness.write(**values)
    harness.run()
    harness.hold_reason = None


@pytest.mark.parametrize("resyncs", [1, 2])
def test_what_a_resync_took_for_delivered_is_not_sent_by_an_older_queue(tmp_path: Path, resyncs: int) -> None:
    """There it still waits; no run came between, whose id might tell which of the two is newer."""
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
    """Somebody wants all rows at the API, and a run that says nothing is new would be believed."""
    desk = KindSyncHarness(tmp_path, "merge")
    desk.deliver_values(a=[1])
    back_up(desk)
    desk.resync()
    bring_back(desk)
    assert [("update_preimage", 1), ("update_postimage", 1)] == change_values(desk.run_and_pop_received())
    assert [] == desk.run_and_pop_received()


def test_a_queue_of_after_a_resync_is_no_older_copy(tmp_path: Path) -> None:
    """What an operator does with it between two runs counts."""
    desk = KindSyncHarness(tmp_path, "merge")
    desk.deliver_values(a=[1])
    desk.resync()
    desk.run()
    back_up(desk)
    bring_back(desk)
    desk.api.pop_received()
    desk.write(a=[2])
    assert [("update_preimage", 1), ("update_postimage", 2)] == change_values(desk.run_and_pop_received())


def test_a_copy_of_before_an_intake_gives_way_to_what_was_taken_in(tmp_path: Path) -> None:
    """The versions that it hasn't seen may be freed since."""
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


def test_a_resync_leaves_the_records_of_a_run_alone_that_an_older_queue_takes_for_cut_off(tmp_path: Path) -> None:
    """The copy is from the middle of it: what it had to publish then is a part of what was published."""
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
    with pytest.raises(ResyncNeededError, match="came in with"):
        desk.run()
    desk.resync()
    assert (4, records) == (len(records), desk.delivered_records())


@pytest.mark.parametrize("is_lost", [False, True])
def test_a_resync_knows_since_when_it_sends_to_this_api_whatever_an_older_queue_says(
    tmp_path: Path, *, is_lost: bool
) -> None:
    """The copy is from when it sent to another one: what came to this one since then is there."""
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
    sent = sorted(change_values(desk.run_and_pop_received()))
    assert [("insert", 6), ("update_postimage", 2), ("update_preimage", 2)] == sent
