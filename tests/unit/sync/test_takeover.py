"""A queue that is lost at a bad moment, or more than once, or comes back old: what others say is all used."""

import dataclasses
import shutil
import time
from pathlib import Path

import pytest
from support.kind_desk import Api, Killed, KindDesk, die_at, pairs

from ondatra_dagster.changes import ChangeType
from ondatra_dagster.delivery.frontier import NOTHING_ENQUEUED
from ondatra_dagster.delivery.outcome import Outcome
from ondatra_dagster.delivery.queue.claim import Job, claim, frozen_batches, split
from ondatra_dagster.delivery.queue.jobs import keep_job
from ondatra_dagster.delivery.queue.letters import replay
from ondatra_dagster.delivery.queue.recovered import KeyEnd, contents_told
from ondatra_dagster.delivery.queue.settled import SUCCEEDED
from ondatra_dagster.delivery.queue.takeover import frontier_of, take_over
from ondatra_dagster.errors import ResyncNeededError
from ondatra_dagster.project.model import Limit
from ondatra_dagster.sync.forget import forget
from ondatra_dagster.sync.run import run_sync
from ondatra_dagster.sync.start import Occasion
from ondatra_dagster.tracking.history import History
from ondatra_dagster.tracking.store import TrackingStore


def kill_twice(desk) -> None:
    """The second run publishes what the first had settled."""
    for _ in range(2):
        with pytest.raises(Killed):
            desk.run()


def test_what_was_refused_later_goes_on_from_what_was_taken_before(desk):
    """The API has the row: sent as new it would be there twice."""
    desk.batch_size = 1
    desk.contacts.write(a9="Zed")
    desk.run()
    dies_at, refuses = 2, None

    def answer(row):
        if row["id"] == dies_at:
            raise Killed
        return Outcome.parse("reject: no" if row["name"] == refuses else "ok")

    desk.api.answer = answer
    desk.contacts.write(a1="Ada", a2="Ben")
    with pytest.raises(Killed):
        desk.run()
    dies_at, refuses = 3, "Ann"
    desk.contacts.write(a1="Ann", a3="Cyn")
    kill_twice(desk)
    shutil.rmtree(desk.state / "queue")
    desk.contacts.write(a1="Amy")
    dies_at, _ = 0, desk.api.take()
    desk.run()
    assert [
        ("insert", 3, "Cyn"),
        ("update_postimage", 1, "Amy"),
        ("update_preimage", 1, "Ada"),
    ] == sorted(desk.api.take())


def test_what_was_taken_after_it_was_refused_is_no_dead_letter(desk):
    """Somebody has replayed it; to be told of it again he would send it once more."""
    desk.batch_size = 1
    desk.contacts.write(a9="Zed")
    desk.run()
    dies_at, refuses = 2, "Ada"

    def answer(row):
        if row["id"] == dies_at:
            raise Killed
        return Outcome.parse("reject: no" if row["name"] == refuses else "ok")

    desk.api.answer = answer
    desk.contacts.write(a1="Ada", a2="Ben")
    with pytest.raises(Killed):
        desk.run()
    with desk.sync.open_queue() as queue:
        assert 1 == replay(queue, now=desk.now)
    dies_at, refuses = 3, None
    desk.contacts.write(a3="Cyn")
    kill_twice(desk)
    shutil.rmtree(desk.state / "queue")
    dies_at, _ = 0, desk.api.take()
    summary = desk.run()
    assert ([("insert", 3, "Cyn")], 0) == (desk.api.take(), summary.queue.dead)


def test_a_dead_delete_stays_owed_when_its_queue_is_lost_after_later_rows_arrived(tmp_path: Path) -> None:
    """Those had waited for their next try; of the delete they say nothing."""
    desk = KindDesk(tmp_path, "table", batch_size=1)
    desk.deliver(a=[1])
    desk.api.answer = lambda row: (
        "reject: locked" if row[0] == "delete" else "error: later" if row[2] in {5, 7} else "ok"
    )
    desk.write(a=[2], b=[5], c=[7])
    assert 1 == desk.run().queue.dead
    desk.api = Api(die_at(7))
    kill_twice(desk)
    assert ("insert", 5) in pairs(desk.api.take())
    desk.lose_queue()
    desk.api = Api()
    desk.write(d=[9])
    assert ("delete", 1) in pairs(desk.sends())


