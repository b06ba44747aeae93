"""From settled rows to the tracking store: when a file is due, and what its records say."""

import functools
import itertools
import math
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime

import orjson

from ondatra_dagster.changes import ChangeType, InvalidRow, Layout
from ondatra_dagster.clock_jumps import is_ahead
from ondatra_dagster.delivery.queue import publication
from ondatra_dagster.delivery.queue.settled import DELETED, INVALID, Attempt, SettledRow, keep_settled
from ondatra_dagster.delivery.queue.tables import ASIDE_TOLD_IN, Queue
from ondatra_dagster.delivery.target import Shape
from ondatra_dagster.tracking.addresses import BatchType
from ondatra_dagster.tracking.record import Operation, SyncRecord
from ondatra_dagster.tracking.store import TrackingStore

PUBLISH_SECONDS = 10.0  # what a lost disk may cost: records that are older are in the tracking store
OWN_NAMES = 0  # in place of a layout: the payload is an object already, as rows that were set aside are
INVALID_PART = 1_000


class Publisher:
    """Publishes what one run settles, while it goes on."""

    def __init__(
        self,
        queue: Queue,
        tracking: TrackingStore,
        *,
        sync_id: str,
        run_id: str,
        operation: Operation,
        publish_seconds: float = PUBLISH_SECONDS,
    ) -> None:
        self._queue = queue
        self._tracking = tracking
        self._sync_id = sync_id
        self._run_id = run_id
        self._operation = operation
        self._publish_seconds = publish_seconds  # no record waits longer than this for its file
        self._unpublished = 0
        self._due_at = 0.0  # when the oldest row that is in no file has to have one; at first nobody knows

    def note(self, rows: int, *, now: float) -> None:
        """So many rows more are settled; those whose file is due are published."""
        self._unpublished += rows
        self._due_at = min(self._due_at, now + self._publish_seconds)
        self.look(now=now)

    def look(self, *, now: float) -> None:
        """Publish what is due by now, if anything is."""
        is_due = now >= self._due_at or is_ahead(self._due_at - self._publish_seconds, now)
        if self._unpublished >= publication.FILE_ROWS or is_due:
            self.publish_due(now=now)

    def seconds_to_next(self, *, now: float) -> float:
        """Return how long it is until the oldest record has to have its file; 0 when that is now."""
        return max(self._due_at - now, 0.0)

    def publish_due(self, *, now: float) -> None:
        """Write a file for each type that has enough rows, or has waited long enough."""
        due = {
            kind
            for kind, rows, oldest in publication.loose(self._queue, self._run_id)
            if rows >= publication.FILE_ROWS or now - oldest >= self._publish_seconds or is_ahead(oldest, now)
        }
        if due and (self._queue.replaces_rows or self._queue.shape is Shape.GROUP):
            # who finds rows recorded takes the deletes before them for done that no record says otherwise of
            while self._publish_next(DELETED):
                pass
        for kind in sorted(due):  # deletes first
            self._publish_next(kind)
        left = publication.loose(self._queue, self._run_id)
        self._unpublished = sum(rows for _, rows, _ in left)
        self._due_at = min((oldest + self._publish_seconds for _, _, oldest in left), default=math.inf)

    def publish_all(self) -> None:
        """Write all that is left, files that a crash left half way first."""
        for file in publication.chosen(self._queue, self._run_id):
            self._publish(file)
        for kind, _, _ in publication.loose(self._queue, self._run_id):
            while self._publish_next(kind):
                pass

    def _publish_next(self, kind: str) -> bool:
        file = publication.choose(self._queue, self._run_id, kind)
        if file is None:
            return False
        self._publish(file)
        return True

    def _publish(self, file: publication.RunFile) -> None:
        records = self._records(file)
        self._tracking.publish(self._sync_id, file.run_id, BatchType(file.type), file.number, records)
        publication.published(self._queue, file)

    def _records(self, file: publication.RunFile) -> Iterator[SyncRecord]:
        return records_of(
            publication.settled_rows(self._queue, file),
            layouts=self._queue.layouts,
            operation=Operation.DELETE if file.type == DELETED else self._operation,
            table_id=self._queue.meta("table_id") or "",
        )


def records_of(
    settled: Iterable[tuple[float, float, SettledRow]],
    *,
    layouts: Mapping[int, Layout],
    operation: Operation,
    table_id: str,
) -> Iterator[SyncRecord]:
    """What is kept of rows that ended, each given with the begin and the end of its batch."""
    for started_at, ended_at, row in settled:
        yield SyncRecord(
            identifier=row.key,
            payload=_payload(row, layouts),
            operation=operation,
            status=row.status,
            status_message=row.message,
            batch_started_at=_moment(started_at),
            batch_ended_at=_moment(ended_at),
            rowid=row.rowid,
            change_type=row.change_type,
            table_version=row.version,
            table_id=table_id,
        )


@functools.lru_cache(maxsize=2)  # the rows of a batch share theirs
def _moment(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)


def _payload(row: SettledRow, layouts: Mapping[int, Layout]) -> str:
    if row.layout == OWN_NAMES:
        return row.payload
    return orjson.dumps(layouts[row.layout].row(row.payload)).decode()


def note_told_aside(queue: Queue, *, since: str, upto: str) -> None:
    """The runs after one and up to another may have recorded rows as set aside that are new to the queue."""
    known = queue.meta(ASIDE_TOLD_IN)
    first, _, last = (known or f"{since}:{upto}").partition(":")
    queue.set_meta(ASIDE_TOLD_IN, f"{min(first, since)}:{max(last, upto)}")


def newly_set_aside(
    queue: Queue, tracking: TrackingStore, sync_id: str, rows: Iterable[InvalidRow]
) -> Iterator[InvalidRow]:
    """The rows less those that have a record already, as far as the queue doesn't know itself."""
    span = queue.meta(ASIDE_TOLD_IN)
    if span is None:
        yield from rows
        return
    since, _, upto = span.partition(":")
    table_id = queue.meta("table_id")
    found = tracking.set_aside_in(sync_id, since=since, upto=upto)
    told = {rowid for rowid, of_table in found if of_table == table_id}
    yield from (row for row in rows if row.rowid not in told)


def keep_invalid(queue: Queue, rows: Iterable[InvalidRow], attempt: Attempt, *, upto: int) -> int:
    """Keep rows that were set aside as records, and note that they are; how many there were.

    Both happen in one transaction, so that an invalid row is recorded once.
    """
    kept = 0
    with queue.store.immediate():
        for part in _parts(rows):
            keep_settled(queue, INVALID, part, attempt)
            kept += len(part)
        queue.set_meta("invalid_watermark", upto)
        queue.forget_meta(ASIDE_TOLD_IN)
    return kept


def _parts(rows: Iterable[InvalidRow]) -> Iterator[list[SettledRow]]:
    settled = (
        SettledRow(
            row.key, row.rowid, ChangeType.INSERT, row.version, row.reason, None, OWN_NAMES, row.payload
        )
        for row in rows
    )
    while part := list(itertools.islice(settled, INVALID_PART)):
        yield part
