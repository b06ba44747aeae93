"""The file `.ondatra/events.sqlite`, with the events that no table has yet. All its SQL statements are here.

One process writes the file: the collector, or a flush while there is no collector (`open_locked_store`). Other
processes only read. A number is never used twice, even if its request was deleted, because a table keeps the last
number that it has.
"""

import contextlib
import enum
import hashlib
import itertools
import zlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import NamedTuple

from ondatra_dagster.errors import StateError
from ondatra_dagster.project.settings.read_settings_and_defaults import Settings
from ondatra_dagster.storage.file_lock import FileLock
from ondatra_dagster.storage.sqlite_database import (
    SqliteSchema,
    SqliteStore,
    SqlRow,
    SqlValue,
    open_database,
    open_existing_database,
)

STORE_FILE_NAME = "events.sqlite"
SEQUENCE_PREFIX = "ondatra.events/"  # the file's own id follows, because another file's numbers begin again
DIGEST_BYTES = 16
MAX_DELETED_REQUESTS = 2000  # requests in one transaction: other requests wait for the collector meanwhile
SCHEMA = SqliteSchema(
    "events",
    (
        (
            "one",
            """
            create table intake (
                number integer primary key autoincrement,
                model text not null,
                received_at integer not null,
                events integer not null,
                body blob not null,
                digest integer not null  -- of all others
            );
            create index intake_of_model on intake (model, number, events);
            create table seen (
                model text not null,
                key text not null,
                digest blob not null,
                at integer not null,
                primary key (model, key)
            ) without rowid;
            create index seen_at on seen (at);
            create table identity (id text not null, again text not null);  -- twice, so that damage shows
            insert into identity select id, id from (select lower(hex(randomblob(16))) as id)
            """,
        ),
    ),
    damage_advice=(
        "don't delete it: it has acknowledged events that are in no table yet. Stop the collector, and keep a copy."
        " Then bring the file back from a backup, or save what `sqlite3 FILE .recover` reads."
        " If nothing helps, move it away; its events are then lost"
    ),
    page_bytes=16_384,  # a batch takes a few pages, and one event shares its page with others
)
SET_CHECKPOINT_INTERVAL = "pragma wal_autocheckpoint = 2500"  # pages: 40 MB; each checkpoint waits for the disk twice
SELECT_IDENTITY = "select id, again from identity"
INSERT_REQUEST = "insert into intake (number, model, received_at, events, body, digest) values (?, ?, ?, ?, ?, ?)"
SELECT_KEY_DIGEST = "select digest from seen where model = ? and key = ?"
INSERT_KEY = "insert into seen (model, key, digest, at) values (?, ?, ?, ?)"
DELETE_OLD_KEYS = "delete from seen where at < ?"
DELETE_REQUESTS = """
delete from intake where number in (
    select number from intake where model = :model and number <= :upto order by number limit :most
)
returning events
"""
COUNT_EVENTS = "select model, sum(events) from intake group by model"  # reads the index only
SELECT_OLDEST = "select received_at from intake where model = ? order by number limit 1"
COUNT_EVENTS_AFTER = "select coalesce(sum(events), 0), min(number) from intake where model = ? and number > ?"
SELECT_RECEIVED_AT = "select received_at from intake where number = ?"
SELECT_PAGE = """
select number, model, received_at, events, body, digest from intake not indexed
where model = :model and number > :after order by number limit :most
"""


# the same numbers from the index, so that damage to the table or the index hides no request
SELECT_PAGE_NUMBERS = """
select number from intake indexed by intake_of_model
where model = :model and number > :after order by number limit :most
"""
SELECT_LAST_NUMBER = "select seq from sqlite_sequence where name = 'intake'"
SELECT_NEXT_NUMBER = """
select 1 + max(
    coalesce((select seq from sqlite_sequence where name = 'intake'), 0),
    coalesce((select max(number) from intake), 0)
)
"""
INSERT_LAST_NUMBER = "insert into sqlite_sequence (name, seq) values ('intake', ?)"
UPDATE_LAST_NUMBER = "update sqlite_sequence set seq = ? where name = 'intake'"


class EventRequest(NamedTuple):
    """The events of one request."""

    model: str  # the model's id
    received_at: int  # microseconds since 1970
    events: int
    body: bytes  # JSON as received: an object, or an array of objects
    key: str | None = None  # the request's Idempotency-Key


