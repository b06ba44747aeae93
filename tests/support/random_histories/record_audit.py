"""The records of a random history, with crashes while they are written, and a check of their completeness."""

import collections
import dataclasses
import random
from collections.abc import Iterable, Iterator
from pathlib import Path

import pyarrow.parquet as pq
from support.random_histories.fake_destinations import NEW_VALUE_TYPES, SimulatedCrashError

from ondatra_dagster.delivery.queue import unpublished_records
from ondatra_dagster.delivery.queue.queue_database import Queue
from ondatra_dagster.delivery.queue.unpublished_records import PushAttempt, parse_settled_rows
from ondatra_dagster.records.file_paths import RecordFileType
from ondatra_dagster.records.record_schema import INVALID_STATUSES, RecordOperation, SyncRecord
from ondatra_dagster.records.record_store import RecordStore
from ondatra_dagster.row_changes import ChangeType, FeedPage, FeedSegment, InvalidRow, RowChange
from ondatra_dagster.sync.record_publisher import RecordPublisher, store_invalid_rows

SYNC_ID = "sync.x"
PENDING_UNITS = "select key, version from unit"
KeyVersion = tuple[str, int]  # a delivery key, and the version of one of its changes


class CrashingTrackingStore(RecordStore):
    """A record store whose process may crash just before or just after it publishes a file."""

    rng: random.Random
    has_faults = True

    def publish_records(
        self, sync_id: str, run_id: str, batch_type: RecordFileType, number: int, records: Iterable[SyncRecord]
    ) -> str:
        self._maybe_crash()
        address = super().publish_records(sync_id, run_id, batch_type, number, records)
        self._maybe_crash()
        return address

    def _maybe_crash(self) -> None:
        if self.has_faults and self.rng.random() < 0.1:
            raise SimulatedCrashError