def test_a_resync_after_all_was_forgotten_outlives_its_queue(tmp_path: Path) -> None:
    """What was recorded before it is no reason to leave its rows out."""
    desk = KindDesk(tmp_path, "merge")
    desk.deliver(a=[1])
    forget(desk.sync, desk.tracking)
    desk.resync()
    desk.lose_queue()
    assert [("update_preimage", 1), ("update_postimage", 1)] == pairs(desk.sends())


@pytest.mark.parametrize("is_refused_first", [False, True])
def test_another_api_gets_all_as_new_though_the_queue_was_lost_before_it_was_named(
    tmp_path: Path, *, is_refused_first: bool
) -> None:
    """The frontier tells of the API before, whose records would be taken for this one's."""
    desk = KindDesk(tmp_path, "merge")
    desk.deliver(a=[1])
    desk.lose_queue()
    desk.base_url = "https://other.example.com"
    if is_refused_first:
        with pytest.raises(ResyncNeededError, match="now sends to"):
            desk.run()
    desk.resync()
    assert [("insert", 1)] == pairs(desk.sends())


def test_what_a_killed_run_sent_to_another_api_is_sent_to_this_one(tmp_path: Path) -> None:
    """Its records came after the frontier of the queue that was lost, and before the resync."""
    desk = KindDesk(tmp_path, "merge", batch_size=1)
    desk.deliver(z=[9])
    desk.write(a=[1], c=[7])
    desk.api = Api(die_at(7))
    kill_twice(desk)
    desk.lose_queue()
    desk.base_url = "https://other.example.com"
    desk.resync()
    desk.lose_queue()
    desk.api = Api()
    assert [("insert", 1), ("insert", 7), ("insert", 9)] == sorted(pairs(desk.sends()))


def test_a_takeover_that_is_cut_off_while_it_reads_has_not_begun(tmp_path: Path) -> None:
    """With its watermark and without its rows a queue would have nothing to do until the table changes."""
    desk = KindDesk(tmp_path, "merge")
    desk.write(a=[1])
    desk.held = "paused"
    desk.run()
    frontier = desk.tracking.newest_frontier(desk.sync.id)
    assert frontier

    def units():
        yield from frontier.units
        raise Killed

    desk.lose_queue()
    with desk.sync.open_queue() as queue:
        with pytest.raises(Killed):
            take_over(queue, dataclasses.replace(frontier, units=units()), now=desk.now)
        assert (None, NOTHING_ENQUEUED) == (queue.meta("table_id"), queue.watermark)


def test_jobs_of_a_batch_that_was_split_stay_apart_when_its_queue_is_lost(tmp_path: Path) -> None:
    """Rows that stand under another one's job are never heard of, and are handed over once more."""
    desk = KindDesk(tmp_path, "merge")
    desk.write(a=[1], b=[5])
    desk.held = "paused"
    desk.run()
    with desk.sync.open_queue() as queue:
        batch = claim(queue, size=10, number=1)
        assert batch
        for part, reference in zip(split(queue, batch), ('"J-1"', '"J-2"'), strict=True):
            keep_job(queue, part, Job(reference, desk.now, desk.now + 1_000_000))
        left = frontier_of(
            queue, sync_id=desk.sync.id, run_id="29990101T000000Z-abcdef", written_at=desk.ports().now()
        )
        desk.tracking.write_frontier(left)
    desk.lose_queue()
    desk.run()
    with desk.sync.open_queue() as queue:
        jobs = {
            batch.job.reference: [unit.key for unit in batch.units]
            for batch in frozen_batches(queue)
            if batch.job
        }
    assert {'"J-1"': ["a"], '"J-2"': ["b"]} == jobs


