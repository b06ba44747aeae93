"""The records of a sync in files and in the queue: each outcome is found once, whatever a run does meanwhile."""

import dataclasses
import random
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from support.random_histories.random_seeds import new_random, new_seeds
from support.random_histories.random_sync_runs import HISTORY_COUNT
from support.syncs.kind_sync_harness import KindSyncHarness

from ondatra_dagster.delivery.queue import unpublished_records
from ondatra_dagster.delivery.queue.enqueue_changes import enqueue_segment
from ondatra_dagster.delivery.queue.queue_database import Queue
from ondatra_dagster.delivery.queue.unpublished_records import (
    RECORDS_DELETED,
    RECORDS_INVALID,
    RECORDS_UPDATED,
    PushAttempt,
    SettledRow,
    store_settled_rows,
)
from ondatra_dagster.delivery.row_outcome import RowOutcome
from ondatra_dagster.errors import SelectionError
from ondatra_dagster.records.file_paths import RecordFileId
from ondatra_dagster.records.record_query import RecordQuery, RecordStage, ResultRecord
from ondatra_dagster.records.record_schema import RecordOperation
from ondatra_dagster.records.record_store import RecordStore
from ondatra_dagster.records.search_result_chunks_and_reason_counts import iterate_records
from ondatra_dagster.row_changes import Column, Layout
from ondatra_dagster.sync.record_publisher import RecordPublisher
from ondatra_dagster.sync.record_search import count_records, find_records

STEPS = 15
LAYOUT = Layout((Column("name", "string"),))
STATUS = {
    RECORDS_UPDATED: ("succeeded", "rejected"),
    RECORDS_DELETED: ("succeeded",),
    RECORDS_INVALID: ("NULL", "DUPLICATE"),
}


@pytest.fixture
def harness(harness_at_each_location):
    """Return a sync at each location: a bucket must do what a folder does."""
    return harness_at_each_location


def find(harness, **asked: object) -> list[ResultRecord]:
    return list(iterate_records(find_records(harness.sync, harness.tracking, RecordQuery(**asked))))


def told(records: list[ResultRecord]) -> list[tuple[str, str, str]]:
    return [(record.status, record.identifier, record.change_type) for record in records]


def test_every_row_is_found_in_whatever_state_it_is(harness) -> None:
    """Rows are invalid, rejected, delivered, waiting for their next try, or not tried yet."""
    harness.api.choose_outcome = lambda row: RowOutcome.parse_status(
        {"Bad": "reject: no", "Busy": "error: busy"}.get(str(row["name"]), "ok")
    )
    harness.contacts.add_invalid_row("DUPLICATE")
    harness.contacts.write(a1="Ada", b2="Bad", c3="Busy")
    harness.run()

    first, *others = told(find(harness))
    assert ("waiting", "3", "insert") == first
    assert {("succeeded", "1", "insert"), ("rejected", "2", "insert"), ("DUPLICATE", "", "insert")} == set(others)
    (waiting,) = find(harness, stage=RecordStage.WAITING)
    assert (1, "busy", None, '{"id":3,"name":"Busy"}') == (
        waiting.attempts,
        waiting.status_message,
        waiting.run_id,
        waiting.payload,
    )
    assert waiting.next_try_at is not None
    assert [("rejected", "2", "insert")] == told(find(harness, stage=RecordStage.REJECTED))
    assert [("DUPLICATE", "", "insert")] == told(find(harness, stage=RecordStage.INVALID))
    assert [] == find(harness, stage=RecordStage.PENDING)


def test_waiting_rows_are_shown_with_the_newest_run(harness) -> None:
    """Older runs have nothing to do with them any more."""
    harness.contacts.write(a1="Ada")
    harness.run()
    harness.api.is_api_down = True
    harness.contacts.write(b2="Bob")
    harness.run()
    first, second = harness.tracking.list_runs("sync.contacts")
    assert [("succeeded", "1", "insert")] == told(find(harness, run_id=first))
    assert [("waiting", "2", "insert")] == told(find(harness, run_id=second))
    assert [] == find(harness, run_id=first, stage=RecordStage.WAITING)
    assert [("waiting", "2", "insert"), ("succeeded", "1", "insert")] == told(find(harness))
    assert [("succeeded", "1", "insert")] == told(find(harness, offset=1, limit=5))
    assert [("waiting", "2", "insert")] == told(find(harness, limit=1))


def test_without_a_queue_the_records_in_files_are_shown(harness) -> None:
    """The queue was lost or forgotten. Before the first run there is neither a queue nor a file."""
    assert [] == find(harness)
    harness.contacts.write(a1="Ada")
    harness.run()
    harness.sync.queue_file.unlink()
    assert [("succeeded", "1", "insert")] == told(find(harness))