@dataclasses.dataclass
class RecordAudit:
    """The records of one history."""

    folder: Path
    rng: random.Random
    by_key: bool  # whether a record's identifier is its delivery key; otherwise the key is the rowid
    runs: int = 0
    added_invalid_rows: list[InvalidRow] = dataclasses.field(default_factory=list)
    enqueued_changes: dict[KeyVersion, list[RowChange]] = dataclasses.field(
        default_factory=dict
    )  # the changes that the queue got

    def __post_init__(self) -> None:
        self.store = CrashingTrackingStore(str(self.folder))
        self.store.rng = self.rng

    def add_invalid_row(self) -> None:
        """Add an invalid row, which is never sent, in its own version."""
        version = len(self.added_invalid_rows)
        reason = self.rng.choice(["NULL", "DUPLICATE"])
        self.added_invalid_rows.append(InvalidRow("", reason, version, version + 1, '{"id":null}'))

    def begin_run(self, queue: Queue) -> str:
        """Begin a run: publish first what earlier runs left."""
        for run_id in unpublished_records.open_runs(queue):
            self._publisher(queue, run_id).publish_all()
            unpublished_records.end_run(queue, run_id)
        self.runs += 1
        run_id = f"run-{self.runs:04}"
        unpublished_records.begin_run(queue, run_id, "{}")
        self._record_invalid_rows(queue, run_id)
        return run_id

    def end_run(self, queue: Queue, run_id: str) -> None:
        self._publisher(queue, run_id).publish_all()
        unpublished_records.end_run(queue, run_id)

    def maybe_publish(self, queue: Queue, run_id: str) -> None:
        """Publish now and then, as a file may become due at any time."""
        if self.rng.random() < 0.1:
            self._publisher(queue, run_id).publish_due(now=100.0)

    def remember_segment(self, segment: FeedSegment) -> FeedSegment:
        """Remember the segment's changes, and return the segment."""
        pages = [FeedPage(page.layout, list(page.changes)) for page in segment.pages]
        for page in pages:
            for change in page.changes:
                self.enqueued_changes.setdefault((change.key, change.version), []).append(change)
        return segment._replace(pages=pages)

    def find_problems(self, queue: Queue) -> list[str]:
        """Return each end that has several records, and a wrong number of invalid rows."""
        records = [*self._read_published_records(), *self._read_queued_records(queue)]
        ends = collections.Counter(_record_identity(record) for record in records)
        twice = [f"{end} has {number} records" for end, number in ends.items() if number > 1]
        invalid = [record for record in records if record["status"] in INVALID_STATUSES]
        expected_rows = [row for row in self.added_invalid_rows if row.version <= queue.invalid_watermark]
        wrong = [] if len(invalid) == len(expected_rows) else [f"{len(invalid)} of {len(expected_rows)} invalid rows"]
        return twice + wrong

    def find_unrecorded_changes(self, queue: Queue) -> list[KeyVersion]:
        """Return the newest changes of their keys whose outcome is unknown: neither settled nor pending."""
        records = [*self._read_published_records(), *self._read_queued_records(queue)]
        settled = {self._key_version(record) for record in records if record["status"] not in INVALID_STATUSES}
        pending = {(str(key), int(version)) for key, version in queue.store.fetch_rows(PENDING_UNITS)}
        versions: dict[str, list[int]] = collections.defaultdict(list)
        for key, version in sorted(self.enqueued_changes):
            versions[key].append(version)
        return [
            (key, version)
            for key, version in self.enqueued_changes
            if (key, version) not in settled | pending
            and version == versions[key][-1]  # otherwise a newer change has replaced it
            and not self._needs_no_record(key, versions[key], settled)
        ]

    def _needs_no_record(self, key: str, versions: list[int], settled_keys: set[KeyVersion]) -> bool:
        """Return whether the newest change only makes room with deletes, or restores what the API already had."""
        newest = self.enqueued_changes[key, versions[-1]]
        before = [self.enqueued_changes[key, version] for version in versions if (key, version) in settled_keys]
        makes_room = all(change.change_type is ChangeType.DELETE for change in newest)
        return makes_room or _new_payloads(newest) in [[], *map(_new_payloads, before)]

    def _record_invalid_rows(self, queue: Queue, run_id: str) -> None:
        upto, after = len(self.added_invalid_rows) - 1, queue.invalid_watermark
        if upto > after:
            attempt = PushAttempt(run_id=run_id, started_at=1.0, ended_at=1.0, max_attempts=0)
            store_invalid_rows(queue, self._read_new_invalid_rows(after), attempt, upto=upto)

    def _read_new_invalid_rows(self, after: int) -> Iterator[InvalidRow]:
        for row in self.added_invalid_rows:
            if row.version > after:
                if self.store.has_faults and self.rng.random() < 0.1:
                    raise SimulatedCrashError
                yield row

    def _publisher(self, queue: Queue, run_id: str) -> RecordPublisher:
        return RecordPublisher(queue, self.store, sync_id=SYNC_ID, run_id=run_id, operation=RecordOperation.UPSERT)

    def _read_published_records(self) -> list[dict[str, object]]:
        files = self.folder.glob("sync_tracking_datasets/1/*/*/*.parquet")
        return [row for file in files for row in pq.read_table(file, partitioning=None).to_pylist()]

    def _read_queued_records(self, queue: Queue) -> Iterator[dict[str, object]]:
        """Yield the records that only the queue has: a file that was chosen for some may be published already."""
        there = {(file.parent.name, file.name) for file in self.folder.glob("sync_tracking_datasets/1/*/*/*")}
        query = "select run_id, type, file, rows from settled"
        for run_id, kind, number, rows in queue.store.fetch_rows(query):
            if (run_id, f"{kind}.{number}.parquet") not in there:
                for row in parse_settled_rows(rows):
                    yield {
                        "sync_run_id": run_id,
                        "identifier": row.key,
                        "__ondatra_rowid": row.rowid,
                        "__ondatra_change_type": row.change_type,
                        "table_version": row.version,
                        "status": row.status,
                    }

    def _key_version(self, record: dict[str, object]) -> KeyVersion:
        name = "identifier" if self.by_key else "__ondatra_rowid"
        return str(record[name]), int(str(record["table_version"]))


def _record_identity(record: dict[str, object]) -> tuple[object, ...]:
    names = ("sync_run_id", "identifier", "__ondatra_rowid", "__ondatra_change_type", "table_version")
    # invalid rows come from another table, which has its own rowids and versions
    return (record["status"] in INVALID_STATUSES, *(record[name] for name in names))


def _new_payloads(changes: list[RowChange]) -> list[str]:
    return sorted(change.payload for change in changes if change.change_type in NEW_VALUE_TYPES)
