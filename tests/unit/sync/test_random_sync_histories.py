"""The random histories of whole syncs: an API has every kind of fault, and queues are lost and restored."""

import contextlib
import dataclasses
import random
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.random_histories.fake_destinations import (
    DestinationObjects,
    DestinationRow,
    FaultyDestination,
    KeyedObjects,
    RowidObjects,
    SimulatedCrashError,
    WholeContentObjects,
    read_change_type,
)
from support.random_histories.injected_faults import (
    FailingTrackingStore,
    FullDiskError,
    InvalidRowFeed,
    JobDestination,
    RecordKey,
)
from support.random_histories.random_seeds import new_seeds
from support.random_histories.random_sync_runs import HISTORY_COUNT, WHOLE_TABLE, SinkCase
from support.syncs.keyed_feed_table import KeyedFeedTable, random_steps
from support.syncs.kind_feed_table import KindFeedTable, random_kind_steps
from support.syncs.kind_sync_harness import KindSyncHarness

from ondatra_dagster.delivery.push.push_config import PushSettings
from ondatra_dagster.delivery.queue.dead_letter_reading_and_replay import replay_dead_letters, retry_waiting_now
from ondatra_dagster.delivery.queue.unpublished_records import RECORDS_DELETED, STATUS_SUCCEEDED, parse_settled_rows
from ondatra_dagster.errors import OtherStateFolderError, ResyncNeededError
from ondatra_dagster.row_changes import ChangeType
from ondatra_dagster.sync.recovery.queue_recovery import derive_unit_key
from ondatra_dagster.sync.recovery.queue_reset_by_resync_or_forget import ResyncOptions, resync_queue
from ondatra_dagster.sync.run_context import Ports, RunOptions, SourceState
from ondatra_dagster.sync.sync_definition import Sync
from ondatra_dagster.sync.sync_run import run_sync

KEYS = "abcdef"
STEPS = 18
SINKS = [
    SinkCase("merge", 2, 1),
    SinkCase("tracked", 3, 3),
    SinkCase("table", 2, 1),
    SinkCase("table", 100, 3),
    SinkCase("table", WHOLE_TABLE, 1),
    SinkCase("partition", 2, 3),
    SinkCase("partition", WHOLE_TABLE, 3),
    SinkCase("scd2", 2, 1),
    SinkCase("append", 2, 3),
]

IN_JOBS = {("merge", 2), ("tracked", 3), ("partition", 2), ("partition", WHOLE_TABLE)}
ENDED_AS_DELETED = "select rows from settled where type = ?"
JUDGED = ("merge", "scd2")  # kinds that insert a row once, also in a resync