def test_waiting_units_are_shown_in_the_format_of_the_queue(tmp_path: Path) -> None:
    """The model's kind may have changed since. Then nothing is sent, and the user looks at what waits."""
    desk = KindSyncHarness(tmp_path, "table", batch_size=100)
    desk.api.choose_status = lambda row: "error: later"
    desk.write(a=[1], b=[5])
    desk.run()
    told_before = told(find(desk, stage=RecordStage.WAITING))
    assert ["waiting", "waiting"] == [status for status, _, _ in told_before]
    for kind, batch_size in (("table", 0), ("merge", 100), ("scd2", 100)):
        desk.kind, desk.batch_size = kind, batch_size
        assert told_before == told(find(desk, stage=RecordStage.WAITING))


def test_an_unknown_run_is_refused_with_the_nearest_one(harness) -> None:
    """A letter of an id is lost quickly, and users mostly look for the newest runs."""
    with pytest.raises(SelectionError, match="no records of a run 'x'; no run has left any"):
        find(harness, run_id="x")
    for name in ("Ada", "Bob"):
        harness.contacts.write(a1=name)
        harness.run()
    first, second = harness.tracking.list_runs("sync.contacts")
    with pytest.raises(SelectionError) as refusal:
        find(harness, run_id=second[:-1])
    assert f"did you mean '{second}'? the newest runs are {second}, {first}" in str(refusal.value)
    with pytest.raises(SelectionError):
        find(harness, run_id="x", stage=RecordStage.PENDING)


@dataclasses.dataclass
class RandomRunProgress:
    """Runs that settle, publish, are interrupted and end in any order; `recorded_ends` has every outcome."""

    harness: Any
    queue: Queue
    rng: random.Random
    run_id: str = ""
    runs: int = 0
    rows: int = 0
    recorded_ends: list[tuple[str, str, str]] = dataclasses.field(default_factory=list)  # run, status, identifier

    def step(self) -> None:
        if not self.run_id:
            self.begin()
        self.rng.choice((self.resolve_alerts, self.resolve_alerts, self.choose, self.publish_records, self.end))()

    def begin(self) -> None:
        self.runs += 1
        self.run_id = f"20261118T12{self.runs:02}00Z-abcdef"
        with self.queue.store.write_transaction():
            self.queue.write_meta("last_run", self.run_id)
            unpublished_records.begin_run(self.queue, self.run_id, "{}")

    def resolve_alerts(self) -> None:
        kind = self.rng.choice((RECORDS_UPDATED, RECORDS_DELETED, RECORDS_INVALID))
        rows = []
        for _ in range(self.rng.randrange(1, 4)):
            self.rows += 1
            status = self.rng.choice(STATUS[kind])
            rows.append(SettledRow(str(self.rows), 1, "insert", 1, status, None, 1, '["x"]'))
            self.recorded_ends.append((self.run_id, status, str(self.rows)))
        attempt = PushAttempt(run_id=self.run_id, started_at=1.0, ended_at=float(self.rows), max_attempts=8)
        with self.queue.store.write_transaction():
            store_settled_rows(self.queue, kind, rows, attempt)

    def choose(self) -> None:
        """Assign rows to a file; then the process ends."""
        kind = self.rng.choice((RECORDS_UPDATED, RECORDS_DELETED, RECORDS_INVALID))
        unpublished_records.assign_rows_to_file(self.queue, self.run_id, kind, max_rows=3)

    def publish_records(self) -> None:
        """Write the assigned files; for some of them the process ends before the queue notes it."""
        for file in unpublished_records.read_assigned_files(self.queue, self.run_id):
            if self.rng.random() < 0.5:
                self.publisher()._publish_file(file)
            else:
                self.write(file)

    def write(self, file: unpublished_records.RecordFile) -> None:
        """Write the file; then the process ends."""
        records = self.publisher()._read_records(file)
        self.harness.tracking.publish_records("sync.contacts", file.run_id, file.type, file.number, records)

    def end(self) -> None:
        self.publisher().publish_all()
        unpublished_records.end_run(self.queue, self.run_id)
        self.run_id = ""

    def publisher(self) -> RecordPublisher:
        return RecordPublisher(
            self.queue,
            self.harness.tracking,
            sync_id="sync.contacts",
            run_id=self.run_id,
            operation=RecordOperation.UPSERT,
        )


