"""The jobs of a lost queue: each row stays with its job until the job has ended, and no longer."""

import dataclasses
from pathlib import Path

import pytest
from support.syncs.kind_sync_harness import InMemoryKindApi, KindSyncCrash, KindSyncHarness, ReceivedRow, change_values

from ondatra_dagster.delivery.push.push_interface import PushBatch, PushResult
from ondatra_dagster.delivery.queue.async_jobs import store_job
from ondatra_dagster.delivery.queue.claimed_batches import Job, claim_batch, load_batches
from ondatra_dagster.delivery.queue.snapshot_and_restore import QueueSnapshot
from ondatra_dagster.delivery.row_outcome import RowOutcome
from ondatra_dagster.records.record_store import RecordStore
from ondatra_dagster.sync.run_context import RunOptions
from ondatra_dagster.sync.sync_definition import Sync
from ondatra_dagster.sync.sync_run import run_sync

DAYS = 90 * 24 * 3600.0
OPEN = "open"


class JobApi(InMemoryKindApi):
    """An API that gives the outcome of each row of a job, or answers that it still works on the job."""

    def __init__(self, answer=lambda row: "ok", says=lambda key: "ok") -> None:
        super().__init__(answer)
        self.says = says
        self.polled_keys: list[list[str]] = []

    def poll(self, parcel: PushBatch, reference: str) -> PushResult:
        keys = [unit.key for unit in parcel.units]
        self.polled_keys.append(keys)
        statuses = {result: self.says(unit.key) for unit in parcel.units for result in unit.result_keys}
        if OPEN in statuses.values():
            return PushResult({}, calls=1, is_open=True)
        return PushResult({result: RowOutcome.parse_status(status) for result, status in statuses.items()}, calls=1)


class LostJobHarness(KindSyncHarness):
    @property
    def sync(self) -> Sync:
        sync = super().sync
        push = dataclasses.replace(sync.push_config.push, poll_timeout_seconds=DAYS)
        config = dataclasses.replace(sync.push_config, push=push, functions=frozenset({"push", "poll"}))
        return dataclasses.replace(sync, push_config=config)

    def begin_job(self, **values: list[int]) -> None:
        """Start a job for these rows, which haven't been sent yet."""
        self.hold_reason = "paused"
        self.write(**values)
        self.run()
        with self.sync.open_queue() as queue:
            batch = claim_batch(queue, size=10, number=1)
            assert batch
            store_job(queue, batch, Job('"J-1"', self.now, self.now))
        self.hold_reason = None

    def wait(self, **values: list[int]) -> None:
        """Let changes wait next to the job, and write a queue snapshot with both."""
        self.api = JobApi(says=lambda key: OPEN)
        self.hold_reason = "paused"
        self.write(**values)
        self.run()
        self.hold_reason = None

    def jobs(self) -> list[list[str]]:
        with self.sync.open_queue() as queue:
            return [[unit.key for unit in batch.units] for batch in load_batches(queue) if batch.job]


def die(row: ReceivedRow) -> str:
    raise KindSyncCrash


def end_and_die(harness: LostJobHarness, says) -> None:
    """Run until the job has ended, crash at the next row, and lose the queue; the job's outcomes are recorded."""
    harness.api = JobApi(die, says)
    for _ in range(2):
        with pytest.raises(KindSyncCrash):
            harness.run()
    harness.lose_queue()
    harness.api = JobApi()


@pytest.mark.parametrize(
    ("said", "sent"), [("ok", [("update_preimage", 1), ("update_postimage", 2)]), ("reject: no", [("insert", 2)])]
)
def test_a_row_whose_job_has_ended_continues_without_the_job(tmp_path: Path, said: str, sent: list[object]) -> None:
    """A newer change of the row waited next to the job, and the API may have forgotten the job long ago."""
    desk = LostJobHarness(tmp_path, "merge")
    desk.begin_job(a=[1])
    desk.wait(a=[2])
    end_and_die(desk, lambda key: said)
    assert (sent, []) == (change_values(desk.run_and_pop_received()), desk.api.polled_keys)


def test_only_the_rows_without_an_outcome_are_polled(tmp_path: Path) -> None:
    """One of the other rows has its newest values, one was rejected, and one continues with a newer change."""
    desk = LostJobHarness(tmp_path, "merge")
    desk.begin_job(a=[1], b=[5], c=[7], d=[9])
    desk.wait(c=[8])
    statuses = {"a": "ok", "b": "reject: no", "c": "ok", "d": "error: later"}
    end_and_die(desk, lambda key: statuses[key])
    summary = desk.run()
    assert [["d"]] == desk.api.polled_keys
    assert [("update_preimage", 7), ("update_postimage", 8)] == change_values(desk.api.pop_received())
    assert (1, 0) == (summary.queue.dead_units, summary.queue.depth)


class DyingStore(RecordStore):
    def write_snapshot(self, snapshot: QueueSnapshot) -> None:
        raise KindSyncCrash


def test_a_job_keeps_its_rows_although_other_rows_get_their_numbers(tmp_path: Path) -> None:
    """The queue gives the number of a removed row to the next row. The job's outcome must not apply to that row."""
    desk = LostJobHarness(tmp_path, "merge")
    desk.begin_job(a=[1], b=[5])
    desk.wait()
    desk.api = JobApi(says={"a": "error: later", "b": "ok"}.__getitem__)
    desk.now += 10_000
    dying = dataclasses.replace(desk.build_ports(), record_store=DyingStore(str(desk.state / "tracking")))
    with pytest.raises(KindSyncCrash):
        run_sync(desk.sync, dying, RunOptions(trigger="test"))
    desk.lose_queue()
    desk.api = JobApi(die, says=lambda key: OPEN)
    desk.write(e=[9])
    with pytest.raises(KindSyncCrash):
        desk.run()
    assert [["a"]] == desk.jobs()