class RandomSyncHistory:
    """A random history of one sync."""

    runs_at_last = 4
    count = HISTORY_COUNT // 2

    def __init__(self, sink: SinkCase, folder: Path, seed: str) -> None:
        self.rng = random.Random(f"{seed} {sink}")
        self.sink = sink
        self.harness = KindSyncHarness(folder, sink.kind_name, batch_size=sink.batch_size)
        self.table, self.store = a_table(sink)
        self.feed = InvalidRowFeed(self.table)
        chance = random.Random(f"API {seed} {sink}")
        self.destination = FaultyDestination(self.store, chance, stores_responses=chance.random() < 0.5)
        self.records = FailingTrackingStore(str(folder / "tracking"))
        self.records.state_folder = folder
        self.records.rng = random.Random(f"records {seed} {sink}")

    def history(self) -> Iterator[tuple[str, list[int]]]:
        if self.sink.kind.delivers_by_key:
            return random_steps(self.sink.shape, self.rng, keys=KEYS, steps=STEPS)
        return random_kind_steps(self.sink.kind, self.rng, keys=KEYS, count=STEPS)

    def run_history(self) -> None:
        for key, values in self.history():
            self.table.write(key, values)
            if self.rng.random() < 0.2:
                self.feed.add_invalid_row()
            if self.table.version and self.rng.random() < 0.6:
                if self.rng.random() < 0.3:
                    self.retry_waiting_rows()
                self.harness.hold_reason = "paused" if self.rng.random() < 0.3 else None
                self.run()
                if self.rng.random() < 0.25:
                    shutil.rmtree(self.harness.sync.queue_file.parent)
        self.harness.hold_reason = None

    def run(self) -> None:
        """Run the sync; the run may be killed."""
        self.harness.now += self.rng.choice([10, 10_000, 100_000])
        with contextlib.suppress(SimulatedCrashError, FullDiskError, OtherStateFolderError):
            run_sync(self.sync, self.ports, RunOptions(trigger="test"))

    def retry_waiting_rows(self) -> None:
        """Let an operator retry what is left; do nothing if there is no queue."""
        if self.harness.sync.queue_file.exists():
            with self.sync.open_queue() as queue:
                retry_waiting_now(queue)
                replay_dead_letters(queue, now=self.harness.now)

    def finish_without_faults(self) -> list[object]:
        """Let the API recover and send what is left; return what is then still in the queue."""
        self.destination.has_faults = self.records.has_faults = False
        for _ in range(self.runs_at_last):
            self.run()
            self.retry_waiting_rows()
        self.run()
        with self.sync.open_queue() as queue:
            return [*queue.store.fetch_rows("select * from unit"), *queue.store.fetch_rows("select * from batch")]

    def recorded_invalid_rowids(self) -> list[int]:
        """Return the rows that are recorded as invalid, in order."""
        return sorted(rowid for rowid, _ in self.records.read_invalid_rows(self.sync.id, since="", upto="~"))

    @property
    def sync(self) -> Sync:
        sync = self.harness.sync
        push = PushSettings(batch_size=self.sink.batch_size, max_attempts=3, max_concurrent=self.sink.max_concurrent)
        return dataclasses.replace(sync, push_config=dataclasses.replace(sync.push_config, push=push))

    @property
    def ports(self) -> Ports:
        return dataclasses.replace(
            self.harness.build_ports(),
            read_source=self.feed.source,
            feed=self.feed,
            open_push=lambda: contextlib.nullcontext(self.destination),
            record_store=self.records,
        )


