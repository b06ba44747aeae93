"""What is kept of a life's rows, with kills while it is kept; and whether every change is accounted for."""

import collections
import dataclasses
import random
from collections.abc import Iterable, Iterator
from pathlib import Path

import pyarrow.parquet as pq
from support.destinations import COMES, KilledError

from ondatra_dagster.changes import Change, ChangeType, FeedPage, InvalidRow, Segment
from ondatra_dagster.delivery.queue import publication
from ondatra_dagster.delivery.queue.settled import Attempt, read_settled
from ondatra_dagster.delivery.queue.tables import Queue
from ondatra_dagster.sync.records import Publisher, keep_invalid
from ondatra_dagster.tracking.addresses import BatchType
from ondatra_dagster.tracking.record import INVALID, Operation, SyncRecord
from ondatra_dagster.tracking.store import TrackingStore

SYNC = "sync.x"
UNITS = "select key, version from unit"
Named = tuple[str, int]  # a delivery key, and the version of one of its changes


class MortalStore(TrackingStore):
    """One whose process may end just before a file is there, or just after."""

    chance: random.Random
    faults = True

    def publish(
        self, sync_id: str, run_id: str, batch_type: BatchType, number: int, records: Iterable[SyncRecord]
    ) -> str:
        self._may_die()
        address = super().publish(sync_id, run_id, batch_type, number, records)
        self._may_die()
        return address

    def _may_die(self) -> None:
        if self.faults and self.chance.random() < 0.1:
            raise KilledError


@dataclasses.dataclass
class Books:
    """Those of one life."""

    folder: Path
    chance: random.Random
    by_key: bool  # whether a record's identifier is its delivery key; else that is the rowid
    runs: int = 0
    set_aside: list[InvalidRow] = dataclasses.field(default_factory=list)
    taken: dict[Named, list[Change]] = dataclasses.field(default_factory=dict)  # what the queue was given

    def __post_init__(self) -> None:
        self.store = MortalStore(str(self.folder))
        self.store.chance = self.chance

    def set_one_aside(self) -> None:
        """One more row that is no record to be sent, each in a version of its own."""
        version = len(self.set_aside)
        reason = self.chance.choice(["NULL", "DUPLICATE"])
        self.set_aside.append(InvalidRow("", reason, version, version + 1, '{"id":null}'))

    def begin(self, queue: Queue) -> str:
        """A run begins: what the ones before left is published first."""
        for run_id in publication.open_runs(queue):
            self._publisher(queue, run_id).publish_all()
            publication.end_run(queue, run_id)
        self.runs += 1
        run_id = f"run-{self.runs:04}"
        publication.begin_run(queue, run_id, "{}")
        self._keep_invalid(queue, run_id)
        return run_id

    def end(self, queue: Queue, run_id: str) -> None:
        self._publisher(queue, run_id).publish_all()
        publication.end_run(queue, run_id)

    def may_publish(self, queue: Queue, run_id: str) -> None:
        """A file may become due at any time."""
        if self.chance.random() < 0.1:
            self._publisher(queue, run_id).publish_due(now=100.0)

    def noted(self, segment: Segment) -> Segment:
        """The segment, its changes remembered."""
        pages = [FeedPage(page.layout, list(page.changes)) for page in segment.pages]
        for page in pages:
            for change in page.changes:
                self.taken.setdefault((change.key, change.version), []).append(change)
        return segment._replace(pages=pages)

    def problems(self, queue: Queue) -> list[str]:
        """Every change that is neither settled, nor pending, nor folded away; every end with two records."""
        records = [*self._published(), *self._unpublished(queue)]
        ends = collections.Counter(_end(record) for record in records)
        twice = [f"{end} has {number} records" for end, number in ends.items() if number > 1]
        invalid = [record for record in records if record["status"] in INVALID]
        known = [row for row in self.set_aside if row.version <= queue.invalid_watermark]
        wrong = [] if len(invalid) == len(known) else [f"{len(invalid)} of {len(known)} invalid rows"]
        return twice + wrong

    def unaccounted(self, queue: Queue) -> list[Named]:
        """The changes of which nobody can say what became of them."""
        records = [*self._published(), *self._unpublished(queue)]
        settled = {self._named(record) for record in records if record["status"] not in INVALID}
        pending = {(str(key), int(version)) for key, version in queue.store.rows(UNITS)}
        versions: dict[str, list[int]] = collections.defaultdict(list)
        for key, version in sorted(self.taken):
            versions[key].append(version)
        return [
            (key, version)
            for key, version in self.taken
            if (key, version) not in settled | pending
            and version == versions[key][-1]  # else a newer one has taken its place
            and not self._is_nothing(key, versions[key], settled)
        ]

    def _is_nothing(self, key: str, versions: list[int], settled: set[Named]) -> bool:
        """Whether the newest change brings back what the API had, or what it only makes room for came."""
        newest = self.taken[key, versions[-1]]
        before = [self.taken[key, version] for version in versions if (key, version) in settled]
        makes_room = all(change.change_type is ChangeType.DELETE for change in newest)
        return makes_room or _content(newest) in [[], *map(_content, before)]

    def _keep_invalid(self, queue: Queue, run_id: str) -> None:
        upto, after = len(self.set_aside) - 1, queue.invalid_watermark
        if upto > after:
            attempt = Attempt(run_id=run_id, started_at=1.0, ended_at=1.0, max_attempts=0)
            keep_invalid(queue, self._new(after), attempt, upto=upto)

    def _new(self, after: int) -> Iterator[InvalidRow]:
        for row in self.set_aside:
            if row.version > after:
                if self.store.faults and self.chance.random() < 0.1:
                    raise KilledError
                yield row

    def _publisher(self, queue: Queue, run_id: str) -> Publisher:
        return Publisher(queue, self.store, sync_id=SYNC, run_id=run_id, operation=Operation.UPSERT)

    def _published(self) -> list[dict[str, object]]:
        files = self.folder.glob("sync_tracking_datasets/1/*/*/*.parquet")
        return [row for file in files for row in pq.read_table(file, partitioning=None).to_pylist()]

    def _unpublished(self, queue: Queue) -> Iterator[dict[str, object]]:
        """Records that only the queue has: a chosen file may be there already."""
        there = {(file.parent.name, file.name) for file in self.folder.glob("sync_tracking_datasets/1/*/*/*")}
        kept = "select run_id, type, file, rows from settled"
        for run_id, kind, number, rows in queue.store.rows(kept):
            if (run_id, f"{kind}.{number}.parquet") not in there:
                for row in read_settled(rows):
                    yield {
                        "sync_run_id": run_id,
                        "identifier": row.key,
                        "__ondatra_rowid": row.rowid,
                        "__ondatra_change_type": row.change_type,
                        "table_version": row.version,
                        "status": row.status,
                    }

    def _named(self, record: dict[str, object]) -> Named:
        name = "identifier" if self.by_key else "__ondatra_rowid"
        return str(record[name]), int(str(record["table_version"]))


def _end(record: dict[str, object]) -> tuple[object, ...]:
    names = ("sync_run_id", "identifier", "__ondatra_rowid", "__ondatra_change_type", "table_version")
    # invalid rows are those of another table: their rowids and versions say nothing of this one's
    return (record["status"] in INVALID, *(record[name] for name in names))


def _content(changes: list[Change]) -> list[str]:
    return sorted(change.payload for change in changes if change.change_type in COMES)
