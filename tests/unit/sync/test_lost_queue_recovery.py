"""The recovery of a queue that is lost at a bad moment, or twice, or is an old copy. It uses all that snapshots and
records say."""

import dataclasses
import shutil
import time
from pathlib import Path

import pytest
from support.syncs.kind_sync_harness import (
    InMemoryKindApi,
    KindSyncCrash,
    KindSyncHarness,
    change_values,
    crash_at_value,
)

from ondatra_dagster.delivery.queue.async_jobs import store_job
from ondatra_dagster.delivery.queue.claimed_batches import Job, claim_batch, load_batches, split_batch
from ondatra_dagster.delivery.queue.dead_letter_reading_and_replay import replay_dead_letters
from ondatra_dagster.delivery.queue.outcomes_recorded_after_snapshot import KeyOutcome, recorded_content_sizes
from ondatra_dagster.delivery.queue.queue_database import NOTHING_ENQUEUED
from ondatra_dagster.delivery.queue.snapshot_and_restore import make_snapshot, restore_snapshot
from ondatra_dagster.delivery.queue.unpublished_records import STATUS_SUCCEEDED
from ondatra_dagster.delivery.row_outcome import RowOutcome
from ondatra_dagster.errors import ResyncNeededError
from ondatra_dagster.project.model import RowLimit
from ondatra_dagster.records.record_store import RecordStore
from ondatra_dagster.row_changes import ChangeType
from ondatra_dagster.sync.recovery.queue_reset_by_resync_or_forget import forget_sync
from ondatra_dagster.sync.run_context import RunOptions
from ondatra_dagster.sync.run_history_store import RunHistory
from ondatra_dagster.sync.sync_run import run_sync


def kill_twice(harness) -> None:
    """Run twice and crash; the second run publishes what the first one settled."""
    for _ in range(2):
        with pytest.raises(KindSyncCrash):
            harness.run()


def test_a_row_that_was_rejected_later_continues_from_what_was_accepted_before(harness):
    """The API has the row. If it were sent as new, the API would have it twice."""
    harness.batch_size = 1
    harness.contacts.write(a9="Zed")
    harness.run()
    dies_at, refuses = 2, None

    def answer(row):
        if row["id"] == dies_at:
            raise KindSyncCrash
        return RowOutcome.parse_status("reject: no" if row["name"] == refuses else "ok")

    harness.api.choose_outcome = answer
    harness.contacts.write(a1="Ada", a2="Ben")
    with pytest.raises(KindSyncCrash):
        harness.run()
    dies_at, refuses = 3, "Ann"
    harness.contacts.write(a1="Ann", a3="Cyn")
    kill_twice(harness)
    shutil.rmtree(harness.state / "queue")
    harness.contacts.write(a1="Amy")
    dies_at, _ = 0, harness.api.pop_received()
    harness.run()
    assert [("insert", 3, "Cyn"), ("update_postimage", 1, "Amy"), ("update_preimage", 1, "Ada")] == sorted(
        harness.api.pop_received()
    )


def test_a_row_that_was_accepted_after_its_rejection_is_no_dead_letter(harness):
    """The user has replayed it. If it were a dead letter again, the user would send it once more."""
    harness.batch_size = 1
    harness.contacts.write(a9="Zed")
    harness.run()
    dies_at, refuses = 2, "Ada"

    def answer(row):
        if row["id"] == dies_at:
            raise KindSyncCrash
        return RowOutcome.parse_status("reject: no" if row["name"] == refuses else "ok")

    harness.api.choose_outcome = answer
    harness.contacts.write(a1="Ada", a2="Ben")
    with pytest.raises(KindSyncCrash):
        harness.run()
    with harness.sync.open_queue() as queue:
        assert 1 == replay_dead_letters(queue, now=harness.now)
    dies_at, refuses = 3, None
    harness.contacts.write(a3="Cyn")
    kill_twice(harness)
    shutil.rmtree(harness.state / "queue")
    dies_at, _ = 0, harness.api.pop_received()
    summary = harness.run()
    assert ([("insert", 3, "Cyn")], 0) == (harness.api.pop_received(), summary.queue.dead_units)