def test_a_resync_knows_what_a_killed_run_had_settled(tmp_path: Path) -> None:
    """It may be the first that comes after the kill: an insert of what is there is a conflict."""
    desk = KindDesk(tmp_path, "merge", batch_size=1)
    desk.write(a=[1], c=[7])
    desk.api = Api(die_at(7))
    with pytest.raises(Killed):
        desk.run()
    desk.make_table("another")
    desk.write(a=[1], c=[7])
    desk.api = Api()
    desk.resync()
    assert [("insert", 7), ("update_postimage", 1), ("update_preimage", 1)] == sorted(pairs(desk.sends()))


def bring_back(desk: KindDesk) -> None:
    desk.lose_queue()
    shutil.copytree(desk.state / "backup", desk.state / "queue")


def test_a_copy_of_the_queue_from_the_middle_of_a_run_gives_way_to_its_frontier(tmp_path: Path) -> None:
    """It knows nothing of the end: what was on its way has arrived, and what had ended is published."""
    desk = KindDesk(tmp_path, "merge", batch_size=1)

    def answer(row):
        if row[2] == 5:
            shutil.copytree(desk.state / "queue", desk.state / "backup")
        return "ok"

    desk.api = Api(answer)
    desk.deliver(a=[1], b=[5], c=[7])
    records = desk.records()
    bring_back(desk)
    desk.api = Api()
    assert ([], records) == (desk.sends(), desk.records())
    assert 3 == len(records)


def wait_for_a_record_of(desk: KindDesk, key: str) -> None:
    """The run's other thread settles and publishes while a call is under way."""
    give_up_at = time.monotonic() + 60
    while key not in [record[0] for record in desk.records()]:
        assert time.monotonic() < give_up_at
        desk.now += 100  # no record waits longer than a minute for its file
        time.sleep(0.01)


def test_a_copy_from_the_middle_of_a_run_that_was_killed_gives_way_to_its_records(tmp_path: Path) -> None:
    """It would publish its part of them again, in the place of the whole."""
    desk = KindDesk(tmp_path, "merge", batch_size=1)

    def answer(row):
        if row[2] == 5:
            shutil.copytree(desk.state / "queue", desk.state / "backup")
        desk.now += 100 if row[2] > 1 else 0  # what has settled gets into a file
        if row[2] == 9:
            wait_for_a_record_of(desk, "b")
            raise Killed
        return "ok"

    desk.api = Api(answer)
    desk.write(a=[1], b=[5], c=[7], d=[7], e=[7], f=[7], g=[9])
    with pytest.raises(Killed):
        desk.run()
    recorded = [record[0] for record in desk.records()]
    bring_back(desk)
    desk.api = Api()
    assert len("abcdefg") == len(recorded) + len(desk.sends())
    assert [*"abcdefg"] == [record[0] for record in desk.records()]


class DyingHistory(History):
    def finish(self, run):
        raise Killed


def test_a_run_that_is_killed_after_its_frontier_leaves_a_queue_to_go_on_from(tmp_path: Path) -> None:
    """It is no older copy: what only the queue has, such as a job's whole reference, is still there."""
    desk = KindDesk(tmp_path, "merge")
    desk.write(a=[1])
    desk.held = "paused"
    desk.run()
    with desk.sync.open_queue() as queue:
        reference = Job('"J s3cret"', desk.now, desk.now + 1_000_000, '"J ***"')
        keep_job(queue, claim(queue, size=10, number=1), reference)
    desk.write(b=[5])
    dying = dataclasses.replace(desk.ports(), history=DyingHistory(desk.state / "history.sqlite"))
    with pytest.raises(Killed):
        run_sync(desk.sync, dying, Occasion(trigger="test"))
    desk.run()
    with desk.sync.open_queue() as queue:
        assert ['"J s3cret"'] == [batch.job.reference for batch in frozen_batches(queue) if batch.job]