class QueueLossHistory(RandomSyncHistory):
    """A history in which queues are lost often, older copies of them are restored, and resyncs are requested.

    Time passes within a run, so that records are published during it, and other runs start in between."""

    recorded_rows: frozenset[str] = frozenset()  # rows that the records say the API has
    concurrent_change: tuple[str, list[int]] | None = None  # a change between a run's read and its lock

    def __init__(self, sink: SinkCase, folder: Path, seed: str) -> None:
        super().__init__(sink, folder, seed)
        self.is_judged = sink.kind_name in JUDGED
        self.clock_random = random.Random(f"hours {seed} {sink}")
        calls_of = self.store.split_into_calls

        def judged(rows: list[DestinationRow]) -> list[list[DestinationRow]]:
            calls = calls_of(rows)
            for call in calls if self.is_judged else ():
                self._check_call(call)
            return calls

        self.store.split_into_calls = judged  # type: ignore[method-assign]

    def run_history(self) -> None:
        for key, values in self.history():
            self._change(key, values)
            for _ in range(self.rng.choice([0, 1, 1, 2, 3]) if self.table.version else 0):
                if self.rng.random() < 0.3:
                    self.retry_waiting_rows()
                self.harness.hold_reason = "paused" if self.rng.random() < 0.2 else None
                self.recorded_rows = self._recorded()
                if self.rng.random() < 0.12:
                    self._resync()
                    self._damage_queue()
                self.run()
                self._damage_queue()
        self.harness.hold_reason, self.is_judged = None, False

    def _change(self, key: str, values: list[int]) -> None:
        if self.rng.random() < 0.2:
            self.feed.add_invalid_row()
        if self.table.version and self.rng.random() < 0.1:
            self.recorded_rows, self.concurrent_change = self._recorded(), (key, values)
            self.run()
        else:
            self.table.write(key, values)

    def _source(self) -> SourceState:
        state = self.feed.source()
        change, self.concurrent_change = self.concurrent_change, None
        if change:
            self.table.write(*change)
            self.run()
        return state

    def _clock(self) -> float:
        self.harness.now += self.clock_random.choice([0, 0, 0, 0, 100])
        return self.harness.now

    @property
    def ports(self) -> Ports:
        return dataclasses.replace(super().ports, read_source=self._source, clock=self._clock)

    def _resync(self) -> None:
        with contextlib.suppress(SimulatedCrashError, FullDiskError, ResyncNeededError, OtherStateFolderError):
            resync_queue(self.sync, self.ports, ResyncOptions(deletes_missing_rows=self.rng.random() < 0.5))

    def _damage_queue(self) -> None:
        """Do to the queue what may happen to it between two runs."""
        queue = self.harness.sync.queue_file.parent
        copy = queue.with_name("copy")
        what = self.rng.random()
        if what < 0.1 and queue.exists():
            shutil.rmtree(copy, ignore_errors=True)
            shutil.copytree(queue, copy)
        elif what < 0.35:
            shutil.rmtree(queue, ignore_errors=True)
        elif what < 0.42 and copy.exists():
            shutil.rmtree(queue, ignore_errors=True)
            shutil.copytree(copy, queue)

    def _recorded(self) -> frozenset[str]:
        """Return the rows whose newest record says that they arrived and weren't deleted."""
        newest: dict[str, tuple[str, int, bool]] = {}
        for end in self.records.read_delivered_since(self.sync.id, None):
            if end.status == STATUS_SUCCEEDED:
                name = end.identifier if self.sync.delivers_by_key else str(end.rowid)
                mark = (end.run_id, end.table_version, end.change_type != ChangeType.DELETE)
                newest[name] = max(newest.get(name, mark), mark)
        return frozenset(name for name, (_, _, is_there) in newest.items() if is_there) - self._delete_records()

    def _delete_records(self) -> frozenset[str]:
        """Return the rows whose delete arrived in a killed run and is in no file yet; the queue knows them."""
        if not self.harness.sync.queue_file.exists():
            return frozenset()
        with self.sync.open_queue() as queue:
            ended = [
                row
                for (text,) in queue.store.fetch_rows(ENDED_AS_DELETED, (RECORDS_DELETED,))
                for row in parse_settled_rows(text)
            ]
        return frozenset(
            row.key if self.sync.delivers_by_key else str(row.rowid) for row in ended if row.status == STATUS_SUCCEEDED
        )

    def _check_call(self, call: list[DestinationRow]) -> None:
        """Check that a row that is recorded as present is sent as an update; an insert would be a second object."""
        column = "id" if self.sync.delivers_by_key else "__ondatra_rowid"
        name, kinds = str(call[0][column]), [read_change_type(row) for row in call]
        if kinds == [ChangeType.DELETE]:
            self.recorded_rows -= {name}
        elif kinds == [ChangeType.INSERT] and name in self.recorded_rows:
            self.store.violations.append(f"insert of {name}, which is recorded as there")


class JobHistory(QueueLossHistory):
    """A history in which the API makes jobs of batches."""

    runs_at_last = 12  # a run doesn't wait long for a job

    def __init__(self, sink: SinkCase, folder: Path, seed: str) -> None:
        super().__init__(sink, folder, seed)
        chance = random.Random(f"jobs {seed} {sink}")
        self.job_destination = JobDestination(
            self.destination, chance, self._read_succeeded_records, on_deleted=self._forget_recorded
        )

    def _forget_recorded(self, key: str) -> None:
        """Forget the key: its delete was sent in an earlier run, and is recorded now, because the job has ended."""
        self.recorded_rows -= {key}

    def run(self) -> None:
        self.job_destination.recorded_at_start = self._read_succeeded_records()
        super().run()

    def _read_succeeded_records(self) -> frozenset[RecordKey]:
        ends = self.records.read_delivered_since(self.sync.id, None)
        return frozenset((end.run_id, derive_unit_key(self.sync, end), end.table_version) for end in ends)

    @property
    def sync(self) -> Sync:
        sync = super().sync
        push = dataclasses.replace(sync.push_config.push, batch_mode="async", poll_timeout_seconds=200_000)
        functions = frozenset({"push", "poll"})
        return dataclasses.replace(
            sync, push_config=dataclasses.replace(sync.push_config, push=push, functions=functions)
        )

    @property
    def ports(self) -> Ports:
        return dataclasses.replace(super().ports, open_push=lambda: contextlib.nullcontext(self.job_destination))