def test_a_dead_delete_survives_a_lost_queue_although_later_rows_arrived(tmp_path: Path) -> None:
    """Those rows had waited for their retry. They say nothing about the delete."""
    desk = KindSyncHarness(tmp_path, "table", batch_size=1)
    desk.deliver_values(a=[1])
    desk.api.choose_status = lambda row: (
        "reject: locked" if row[0] == "delete" else "error: later" if row[2] in {5, 7} else "ok"
    )
    desk.write(a=[2], b=[5], c=[7])
    assert 1 == desk.run().queue.dead_units
    desk.api = InMemoryKindApi(crash_at_value(7))
    kill_twice(desk)
    assert ("insert", 5) in change_values(desk.api.pop_received())
    desk.lose_queue()
    desk.api = InMemoryKindApi()
    desk.write(d=[9])
    assert ("delete", 1) in change_values(desk.run_and_pop_received())


def test_a_resync_after_forget_survives_the_loss_of_its_queue(tmp_path: Path) -> None:
    """Records from before the resync are no reason to leave its rows out."""
    desk = KindSyncHarness(tmp_path, "merge")
    desk.deliver_values(a=[1])
    forget_sync(desk.sync, desk.tracking)
    desk.resync()
    desk.lose_queue()
    assert [("update_preimage", 1), ("update_postimage", 1)] == change_values(desk.run_and_pop_received())


@pytest.mark.parametrize("is_refused_first", [False, True])
def test_another_api_gets_all_rows_as_new_if_the_queue_was_lost_before(
    tmp_path: Path, *, is_refused_first: bool
) -> None:
    """The queue snapshot is about the first API. Its records must not be taken for records of the new API."""
    desk = KindSyncHarness(tmp_path, "merge")
    desk.deliver_values(a=[1])
    desk.lose_queue()
    desk.base_url = "https://other.example.com"
    if is_refused_first:
        with pytest.raises(ResyncNeededError, match="now sends to"):
            desk.run()
    desk.resync()
    assert [("insert", 1)] == change_values(desk.run_and_pop_received())


def test_rows_that_a_killed_run_sent_to_another_api_are_sent_to_this_one(tmp_path: Path) -> None:
    """Its records were written after the snapshot of the lost queue, and before the resync."""
    desk = KindSyncHarness(tmp_path, "merge", batch_size=1)
    desk.deliver_values(z=[9])
    desk.write(a=[1], c=[7])
    desk.api = InMemoryKindApi(crash_at_value(7))
    kill_twice(desk)
    desk.lose_queue()
    desk.base_url = "https://other.example.com"
    desk.resync()
    desk.lose_queue()
    desk.api = InMemoryKindApi()
    assert [("insert", 1), ("insert", 7), ("insert", 9)] == sorted(change_values(desk.run_and_pop_received()))


def test_a_recovery_that_is_interrupted_while_it_reads_has_not_begun(tmp_path: Path) -> None:
    """A queue with the watermark and without its rows would have nothing to do until the table changes."""
    desk = KindSyncHarness(tmp_path, "merge")
    desk.write(a=[1])
    desk.hold_reason = "paused"
    desk.run()
    snapshot = desk.tracking.read_newest_snapshot(desk.sync.id)
    assert snapshot

    def units():
        yield from snapshot.units
        raise KindSyncCrash

    desk.lose_queue()
    with desk.sync.open_queue() as queue:
        with pytest.raises(KindSyncCrash):
            restore_snapshot(queue, dataclasses.replace(snapshot, units=units()), now=desk.now)
        assert (None, NOTHING_ENQUEUED) == (queue.read_meta("table_id"), queue.watermark)


def test_jobs_of_a_split_batch_stay_separate_when_the_queue_is_lost(tmp_path: Path) -> None:
    """A row in the job of another row would never get an outcome, and would be sent again."""
    desk = KindSyncHarness(tmp_path, "merge")
    desk.write(a=[1], b=[5])
    desk.hold_reason = "paused"
    desk.run()
    with desk.sync.open_queue() as queue:
        batch = claim_batch(queue, size=10, number=1)
        assert batch
        for part, reference in zip(split_batch(queue, batch), ('"J-1"', '"J-2"'), strict=True):
            store_job(queue, part, Job(reference, desk.now, desk.now + 1_000_000))
        snapshot = make_snapshot(
            queue, sync_id=desk.sync.id, run_id="29990101T000000Z-abcdef", written_at=desk.build_ports().now()
        )
        desk.tracking.write_snapshot(snapshot)
    desk.lose_queue()
    desk.run()
    with desk.sync.open_queue() as queue:
        jobs = {batch.job.reference: [unit.key for unit in batch.units] for batch in load_batches(queue) if batch.job}
    assert {'"J-1"': ["a"], '"J-2"': ["b"]} == jobs