class StoreResult(enum.Enum):
    """The result of storing a request."""

    NEW = enum.auto()
    REPEATED = enum.auto()  # the key is known with the same body: the events are stored once
    KEY_CONFLICT = enum.auto()  # the key is known with another body: nothing is stored


class PendingSummary(NamedTuple):
    """A summary of a model's waiting events."""

    events: int = 0
    oldest_at: float | None = None  # seconds since 1970
    oldest_request_id: str = ""  # the request of the oldest event: it stays the same while that event waits


class StoredRequest(NamedTuple):
    number: int
    received_at: int
    events: int
    body: bytes


class EventStore:
    """The event file, opened by its only writer. One thread uses it at a time."""

    def __init__(self, store: SqliteStore) -> None:
        self._store = store

    def store_requests(self, intakes: Sequence[EventRequest]) -> list[StoreResult]:
        """Store all requests in one transaction: when this returns, they survive a crash."""
        bodies = [compress_body(intake.body) for intake in intakes]
        with self._store.write_transaction():
            numbers = itertools.count(self._store.fetch_rows(SELECT_NEXT_NUMBER)[0][0])
            return [self._store_request(intake, body, numbers) for intake, body in zip(intakes, bodies, strict=True)]

    def _store_request(self, intake: EventRequest, stored_body: bytes, numbers: Iterator[int]) -> StoreResult:
        if intake.key is not None:
            digest = hashlib.blake2b(intake.body, digest_size=DIGEST_BYTES).digest()
            rows = self._store.fetch_rows(SELECT_KEY_DIGEST, (intake.model, intake.key))
            if rows:
                return StoreResult.REPEATED if rows[0][0] == digest else StoreResult.KEY_CONFLICT
            self._store.execute(INSERT_KEY, (intake.model, intake.key, digest, intake.received_at))
        row = (next(numbers), *intake[:3], stored_body)
        self._store.execute(INSERT_REQUEST, (*row, _request_digest(*row)))
        return StoreResult.NEW

    def delete_up_to(self, model: str, upto: int) -> int:
        """Delete the oldest requests that a table has, at most 2000; return how many events they had.

        Return 0 if the table has no more of the requests.
        """
        with self._store.write_transaction():
            rows = self._store.fetch_rows(DELETE_REQUESTS, {"model": model, "upto": upto, "most": MAX_DELETED_REQUESTS})
            return sum(events for (events,) in rows)

    def delete_keys(self, before: int) -> None:
        """Delete the keys of requests that were received before the time `before`, in microseconds since 1970."""
        with self._store.write_transaction():
            self._store.execute(DELETE_OLD_KEYS, (before,))

    def raise_last_number(self, last: int) -> None:
        """Use only numbers above `last` from now on, because an older copy of the file may have been restored."""
        with self._store.write_transaction():
            rows = self._store.fetch_rows(SELECT_LAST_NUMBER)
            if not rows:
                self._store.execute(INSERT_LAST_NUMBER, (last,))
            elif rows[0][0] < last:
                self._store.execute(UPDATE_LAST_NUMBER, (last,))

    @property
    def sequence_id(self) -> str:
        return _select_sequence_id(self._store)

    def count_events(self) -> dict[str, int]:
        """Return how many events are in the file, by model."""
        return dict(self._store.fetch_rows(COUNT_EVENTS))

    def read_oldest_times(self, models: Iterable[str]) -> dict[str, float]:
        """Return when the oldest request of each of these models was received, in seconds since 1970."""
        rows_by_model = {model: self._store.fetch_rows(SELECT_OLDEST, (model,)) for model in models}
        return {model: rows[0][0] / 1e6 for model, rows in rows_by_model.items() if rows}

    def close(self) -> None:
        with contextlib.suppress(StateError):  # the disk may be full: the events are durable in the write-ahead log
            self._store.checkpoint()
        self._store.close()


@contextlib.contextmanager
def open_locked_store(settings: Settings, purpose: str, *, wait_seconds: float = 0) -> Iterator[EventStore]:
    """Open the event file, or create it, as its only writer.

    If there is another writer, raise BusyError with its name.
    """
    path = settings.state / "locks" / f"{STORE_FILE_NAME}.lock"
    lock = FileLock(path, purpose=purpose, wait_seconds=wait_seconds)
    with lock:
        store = open_database(settings.state / STORE_FILE_NAME, SCHEMA)
        store.fetch_rows(SET_CHECKPOINT_INTERVAL)
        file = EventStore(store)
        try:
            yield file
        finally:
            file.close()


