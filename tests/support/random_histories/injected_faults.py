"""The faults of whole syncs in random histories: failing tracking stores, invalid rows, and jobs."""

import dataclasses
import itertools
import random
from collections.abc import Callable, Iterator
from pathlib import Path

from support.random_histories.fake_destinations import FaultyDestination, SimulatedCrashError
from support.random_histories.record_audit import CrashingTrackingStore
from support.syncs.keyed_feed_table import KeyedFeedTable
from support.syncs.kind_feed_table import KindFeedTable

from ondatra_dagster.delivery.push.push_interface import PushBatch, PushResult
from ondatra_dagster.delivery.queue.snapshot_and_restore import QueueSnapshot
from ondatra_dagster.delivery.response_journal import ResponseJournal
from ondatra_dagster.delivery.row_outcome import NO_ROW_KEY, RowOutcome
from ondatra_dagster.errors import StateError
from ondatra_dagster.records.metadata_and_heartbeat_format import RunMetadata
from ondatra_dagster.row_changes import ChangeType, FeedSegment, InvalidRow
from ondatra_dagster.storage.state_folder_id import StateId, ensure_state_id
from ondatra_dagster.sync.run_context import SourceState

RecordKey = tuple[str, str, int]  # the run of the record, the delivery key, the version


class FullDiskError(StateError):
    """An error that simulates a full disk."""


class FailingTrackingStore(CrashingTrackingStore):
    """A tracking store whose process may crash at the write of any file, or whose disk is full."""

    state_folder: Path

    @property
    def state(self) -> StateId:  # type: ignore[override]
        return ensure_state_id(self.state_folder)  # a history may continue in another state folder

    def finish_run(self, sync_id: str, run_id: str, metadata: RunMetadata) -> None:
        self._maybe_crash()
        super().finish_run(sync_id, run_id, metadata)

    def write_snapshot(self, snapshot: QueueSnapshot) -> None:
        self._maybe_crash()
        super().write_snapshot(snapshot)

    def _maybe_crash(self) -> None:
        if self.has_faults and self.rng.random() < 0.08:
            raise self.rng.choice([SimulatedCrashError, FullDiskError])


@dataclasses.dataclass
class InvalidRowFeed:
    """A table's feed with invalid rows in addition, each in its own version."""

    table: KeyedFeedTable | KindFeedTable
    added_invalid_rows: list[InvalidRow] = dataclasses.field(default_factory=list)

    def segments(self, after: int | None, upto: int) -> Iterator[FeedSegment]:
        return self.table.segments(after, upto)

    def invalid_rows(self, after: int, upto: int) -> Iterator[InvalidRow]:
        yield from (row for row in self.added_invalid_rows if after < row.version <= upto)

    def add_invalid_row(self) -> None:
        version = len(self.added_invalid_rows)
        self.added_invalid_rows.append(InvalidRow("", "NULL", version, version + 1, '{"id":null}'))

    def source(self) -> SourceState:
        there = len(self.added_invalid_rows)
        return dataclasses.replace(self.table.source(), invalid_version=there - 1, invalid_count=there)


@dataclasses.dataclass
class JobDestination:
    """An API that makes a job of each batch. It carries the job out at once, and gives its outcomes to a poll."""

    destination: FaultyDestination
    rng: random.Random
    read_recorded: Callable[[], frozenset[RecordKey]]  # returns what is recorded now
    recorded_at_start: frozenset[RecordKey] = frozenset()  # what was recorded when the run began
    job_numbers: Iterator[int] = dataclasses.field(default_factory=itertools.count)  # several threads use it
    outcomes: dict[str, dict[str, RowOutcome]] = dataclasses.field(default_factory=dict)  # by job
    recorded_at_submit: dict[str, frozenset[RecordKey]] = dataclasses.field(default_factory=dict)
    on_deleted: Callable[[str], None] = lambda key: None  # gets each key that a job has deleted

    def __call__(self, parcel: PushBatch, journal: ResponseJournal) -> PushResult:
        pushed = self.destination(parcel, journal)
        if pushed.unanswered_calls:
            return pushed
        job = f'"J-{next(self.job_numbers)}"'
        self.outcomes[job], self.recorded_at_submit[job] = dict(pushed.outcomes), self.read_recorded()
        return PushResult({}, calls=1, job_reference=job, is_open=True)

    def poll(self, parcel: PushBatch, job: str) -> PushResult:
        ended = {end[1:] for end in self.recorded_at_start - self.recorded_at_submit[job]}
        if ended_units := ended & {(unit.key, unit.version) for unit in parcel.units}:
            self.destination.objects_store.violations.append(f"{ended_units} asked about once more")
        if self.destination.has_faults and self.rng.random() < 0.1:
            raise SimulatedCrashError
        if self.destination.has_faults and self.rng.random() < 0.4:
            return PushResult({}, calls=1, is_open=True)
        outcomes = self.outcomes[job]
        for unit in parcel.units:
            delete_keys = [key for key in unit.result_keys if key.endswith(f":{ChangeType.DELETE}")]
            if delete_keys == unit.result_keys and all(outcomes[key].is_delivered for key in delete_keys):
                self.on_deleted(unit.key)
        return PushResult({key: outcomes[key] for key in (*parcel.result_keys, NO_ROW_KEY) if key in outcomes}, calls=1)