def test_a_resync_knows_what_a_killed_run_had_settled(tmp_path: Path) -> None:
    """It may be the first command after the kill. An insert of an existing row is a conflict."""
    desk = KindSyncHarness(tmp_path, "merge", batch_size=1)
    desk.write(a=[1], c=[7])
    desk.api = InMemoryKindApi(crash_at_value(7))
    with pytest.raises(KindSyncCrash):
        desk.run()
    desk.make_table("another")
    desk.write(a=[1], c=[7])
    desk.api = InMemoryKindApi()
    desk.resync()
    assert [("insert", 7), ("update_postimage", 1), ("update_preimage", 1)] == sorted(
        change_values(desk.run_and_pop_received())
    )


def bring_back(harness: KindSyncHarness) -> None:
    harness.lose_queue()
    shutil.copytree(harness.state / "backup", harness.state / "queue")


def test_a_queue_copy_from_the_middle_of_a_run_is_replaced_by_the_snapshot(tmp_path: Path) -> None:
    """The copy doesn't know the run's end: rows in flight have arrived, and settled rows are published."""
    desk = KindSyncHarness(tmp_path, "merge", batch_size=1)

    def answer(row):
        if row[2] == 5:
            shutil.copytree(desk.state / "queue", desk.state / "backup")
        return "ok"

    desk.api = InMemoryKindApi(answer)
    desk.deliver_values(a=[1], b=[5], c=[7])
    records = desk.delivered_records()
    bring_back(desk)
    desk.api = InMemoryKindApi()
    assert ([], records) == (desk.run_and_pop_received(), desk.delivered_records())
    assert 3 == len(records)


def wait_for_a_record_of(harness: KindSyncHarness, key: str) -> None:
    """Wait until the run's other thread has settled and published this key, while a call is in progress."""
    give_up_at = time.monotonic() + 60
    while key not in [record[0] for record in harness.delivered_records()]:
        assert time.monotonic() < give_up_at
        harness.now += 100  # no record waits longer than a minute for its file
        time.sleep(0.01)


def test_a_queue_copy_from_a_killed_run_is_replaced_by_the_records(tmp_path: Path) -> None:
    """The copy would publish its part of the records again, and replace all of them."""
    desk = KindSyncHarness(tmp_path, "merge", batch_size=1)

    def answer(row):
        if row[2] == 5:
            shutil.copytree(desk.state / "queue", desk.state / "backup")
        desk.now += 100 if row[2] > 1 else 0  # the settled rows are written to a file
        if row[2] == 9:
            wait_for_a_record_of(desk, "b")
            raise KindSyncCrash
        return "ok"

    desk.api = InMemoryKindApi(answer)
    desk.write(a=[1], b=[5], c=[7], d=[7], e=[7], f=[7], g=[9])
    with pytest.raises(KindSyncCrash):
        desk.run()
    recorded = [record[0] for record in desk.delivered_records()]
    bring_back(desk)
    desk.api = InMemoryKindApi()
    assert len("abcdefg") == len(recorded) + len(desk.run_and_pop_received())
    assert [*"abcdefg"] == [record[0] for record in desk.delivered_records()]


class DyingHistory(RunHistory):
    def finish_run(self, run):
        raise KindSyncCrash


def test_a_run_that_is_killed_after_its_snapshot_leaves_a_usable_queue(tmp_path: Path) -> None:
    """This queue is no older copy. Data that only the queue has, such as a job's whole reference, is still there."""
    desk = KindSyncHarness(tmp_path, "merge")
    desk.write(a=[1])
    desk.hold_reason = "paused"
    desk.run()
    with desk.sync.open_queue() as queue:
        reference = Job('"J s3cret"', desk.now, desk.now + 1_000_000, '"J ***"')
        store_job(queue, claim_batch(queue, size=10, number=1), reference)
    desk.write(b=[5])
    dying = dataclasses.replace(desk.build_ports(), history=DyingHistory(desk.state / "history.sqlite"))
    with pytest.raises(KindSyncCrash):
        run_sync(desk.sync, dying, RunOptions(trigger="test"))
    desk.run()
    with desk.sync.open_queue() as queue:
        assert ['"J s3cret"'] == [batch.job.reference for batch in load_batches(queue) if batch.job]