class ConcurrentlyWrittenStore(RecordStore):
    """A store that others write at the same time: something may happen at each read."""

    def __init__(self, run_progress: RandomRunProgress, happens: Callable[[], None] | None = None) -> None:
        super().__init__(str(run_progress.harness.state / "tracking"))
        self._life = run_progress
        self._draw_fault = happens or self._anything

    def list_runs(self, sync_id: str) -> tuple[str, ...]:
        runs = super().list_runs(sync_id)
        self._draw_fault()
        return runs

    def list_record_files(self, sync_id: str, run_id: str) -> list[RecordFileId]:
        self._draw_fault()
        return super().list_record_files(sync_id, run_id)

    def _anything(self) -> None:
        # the queue belongs to the main thread
        while threading.current_thread() is threading.main_thread() and self._life.rng.random() < 0.6:
            self._life.step()


@pytest.fixture
def run_progress(harness) -> Iterator[RandomRunProgress]:
    with harness.sync.open_queue() as queue:
        queue.store_layout(LAYOUT)
        life = RandomRunProgress(harness, queue, random.Random(1))
        life.begin()
        yield life


def test_a_file_that_is_not_noted_in_the_queue_counts_once(harness, run_progress: RandomRunProgress) -> None:
    """Its rows are in the queue until then, because of crashes."""
    run_progress.resolve_alerts()
    for kind in (RECORDS_UPDATED, RECORDS_DELETED, RECORDS_INVALID):
        if file := unpublished_records.assign_rows_to_file(run_progress.queue, run_progress.run_id, kind):
            run_progress.write(file)
    run_progress.resolve_alerts()
    assert len(run_progress.recorded_ends) == len(find(harness))


def test_a_run_that_begins_after_the_search_is_not_shown(harness, run_progress: RandomRunProgress) -> None:
    """The rows that it delivers were pending when the search began, and are shown as pending."""
    harness.contacts.write(a1="Ada")
    enqueue_segment(run_progress.queue, next(harness.contacts.segments(None, 1)), now=1.0)

    def delivered() -> None:
        if run_progress.runs == 1 and looked:
            run_progress.end()
            run_progress.begin()
            run_progress.resolve_alerts()
            run_progress.end()
        looked.append(True)

    looked: list[bool] = []
    records = iterate_records(
        find_records(harness.sync, ConcurrentlyWrittenStore(run_progress, delivered), RecordQuery())
    )
    assert [("pending", "1", "insert")] == told(list(records))


@pytest.mark.parametrize("tracking_location", ["folder"], indirect=True)
def test_no_outcome_is_missed_or_shown_twice_while_runs_are_in_progress(harness) -> None:
    """Rows move from the queue to files between any two reads. The result is all that had ended by one moment."""
    for seed in new_seeds(HISTORY_COUNT):
        own = dataclasses.replace(harness, state=harness.state / seed, tracking_location=None)
        with own.sync.open_queue() as queue:
            queue.store_layout(LAYOUT)
            life = RandomRunProgress(own, queue, random.Random(seed))
            store = ConcurrentlyWrittenStore(life)
            for _ in range(STEPS):
                life.step()
                search = RecordQuery(stage=life.rng.choice((None, RecordStage.REJECTED, RecordStage.INVALID)))
                before = len(life.recorded_ends)
                records = list(iterate_records(find_records(own.sync, store, search)))
                answer = sorted((record.run_id, record.status, record.identifier) for record in records)
                moments = range(before, len(life.recorded_ends) + 1)
                assert answer in [
                    sorted(
                        record_end
                        for record_end in life.recorded_ends[:moment]
                        if search.matches(record_end[2], record_end[1], "", None)
                    )
                    for moment in moments
                ], f"seed {seed}"


def test_results_are_counted_while_a_run_is_in_progress(harness, run_progress: RandomRunProgress) -> None:
    """The records are in files, in the queue, and on the way from one to the other."""
    run_progress.rng = new_random("counted")
    for _ in range(STEPS):
        run_progress.step()
        for search in (
            RecordQuery(),
            RecordQuery(stage=RecordStage.REJECTED),
            RecordQuery(run_id=None, change_type="insert"),
        ):
            records = list(iterate_records(find_records(harness.sync, harness.tracking, search)))
            assert len(records) == count_records(harness.sync, harness.tracking, search)
            limited = dataclasses.replace(search, limit=1, offset=1)
            assert len(records) == count_records(harness.sync, harness.tracking, limited)


def test_a_search_does_not_block_a_run(harness) -> None:
    """While the user reads the results, a run can empty the write-ahead log of its queue."""
    harness.contacts.write(a1="Ada", b2="Bob")
    harness.api.is_api_down = True
    harness.run()
    parts = find_records(harness.sync, harness.tracking, RecordQuery())
    with harness.sync.open_queue() as queue:
        queue.write_meta("anything", 1)
        ((is_busy, _, _),) = queue.store.fetch_rows("pragma wal_checkpoint(truncate)")
    assert (0, 2) == (is_busy, len(list(iterate_records(parts))))