class CountingStore(TrackingStore):
    looked = 0

    def runs(self, sync_id):
        self.looked += 1
        return super().runs(sync_id)


def test_a_run_looks_once_at_the_folders_of_all_runs(tmp_path: Path) -> None:
    """In a bucket that nobody prunes they are a hundred thousand."""
    desk = KindDesk(tmp_path, "merge")
    desk.deliver(a=[1])
    store = CountingStore(str(desk.state / "tracking"))
    desk.write(a=[2])
    run_sync(desk.sync, dataclasses.replace(desk.ports(), tracking=store), Occasion(trigger="test"))
    assert 1 == store.looked


def test_a_copy_of_the_queue_gives_way_to_the_records_of_a_killed_run_too(tmp_path: Path) -> None:
    """It left no frontier, but what it had recorded has arrived."""
    desk = KindDesk(tmp_path, "merge", batch_size=1)
    desk.deliver(z=[9])
    shutil.copytree(desk.state / "queue", desk.state / "backup")
    desk.write(a=[1], c=[7])
    desk.api = Api(die_at(7))
    kill_twice(desk)
    bring_back(desk)
    desk.api = Api()
    assert [("insert", 7)] == pairs(desk.sends())


@pytest.mark.parametrize("kind", ["table", "partition"])
def test_a_lost_queue_knows_how_much_a_killed_run_had_given_of_whole_contents(
    tmp_path: Path, kind: str
) -> None:
    """By the frontier before it nothing shrinks: @max_deletes would let all of it go."""
    desk = KindDesk(tmp_path, kind, batch_size=0, max_deletes=Limit(2))
    desk.deliver(a=[1])
    desk.deliver(a=[1, 2, 3, 4, 5, 6])
    # as if it had been killed when all was published
    desk.tracking.remove_frontier(desk.sync.id, desk.tracking.frontier_runs(desk.sync.id)[-1])
    desk.lose_queue()
    desk.write(a=[9])
    assert [] == desk.sends()


@pytest.mark.parametrize("kind", ["table", "partition"])
def test_a_content_that_may_be_half_published_counts_as_no_smaller_than_the_frontier_has_it(
    tmp_path: Path, kind: str
) -> None:
    """A run that is cut off between two files has told of the first only: better to ask once too often."""
    desk = KindDesk(tmp_path, kind, batch_size=0, max_deletes=Limit(2))
    desk.deliver(a=[1, 2, 3, 4, 5, 6])
    desk.write(a=[1, 2])
    desk.run(allows_deletes=True)
    desk.api.take()
    # as if it had been killed when these two were published
    desk.tracking.remove_frontier(desk.sync.id, desk.tracking.frontier_runs(desk.sync.id)[-1])
    desk.lose_queue()
    desk.write(a=[9])
    assert [] == desk.sends()


def test_a_content_counts_as_large_as_any_run_since_the_frontier_has_told() -> None:
    """The newest may have told of a part of what it gave, or have been cut off before the API took it."""
    rows = [("run-1", 2), ("run-1", 2), ("run-1", 2), ("run-2", 3)]
    ends = [KeyEnd("a", version, SUCCEEDED, None, ChangeType.INSERT, run) for run, version in rows]
    assert {"a": 3, "b": 1} == contents_told(ends, {"a": 2, "b": 1})


def test_a_run_whose_queue_folder_is_deleted_meanwhile_keeps_others_out(tmp_path: Path) -> None:
    """It goes on to its end: a second one beside it would send each row again, or an older one after it."""
    desk, other = KindDesk(tmp_path, "merge"), KindDesk(tmp_path, "merge")
    desk.write(a=[1], b=[5])
    other.table = desk.table
    told = []

    def answer(row):
        if row[2] == 1:
            (desk.state / "queue").rename(desk.state / "deleted")
            told.append(other.run().message)
        return "ok"

    desk.api = Api(answer)
    assert [("insert", 1), ("insert", 5)] == pairs(desk.sends())
    assert "sync.things is held by process" in told[0]
    desk.write(b=[6])
    assert [("update_preimage", 5), ("update_postimage", 6)] == pairs(desk.sends())
    assert [] == other.api.take()