class CountingStore(RecordStore):
    looked = 0

    def list_runs(self, sync_id):
        self.looked += 1
        return super().list_runs(sync_id)


def test_a_run_lists_the_folders_of_all_runs_once(tmp_path: Path) -> None:
    """In a bucket that is never pruned there are a hundred thousand."""
    desk = KindSyncHarness(tmp_path, "merge")
    desk.deliver_values(a=[1])
    store = CountingStore(str(desk.state / "tracking"))
    desk.write(a=[2])
    run_sync(desk.sync, dataclasses.replace(desk.build_ports(), record_store=store), RunOptions(trigger="test"))
    assert 1 == store.looked


def test_a_queue_copy_is_replaced_by_the_records_of_a_killed_run_too(tmp_path: Path) -> None:
    """The run left no queue snapshot, but the rows that it had recorded have arrived."""
    desk = KindSyncHarness(tmp_path, "merge", batch_size=1)
    desk.deliver_values(z=[9])
    shutil.copytree(desk.state / "queue", desk.state / "backup")
    desk.write(a=[1], c=[7])
    desk.api = InMemoryKindApi(crash_at_value(7))
    kill_twice(desk)
    bring_back(desk)
    desk.api = InMemoryKindApi()
    assert [("insert", 7)] == change_values(desk.run_and_pop_received())


@pytest.mark.parametrize("kind", ["table", "partition"])
def test_a_lost_queue_knows_how_many_mirror_rows_a_killed_run_had_sent(tmp_path: Path, kind: str) -> None:
    """By the snapshot before that run nothing shrinks, so @max_deletes would allow all deletes."""
    desk = KindSyncHarness(tmp_path, kind, batch_size=0, max_deletes=RowLimit(2))
    desk.deliver_values(a=[1])
    desk.deliver_values(a=[1, 2, 3, 4, 5, 6])
    # as if the run had been killed after it published everything
    desk.tracking.remove_snapshot(desk.sync.id, desk.tracking.list_snapshot_runs(desk.sync.id)[-1])
    desk.lose_queue()
    desk.write(a=[9])
    assert [] == desk.run_and_pop_received()


@pytest.mark.parametrize("kind", ["table", "partition"])
def test_a_mirror_that_may_be_half_published_counts_as_large_as_in_the_snapshot(tmp_path: Path, kind: str) -> None:
    """A run that is interrupted between two files has recorded only the first. It is better to ask once too often."""
    desk = KindSyncHarness(tmp_path, kind, batch_size=0, max_deletes=RowLimit(2))
    desk.deliver_values(a=[1, 2, 3, 4, 5, 6])
    desk.write(a=[1, 2])
    desk.run(allows_deletes=True)
    desk.api.pop_received()
    # as if the run had been killed after it published these two rows
    desk.tracking.remove_snapshot(desk.sync.id, desk.tracking.list_snapshot_runs(desk.sync.id)[-1])
    desk.lose_queue()
    desk.write(a=[9])
    assert [] == desk.run_and_pop_received()


def test_a_mirror_counts_as_large_as_in_any_run_since_the_snapshot() -> None:
    """The newest run may have recorded only a part, or been interrupted before the API accepted the rows."""
    rows = [("run-1", 2), ("run-1", 2), ("run-1", 2), ("run-2", 3)]
    ends = [KeyOutcome("a", version, STATUS_SUCCEEDED, None, ChangeType.INSERT, run) for run, version in rows]
    assert {"a": 3, "b": 1} == recorded_content_sizes(ends, {"a": 2, "b": 1})


def test_a_run_whose_queue_folder_is_deleted_meanwhile_blocks_other_runs(tmp_path: Path) -> None:
    """The run continues to its end. A second run next to it would send each row again, or an older row after it."""
    desk, other = KindSyncHarness(tmp_path, "merge"), KindSyncHarness(tmp_path, "merge")
    desk.write(a=[1], b=[5])
    other.table = desk.table
    messages = []

    def answer(row):
        if row[2] == 1:
            (desk.state / "queue").rename(desk.state / "deleted")
            messages.append(other.run().message)
        return "ok"

    desk.api = InMemoryKindApi(answer)
    assert [("insert", 1), ("insert", 5)] == change_values(desk.run_and_pop_received())
    assert "sync.things is held by process" in messages[0]
    desk.write(b=[6])
    assert [("update_preimage", 5), ("update_postimage", 6)] == change_values(desk.run_and_pop_received())
    assert [] == other.api.pop_received()