class MovingStateHistory(QueueLossHistory):
    """A history that continues in other state folders: on new disks, in copies and backups, on two machines in turn.

    While one of them prepares a run, another one may begin and end its run."""

    count = max(1, HISTORY_COUNT // 8)

    def __init__(self, sink: SinkCase, folder: Path, seed: str) -> None:
        super().__init__(sink, folder, seed)
        self.folder = folder
        self.state_folders = [folder / "machine 0", folder / "machine 1"]
        self._use_state_folder(self.state_folders[0])

    def _use_state_folder(self, place: Path) -> None:
        self.harness.state = self.records.state_folder = place

    def _damage_queue(self) -> None:
        super()._damage_queue()
        place, backup, what = self.harness.state, self.folder / "backup", self.rng.random()
        if what < 0.1:
            shutil.rmtree(place, ignore_errors=True)
        elif what < 0.2 and place.exists():
            shutil.rmtree(backup, ignore_errors=True)
            shutil.copytree(place, backup)
        elif what < 0.3 and backup.exists():
            shutil.rmtree(place, ignore_errors=True)
            shutil.copytree(backup, place)
        elif what < 0.5:
            self._use_state_folder(self._parse_other_field())

    def _parse_other_field(self) -> Path:
        return next(place for place in self.state_folders if place != self.harness.state)

    def _source(self) -> SourceState:
        if self.concurrent_change and self.rng.random() < 0.5:
            here = self.harness.state
            self._use_state_folder(self._parse_other_field())
            state = super()._source()
            self._use_state_folder(here)
            return state
        return super()._source()


def a_table(sink: SinkCase) -> tuple[KeyedFeedTable | KindFeedTable, DestinationObjects]:
    if sink.kind.delivers_by_key and sink.kind_name != "scd2":  # keys may be removed, as by a full refresh
        by_key = KeyedFeedTable(sink.shape)
        return by_key, KeyedObjects(by_key)
    table = KindFeedTable(sink.kind_name, by_key=sink.delivers_by_key)
    return table, WholeContentObjects(table) if sink.batch_size == WHOLE_TABLE else RowidObjects(table)


LIVES = [
    *((sink, lived) for sink in SINKS for lived in (RandomSyncHistory, QueueLossHistory, MovingStateHistory)),
    *((sink, JobHistory) for sink in SINKS if (sink.kind_name, sink.batch_size) in IN_JOBS),
]


@pytest.mark.parametrize(
    ("sink", "lived"),
    LIVES,
    ids=[f"{sink.kind_name}-{sink.batch_size}-{sink.max_concurrent}-{lived.__name__}" for sink, lived in LIVES],
)
def test_after_any_history_the_api_has_the_rows_of_the_table(
    sink: SinkCase, lived: type[RandomSyncHistory], tmp_path: Path
) -> None:
    """Snapshots and records are enough to continue from, whenever the queue is lost, whatever was in flight.

    No row that is recorded as present is created twice, however often a queue is lost or restored.
    The seed decides the faults, but not which thread is first: a failure may need several replays."""
    for seed in new_seeds(lived.count):
        life = lived(sink, tmp_path / seed, seed)
        life.run_history()
        assert [] == life.finish_without_faults(), f"seed {seed}"
        assert life.store.expected_objects() == life.store.objects, f"seed {seed}"
        assert [] == life.store.violations, f"seed {seed}"
        assert [row.rowid for row in life.feed.added_invalid_rows] == life.recorded_invalid_rowids(), f"seed {seed}"