def test_a_table_put_back_behind_a_killed_run_is_refused_though_the_frontier_is_older(tmp_path: Path) -> None:
    """Else the next changes up to that run's version would pass for what it had sent."""
    desk = KindDesk(tmp_path, "merge", batch_size=1)
    desk.deliver(z=[9])
    desk.write(b=[5], a=[1], c=[7])
    desk.api = Api(die_at(7))
    kill_twice(desk)
    desk.lose_queue()
    desk.make_table()
    desk.write(z=[9], b=[5])
    desk.api = Api()
    with pytest.raises(ResyncNeededError, match=r"is at version 2, but sync.things has sent up to version 4"):
        desk.run()
    desk.resync(removes=True)
    assert ("delete", 1) in pairs(desk.sends())


def test_a_newer_version_takes_along_a_delete_that_the_records_refuse(tmp_path: Path) -> None:
    """As it does where the queue is there: what it stands in the way of must not go before it."""
    desk = KindDesk(tmp_path, "table", batch_size=1)
    desk.deliver(a=[1])
    dies = die_at(7)
    desk.api = Api(lambda row: "reject: locked" if row[0] == "delete" else dies(row))
    desk.write(a=[2], c=[7])
    kill_twice(desk)
    desk.lose_queue()
    desk.api = Api()
    desk.write(d=[9])
    assert ("delete", 1) in pairs(desk.sends())


def test_a_delete_that_is_owed_again_outlives_rows_that_were_frozen_before(tmp_path: Path) -> None:
    """They had their turn when it was dead, so their arrival doesn't say that it has gone."""
    desk = KindDesk(tmp_path, "partition", batch_size=1)
    desk.deliver(a=[1])
    dies = die_at(2)
    desk.api = Api(lambda row: "reject: locked" if row[0] == "delete" else dies(row))
    desk.write(a=[2])
    with pytest.raises(Killed):
        desk.run()
    desk.held = "paused"
    desk.write(d=[9])
    desk.run()
    desk.held, desk.api = None, Api(die_at(1))
    kill_twice(desk)
    assert [("insert", 2), ("delete", 1), ("delete", 1)] == pairs(desk.api.take())
    desk.lose_queue()
    desk.api = Api()
    assert [("delete", 1), ("insert", 9)] == pairs(desk.sends())


FROM_ONE_TO_TWO = {
    "merge": [("update_preimage", 1), ("update_postimage", 2)],
    # the second one may have arrived, too
    "tracked": [("delete", 1), ("delete", 2), ("insert", 2)],
}


@pytest.mark.parametrize("kind", FROM_ONE_TO_TWO)
def test_what_was_frozen_and_has_arrived_is_gone_on_from(tmp_path: Path, kind: str) -> None:
    """A newer change waited beside it, so the frontier has both; to insert the row again would double it."""
    desk = KindDesk(tmp_path, kind, batch_size=1)
    desk.deliver(z=[9])
    desk.write(a=[1])
    desk.api = Api(die_at(1))
    with pytest.raises(Killed):
        desk.run()
    desk.held = "paused"
    desk.write(a=[2])
    desk.run()
    desk.held, desk.api = None, Api(die_at(2))
    kill_twice(desk)
    desk.lose_queue()
    desk.api = Api()
    assert FROM_ONE_TO_TWO[kind] == pairs(desk.sends())