def test_a_table_restored_to_before_a_killed_runs_version_is_refused(tmp_path: Path) -> None:
    """The snapshot is older. Without the refusal, the next changes up to that run's version would count as sent."""
    desk = KindSyncHarness(tmp_path, "merge", batch_size=1)
    desk.deliver_values(z=[9])
    desk.write(b=[5], a=[1], c=[7])
    desk.api = InMemoryKindApi(crash_at_value(7))
    kill_twice(desk)
    desk.lose_queue()
    desk.make_table()
    desk.write(z=[9], b=[5])
    desk.api = InMemoryKindApi()
    with pytest.raises(ResyncNeededError, match=r"is at version 2, but sync.things has sent up to version 4"):
        desk.run()
    desk.resync(removes=True)
    assert ("delete", 1) in change_values(desk.run_and_pop_received())


def test_a_newer_version_retries_a_delete_that_is_recorded_as_rejected(tmp_path: Path) -> None:
    """A queue that isn't lost does the same. Rows that wait for the delete must not be sent before it."""
    desk = KindSyncHarness(tmp_path, "table", batch_size=1)
    desk.deliver_values(a=[1])
    dies = crash_at_value(7)
    desk.api = InMemoryKindApi(lambda row: "reject: locked" if row[0] == "delete" else dies(row))
    desk.write(a=[2], c=[7])
    kill_twice(desk)
    desk.lose_queue()
    desk.api = InMemoryKindApi()
    desk.write(d=[9])
    assert ("delete", 1) in change_values(desk.run_and_pop_received())


def test_a_retried_delete_is_not_cancelled_by_rows_claimed_before_it(tmp_path: Path) -> None:
    """Those rows were claimed while the delete was a dead letter. Their arrival doesn't say that it is done."""
    desk = KindSyncHarness(tmp_path, "partition", batch_size=1)
    desk.deliver_values(a=[1])
    dies = crash_at_value(2)
    desk.api = InMemoryKindApi(lambda row: "reject: locked" if row[0] == "delete" else dies(row))
    desk.write(a=[2])
    with pytest.raises(KindSyncCrash):
        desk.run()
    desk.hold_reason = "paused"
    desk.write(d=[9])
    desk.run()
    desk.hold_reason, desk.api = None, InMemoryKindApi(crash_at_value(1))
    kill_twice(desk)
    assert [("insert", 2), ("delete", 1), ("delete", 1)] == change_values(desk.api.pop_received())
    desk.lose_queue()
    desk.api = InMemoryKindApi()
    assert [("delete", 1), ("insert", 9)] == change_values(desk.run_and_pop_received())


FROM_ONE_TO_TWO = {
    "merge": [("update_preimage", 1), ("update_postimage", 2)],
    # the second row may have arrived, too
    "tracked": [("delete", 1), ("delete", 2), ("insert", 2)],
}


@pytest.mark.parametrize("kind", FROM_ONE_TO_TWO)
def test_a_claimed_row_that_has_arrived_is_the_base_of_the_next_change(tmp_path: Path, kind: str) -> None:
    """A newer change waited next to it, so the snapshot has both. To insert the row again would duplicate it."""
    desk = KindSyncHarness(tmp_path, kind, batch_size=1)
    desk.deliver_values(z=[9])
    desk.write(a=[1])
    desk.api = InMemoryKindApi(crash_at_value(1))
    with pytest.raises(KindSyncCrash):
        desk.run()
    desk.hold_reason = "paused"
    desk.write(a=[2])
    desk.run()
    desk.hold_reason, desk.api = None, InMemoryKindApi(crash_at_value(2))
    kill_twice(desk)
    desk.lose_queue()
    desk.api = InMemoryKindApi()
    assert FROM_ONE_TO_TWO[kind] == change_values(desk.run_and_pop_received())


