"""Copies of a queue that are put back, and resyncs: neither undoes what the other had decided."""

import shutil
from pathlib import Path

import pytest
from support.kind_desk import Api, KindDesk, pairs

from ondatra_dagster.errors import ResyncNeededError
from ondatra_dagster.sync.intake import take_in_changes

ANOTHER = "https://other.example.com"


def back_up(desk: KindDesk) -> None:
    shutil.copytree(desk.state / "queue", desk.state / "backup")


def bring_back(desk: KindDesk) -> None:
    desk.lose_queue()
    shutil.copytree(desk.state / "backup", desk.state / "queue")


def take_in_paused(desk: KindDesk, **values: list[int]) -> None:
    """Let changes wait in the queue."""
    desk.held = "paused"
    desk.write(**values)
    desk.run()
    desk.held = None


@pytest.mark.parametrize("resyncs", [1, 2])
def test_what_a_resync_took_for_delivered_is_not_sent_by_an_older_queue(tmp_path: Path, resyncs: int) -> None:
    """There it still waits; no run came between, whose id might tell which of the two is newer."""
    desk = KindDesk(tmp_path, "merge")
    desk.deliver(a=[1])
    take_in_paused(desk, b=[5])
    for place in reversed(range(resyncs)):
        if place == 0:
            back_up(desk)
        desk.resync(assume_delivered=not place)
    bring_back(desk)
    desk.write(c=[7])
    assert [("insert", 7)] == pairs(desk.sends())


def test_a_resync_is_not_undone_by_an_older_queue(tmp_path: Path) -> None:
    """Somebody wants all rows at the API, and a run that says nothing is new would be believed."""
    desk = KindDesk(tmp_path, "merge")
    desk.deliver(a=[1])
    back_up(desk)
    desk.resync()
    bring_back(desk)
    assert [("update_preimage", 1), ("update_postimage", 1)] == pairs(desk.sends())
    assert [] == desk.sends()


def test_a_queue_of_after_a_resync_is_no_older_copy(tmp_path: Path) -> None:
    """What an operator does with it between two runs counts."""
    desk = KindDesk(tmp_path, "merge")
    desk.deliver(a=[1])
    desk.resync()
    desk.run()
    back_up(desk)
    bring_back(desk)
    desk.api.take()
    desk.write(a=[2])
    assert [("update_preimage", 1), ("update_postimage", 2)] == pairs(desk.sends())


def test_a_copy_of_before_an_intake_gives_way_to_what_was_taken_in(tmp_path: Path) -> None:
    """The versions that it hasn't seen may be freed since."""
    desk = KindDesk(tmp_path, "merge")
    desk.deliver(a=[1])
    back_up(desk)
    desk.write(a=[2])
    take_in_changes(desk.sync, desk.ports())
    bring_back(desk)

    def segments(after, upto):
        raise AssertionError

    desk.table.segments = segments  # type: ignore[method-assign]
    assert [("update_preimage", 1), ("update_postimage", 2)] == pairs(desk.sends())


def test_a_resync_leaves_the_records_of_a_run_alone_that_an_older_queue_takes_for_cut_off(
    tmp_path: Path,
) -> None:
    """The copy is from the middle of it: what it had to publish then is a part of what was published."""
    desk = KindDesk(tmp_path, "merge", batch_size=1)

    def answer(row):
        if row[2] == 5:
            back_up(desk)
        return "reject: no" if row[2] == 9 else "ok"

    desk.api = Api(answer)
    desk.deliver(a=[1], b=[5], c=[7], z=[9])
    records = desk.records()
    bring_back(desk)
    desk.batch_size, desk.kind, desk.api = 100, "tracked", Api()
    with pytest.raises(ResyncNeededError, match="came in with"):
        desk.run()
    desk.resync()
    assert (4, records) == (len(records), desk.records())


@pytest.mark.parametrize("is_lost", [False, True])
def test_a_resync_knows_since_when_it_sends_to_this_api_whatever_an_older_queue_says(
    tmp_path: Path, *, is_lost: bool
) -> None:
    """The copy is from when it sent to another one: what came to this one since then is there."""
    desk = KindDesk(tmp_path, "merge")
    desk.deliver(a=[1], b=[5])
    back_up(desk)
    desk.base_url = ANOTHER
    desk.write(b=[6])
    desk.resync(assume_delivered=True)
    desk.deliver(a=[2])
    if is_lost:
        desk.lose_queue()
    else:
        bring_back(desk)
    desk.resync(assume_delivered=True)
    desk.make_table("another")
    desk.write(a=[2], b=[6])
    desk.resync()
    sent = sorted(pairs(desk.sends()))
    assert [("insert", 6), ("update_postimage", 2), ("update_preimage", 2)] == sent