def test_a_refused_delete_goes_before_rows_that_a_killed_run_had_taken_in(tmp_path: Path) -> None:
    """That run owed it again, whose newer rows must not go without it: the old row would stay beside them."""
    desk = KindDesk(tmp_path, "table", batch_size=1)
    desk.deliver(a=[1])
    dies = die_at(7)
    desk.api = Api(lambda row: "reject: locked" if row[0] == "delete" else dies(row))
    desk.write(a=[2], c=[7])
    kill_twice(desk)
    desk.write(d=[9])
    desk.api = Api(die_at(1))
    with pytest.raises(Killed):
        desk.run()
    desk.lose_queue()
    desk.api = Api()
    assert ("delete", 1) in pairs(desk.sends())


def test_deletes_that_the_newest_run_refused_stay_dead(tmp_path: Path) -> None:
    """With nothing new there is nothing to owe them for: they wait for somebody who looks at them."""
    desk = KindDesk(tmp_path, "table", batch_size=1)
    desk.deliver(a=[1])
    for changes in ({"a": [2], "c": [7]}, {"d": [9]}):
        desk.write(**changes)
        dies = die_at(max(changes.values())[0])
        desk.api = Api(lambda row, dies=dies: "reject: locked" if row[0] == "delete" else dies(row))
        kill_twice(desk)
    desk.lose_queue()
    desk.api = Api()
    dead, sent = desk.run().queue.dead, desk.api.take()
    assert (3, set()) == (dead, {row for row in sent if row[0] == "delete"})


# what the API has of a key; what goes to it when the process ends; what comes and goes meanwhile
THERE_AND_BACK = {
    "merge": ([], [1], [2], [1]),
    "tracked": ([1], [], [2], []),
}


@pytest.mark.parametrize("kind", THERE_AND_BACK)
def test_what_has_arrived_as_the_table_has_it_now_is_no_call(tmp_path: Path, kind: str) -> None:
    """Changes came while it was on its way, and went again; push can do nothing with no rows."""
    desk = KindDesk(tmp_path, kind, batch_size=1)
    before, frozen, *meanwhile = THERE_AND_BACK[kind]
    desk.deliver(z=[9], a=before)
    desk.write(a=frozen)
    desk.api = Api(die_at(1))
    with pytest.raises(Killed):
        desk.run()
    desk.held = "paused"
    for values in meanwhile:
        desk.write(a=values)
        desk.run()
    desk.held, desk.api = None, Api(die_at(7))
    desk.write(c=[7])
    kill_twice(desk)
    desk.lose_queue()
    desk.api = Api()
    desk.run()
    assert [[("insert", 7)]] == [pairs(call) for call in desk.api.calls]


def test_an_empty_content_is_a_call_though_its_queue_is_lost(tmp_path: Path) -> None:
    """It has no rows, and yet there is something to say: that the API shall have none."""
    desk = KindDesk(tmp_path, "table", batch_size=0)
    desk.deliver(a=[1])
    desk.write(a=[])
    desk.held = "paused"
    desk.run()
    desk.held = None

    def end(parcel, journal):
        raise Killed

    desk.api = end
    kill_twice(desk)
    desk.lose_queue()
    desk.api = Api()
    desk.run()
    assert [[]] == desk.api.calls


def test_a_job_goes_on_though_the_table_is_back_at_what_the_api_has(tmp_path: Path) -> None:
    """It brings something else there yet, of which nobody would know that it has to go again."""
    desk = KindDesk(tmp_path, "merge", batch_size=1)
    desk.deliver(a=[1])
    desk.held = "paused"
    desk.write(a=[2])
    desk.run()
    with desk.sync.open_queue() as queue:
        batch = claim(queue, size=10, number=1)
        assert batch
        keep_job(queue, batch, Job('"J-1"', desk.now, desk.now + 1_000_000))
    desk.write(a=[1])
    desk.run()
    desk.held, desk.api = None, Api(die_at(7))
    desk.write(c=[7])
    kill_twice(desk)
    desk.lose_queue()
    desk.api = Api()
    assert [("insert", 7)] == pairs(desk.sends())
    with desk.sync.open_queue() as queue:
        jobs = [batch.job.reference for batch in frozen_batches(queue) if batch.job]
    assert ['"J-1"'] == jobs