def test_a_rejected_delete_is_sent_before_rows_that_a_killed_run_queued(tmp_path: Path) -> None:
    """Its newer rows must not be sent without the delete. Otherwise the API would have the old row too."""
    desk = KindSyncHarness(tmp_path, "table", batch_size=1)
    desk.deliver_values(a=[1])
    dies = crash_at_value(7)
    desk.api = InMemoryKindApi(lambda row: "reject: locked" if row[0] == "delete" else dies(row))
    desk.write(a=[2], c=[7])
    kill_twice(desk)
    desk.write(d=[9])
    desk.api = InMemoryKindApi(crash_at_value(1))
    with pytest.raises(KindSyncCrash):
        desk.run()
    desk.lose_queue()
    desk.api = InMemoryKindApi()
    assert ("delete", 1) in change_values(desk.run_and_pop_received())


def test_deletes_that_were_rejected_in_the_newest_run_stay_dead_letters(tmp_path: Path) -> None:
    """Without new rows there is no reason to send them again. They wait for the user."""
    desk = KindSyncHarness(tmp_path, "table", batch_size=1)
    desk.deliver_values(a=[1])
    for changes in ({"a": [2], "c": [7]}, {"d": [9]}):
        desk.write(**changes)
        dies = crash_at_value(max(changes.values())[0])
        desk.api = InMemoryKindApi(lambda row, dies=dies: "reject: locked" if row[0] == "delete" else dies(row))
        kill_twice(desk)
    desk.lose_queue()
    desk.api = InMemoryKindApi()
    dead, rows = desk.run().queue.dead_units, desk.api.pop_received()
    assert (3, set()) == (dead, {row for row in rows if row[0] == "delete"})


# what the API has of a key; what is in flight when the process ends; what changes meanwhile, and back again
THERE_AND_BACK = {"merge": ([], [1], [2], [1]), "tracked": ([1], [], [2], [])}


@pytest.mark.parametrize("kind", THERE_AND_BACK)
def test_a_row_that_arrived_as_the_table_has_it_now_causes_no_call(tmp_path: Path, kind: str) -> None:
    """Other changes appeared and disappeared while the row was in flight. push() can do nothing with no rows."""
    desk = KindSyncHarness(tmp_path, kind, batch_size=1)
    before, frozen, *meanwhile = THERE_AND_BACK[kind]
    desk.deliver_values(z=[9], a=before)
    desk.write(a=frozen)
    desk.api = InMemoryKindApi(crash_at_value(1))
    with pytest.raises(KindSyncCrash):
        desk.run()
    desk.hold_reason = "paused"
    for values in meanwhile:
        desk.write(a=values)
        desk.run()
    desk.hold_reason, desk.api = None, InMemoryKindApi(crash_at_value(7))
    desk.write(c=[7])
    kill_twice(desk)
    desk.lose_queue()
    desk.api = InMemoryKindApi()
    desk.run()
    assert [[("insert", 7)]] == [change_values(call) for call in desk.api.received_calls]


def test_an_empty_mirror_is_sent_although_its_queue_is_lost(tmp_path: Path) -> None:
    """The mirror has no rows, but the call says that the API must have none."""
    desk = KindSyncHarness(tmp_path, "table", batch_size=0)
    desk.deliver_values(a=[1])
    desk.write(a=[])
    desk.hold_reason = "paused"
    desk.run()
    desk.hold_reason = None

    def end(parcel, journal):
        raise KindSyncCrash

    desk.api = end
    kill_twice(desk)
    desk.lose_queue()
    desk.api = InMemoryKindApi()
    desk.run()
    assert [[]] == desk.api.received_calls


def test_a_job_continues_although_the_table_has_what_the_api_has_again(tmp_path: Path) -> None:
    """The job will still change the API's row. Without the job, no run would know that the row must be sent again."""
    desk = KindSyncHarness(tmp_path, "merge", batch_size=1)
    desk.deliver_values(a=[1])
    desk.hold_reason = "paused"
    desk.write(a=[2])
    desk.run()
    with desk.sync.open_queue() as queue:
        batch = claim_batch(queue, size=10, number=1)
        assert batch
        store_job(queue, batch, Job('"J-1"', desk.now, desk.now + 1_000_000))
    desk.write(a=[1])
    desk.run()
    desk.hold_reason, desk.api = None, InMemoryKindApi(crash_at_value(7))
    desk.write(c=[7])
    kill_twice(desk)
    desk.lose_queue()
    desk.api = InMemoryKindApi()
    assert [("insert", 7)] == change_values(desk.run_and_pop_received())
    with desk.sync.open_queue() as queue:
        jobs = [batch.job.reference for batch in load_batches(queue) if batch.job]
    assert ['"J-1"'] == jobs