def event_store_path(settings: Settings) -> Path:
    """Return the event file's path; in a dry run, the path of a copy."""
    return (settings.dry_run_folder.folder if settings.dry_run_folder else settings.state) / STORE_FILE_NAME


def open_event_store(path: Path) -> AbstractContextManager[SqliteStore | None]:
    """Open the event file to read it; the store is None if the file is missing or has no tables yet."""
    return open_existing_database(path, SCHEMA)


def read_sequence_id(path: Path) -> str | None:
    """Return the name of this file's numbers in the transactions of tables; None without a file."""
    with open_event_store(path) as store:
        return _select_sequence_id(store) if store else None


def summarize_pending(path: Path, model: str, number: int) -> PendingSummary:
    """Summarize a model's waiting events: those above `number`, the last number that its table has."""
    with open_event_store(path) as store:
        if store is None:
            return PendingSummary()
        with store.read_transaction():
            events, first_number = store.fetch_rows(COUNT_EVENTS_AFTER, (model, number))[0]
            if not events:
                return PendingSummary()
            received_at = store.fetch_rows(SELECT_RECEIVED_AT, (first_number,))[0][0]
            return PendingSummary(events, received_at / 1e6, f"{_select_sequence_id(store)}@{first_number}")


def count_stored_events(path: Path) -> dict[str, int]:
    """Return how many events of each model are in the file, including models that no longer exist."""
    with open_event_store(path) as store:
        return dict(store.fetch_rows(COUNT_EVENTS)) if store else {}


def read_page_after(path: Path, model: str, number: int, *, limit: int) -> list[StoredRequest]:
    """Return a model's next requests after the number `number`, oldest first."""
    with open_event_store(path) as store:
        if store is None:
            return []
        parameters: dict[str, SqlValue] = {"model": model, "after": number, "most": limit}
        with store.read_transaction():
            rows, numbers = (
                store.fetch_rows(SELECT_PAGE, parameters),
                store.fetch_rows(SELECT_PAGE_NUMBERS, parameters),
            )
        if [row[:1] for row in rows] != numbers:
            raise store.damage_error(f"its requests for {model} and their index disagree")
        return [_to_stored_request(store, row) for row in rows]


def _to_stored_request(store: SqliteStore, row: SqlRow) -> StoredRequest:
    number, _, received_at, events, compressed_body, digest = row
    if _request_digest(*row[:-1]) != digest:
        raise store.damage_error(f"request {number} is damaged")
    return StoredRequest(number, received_at, events, decompress_body(compressed_body))


def _request_digest(number: int, model: str, received_at: int, events: int, stored_body: bytes) -> int | None:
    """Return a request's digest; None if damage has changed the type of a value."""
    try:
        return zlib.crc32(stored_body, zlib.crc32(f"{number:d} {model} {received_at:d} {events:d}".encode()))
    except (TypeError, ValueError):
        return None


def _select_sequence_id(store: SqliteStore) -> str:
    match store.fetch_rows(SELECT_IDENTITY):
        case [(str(identity), identity_copy)] if identity == identity_copy:
            return f"{SEQUENCE_PREFIX}{identity}"
    raise store.damage_error("its own id is missing")


MIN_COMPRESSED_BYTES = 1000  # compression isn't worth it below this; single events are smaller
LZ4_PREFIX = b"\0lz4"  # the size and the frame follow; no JSON begins like this
SIZE_BYTES = 4


def compress_body(body: bytes) -> bytes:
    """Return the stored form of the body: compressed if that makes it shorter."""
    if len(body) < MIN_COMPRESSED_BYTES:
        return body
    import pyarrow  # imported here: commands that read small bodies must be quick

    frame = pyarrow.compress(body, codec="lz4", asbytes=True)
    compressed_body: bytes = b"".join((LZ4_PREFIX, len(body).to_bytes(SIZE_BYTES), frame))
    return compressed_body if len(compressed_body) < len(body) else body


def decompress_body(stored_body: bytes) -> bytes:
    """Return the original body; raise StateError if it can't be read any more."""
    if not stored_body.startswith(LZ4_PREFIX):
        return stored_body
    import pyarrow

    frame_start = len(LZ4_PREFIX) + SIZE_BYTES
    size = int.from_bytes(stored_body[len(LZ4_PREFIX) : frame_start])
    try:
        body: bytes = pyarrow.decompress(stored_body[frame_start:], decompressed_size=size, codec="lz4", asbytes=True)
    except OSError as error:
        problem = "a request in the file of events can't be read any more"
        raise StateError(f"{problem} ({error}); check the disk") from error
    return body
