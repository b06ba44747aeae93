"""`.ondatra/events.sqlite`: what was taken and isn't in a table yet, as it came. All statements are here.

One process writes it, the collector, or the flush while there is none: `held_file`. All others only look.
A number is never given twice, also when what had it is gone: a table knows by it how far it has come.
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

from ondatra_dagster.collector.packing import packed, unpacked
from ondatra_dagster.errors import StateError
from ondatra_dagster.project.settings.settings import Settings
from ondatra_dagster.store.database import Row, Schema, Store, Value, connect
from ondatra_dagster.store.lock import FileLock
from ondatra_dagster.store.shared_file import open_existing

NAME = "events.sqlite"
NUMBERING = "ondatra.events/"  # and the file's own id: another file begins to count anew
DIGEST_BYTES = 16
FORGOTTEN_AT_ONCE = 2000  # intakes in one transaction: a collector has others waiting

SCHEMA = Schema(
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
    if_damaged=(
        "don't delete it, for it has acknowledged events that no table has yet: stop the collector, keep a"
        " copy, bring the file back from a backup, or save what `sqlite3 FILE .recover` reads; when nothing"
        " helps, move it away, and the events in it are lost"
    ),
    page_bytes=16_384,  # a batch is a few of them, and one event shares its page with others
)
SELDOM_EMPTIED = "pragma wal_autocheckpoint = 2500"  # pages: 40 MB; each time costs two waits for the disk
IDENTITY = "select id, again from identity"
TAKE = "insert into intake (number, model, received_at, events, body, digest) values (?, ?, ?, ?, ?, ?)"
SEEN = "select digest from seen where model = ? and key = ?"
KEEP_KEY = "insert into seen (model, key, digest, at) values (?, ?, ?, ?)"
DROP_KEYS = "delete from seen where at < ?"
FORGET = """
delete from intake where number in (
    select number from intake where model = :model and number <= :upto order by number limit :most
)
returning events
"""
WAITING = "select model, sum(events) from intake group by model"  # of the index alone
OLDEST = "select received_at from intake where model = ? order by number limit 1"
WAITING_AFTER = "select coalesce(sum(events), 0), min(number) from intake where model = ? and number > ?"
RECEIVED_AT = "select received_at from intake where number = ?"
PAGE = """
select number, model, received_at, events, body, digest from intake not indexed
where model = :model and number > :after order by number limit :most
"""
# the same in the index: damage to one of the two hides no intake
PAGE_NUMBERS = """
select number from intake indexed by intake_of_model
where model = :model and number > :after order by number limit :most
"""
LAST_NUMBER = "select seq from sqlite_sequence where name = 'intake'"
NEXT_NUMBER = """
select 1 + max(
    coalesce((select seq from sqlite_sequence where name = 'intake'), 0),
    coalesce((select max(number) from intake), 0)
)
"""
FIRST_NUMBER = "insert into sqlite_sequence (name, seq) values ('intake', ?)"
LATER_NUMBER = "update sqlite_sequence set seq = ? where name = 'intake'"


class Intake(NamedTuple):
    """The events of one request."""

    model: str  # its id
    received_at: int  # microseconds since 1970
    events: int
    body: bytes  # JSON as it came: an object, or an array of them
    key: str | None = None  # the request's Idempotency-Key


class Taken(enum.Enum):
    """What became of an intake."""

    NEW = enum.auto()
    REPEATED = enum.auto()  # its key was there with the same body: it is there once
    OTHER_BODY = enum.auto()  # its key was there with another: it isn't taken


class Waiting(NamedTuple):
    """What waits of a model."""

    events: int = 0
    oldest_at: float | None = None  # seconds since 1970
    since: str = ""  # what the oldest came in: the same while that one waits


class NumberedIntake(NamedTuple):
    number: int
    received_at: int
    events: int
    body: bytes


class EventFile:
    """The file in the hands of its one writer; one thread uses it at a time."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def take(self, intakes: Sequence[Intake]) -> list[Taken]:
        """Keep all of them in one transaction: when it returns, they survive a crash."""
        kept = [packed(intake.body) for intake in intakes]
        with self._store.immediate():
            numbers = itertools.count(self._store.rows(NEXT_NUMBER)[0][0])
            return [self._take(intake, body, numbers) for intake, body in zip(intakes, kept, strict=True)]

    def _take(self, intake: Intake, kept: bytes, numbers: Iterator[int]) -> Taken:
        if intake.key is not None:
            digest = hashlib.blake2b(intake.body, digest_size=DIGEST_BYTES).digest()
            seen = self._store.rows(SEEN, (intake.model, intake.key))
            if seen:
                return Taken.REPEATED if seen[0][0] == digest else Taken.OTHER_BODY
            self._store.run(KEEP_KEY, (intake.model, intake.key, digest, intake.received_at))
        row = (next(numbers), *intake[:3], kept)
        self._store.run(TAKE, (*row, _digest(*row)))
        return Taken.NEW

    def forget(self, model: str, upto: int) -> int:
        """Drop some of what a table has; how many events that were: 0 when none is left."""
        with self._store.immediate():
            rows = self._store.rows(FORGET, {"model": model, "upto": upto, "most": FORGOTTEN_AT_ONCE})
            return sum(events for (events,) in rows)

    def forget_keys(self, before: int) -> None:
        """Drop the keys of requests that are older than that."""
        with self._store.immediate():
            self._store.run(DROP_KEYS, (before,))

    def number_from(self, last: int) -> None:
        """Give only numbers above that: an older copy of the file may have been put back."""
        with self._store.immediate():
            given = self._store.rows(LAST_NUMBER)
            if not given:
                self._store.run(FIRST_NUMBER, (last,))
            elif given[0][0] < last:
                self._store.run(LATER_NUMBER, (last,))

    @property
    def numbering(self) -> str:
        return _numbering(self._store)

    def events(self) -> dict[str, int]:
        """How many events are in the file, by model."""
        return dict(self._store.rows(WAITING))

    def oldest(self, models: Iterable[str]) -> dict[str, float]:
        """Since when the oldest of each of these models is there, in seconds since 1970."""
        found = {model: self._store.rows(OLDEST, (model,)) for model in models}
        return {model: rows[0][0] / 1e6 for model, rows in found.items() if rows}

    def close(self) -> None:
        with contextlib.suppress(StateError):  # a disk that is full: what was taken is in the log beside it
            self._store.checkpoint()
        self._store.close()


@contextlib.contextmanager
def held_file(settings: Settings, purpose: str, *, wait_seconds: float = 0) -> Iterator[EventFile]:
    """The file, made if need be, with nobody else writing it; BusyError says who does."""
    path = settings.state / "locks" / f"{NAME}.lock"
    lock = FileLock(path, purpose=purpose, wait_seconds=wait_seconds)
    with lock:
        store = connect(settings.state / NAME, SCHEMA)
        store.rows(SELDOM_EMPTIED)
        file = EventFile(store)
        try:
            yield file
        finally:
            file.close()


def event_path(settings: Settings) -> Path:
    """Where the file is; a dry run looks at a copy."""
    return (settings.scratch.folder if settings.scratch else settings.state) / NAME


def looking_at(path: Path) -> AbstractContextManager[Store | None]:
    """Open the file to read it; None when there is none, or it has no tables yet."""
    return open_existing(path, SCHEMA)


def numbering_of(path: Path) -> str | None:
    """What names the file in its tables' transactions; None without a file."""
    with looking_at(path) as store:
        return _numbering(store) if store else None


def waiting_after(path: Path, model: str, number: int) -> Waiting:
    """What waits of a model whose table has all up to that number."""
    with looking_at(path) as store:
        if store is None:
            return Waiting()
        with store.snapshot():
            events, first = store.rows(WAITING_AFTER, (model, number))[0]
            if not events:
                return Waiting()
            received_at = store.rows(RECEIVED_AT, (first,))[0][0]
            return Waiting(events, received_at / 1e6, f"{_numbering(store)}@{first}")


def events_in_file(path: Path) -> dict[str, int]:
    """How many events of each model are in the file, also of those that are no more."""
    with looking_at(path) as store:
        return dict(store.rows(WAITING)) if store else {}


def page_after(path: Path, model: str, number: int, *, most: int) -> list[NumberedIntake]:
    """The next intakes of a model after that number, the oldest first."""
    with looking_at(path) as store:
        if store is None:
            return []
        wanted: dict[str, Value] = {"model": model, "after": number, "most": most}
        with store.snapshot():
            rows, numbers = store.rows(PAGE, wanted), store.rows(PAGE_NUMBERS, wanted)
        if [row[:1] for row in rows] != numbers:
            raise store.damage(f"its requests for {model} and their index disagree")
        return [_numbered(store, row) for row in rows]


def _numbered(store: Store, row: Row) -> NumberedIntake:
    number, _, received_at, events, kept, digest = row
    if _digest(*row[:-1]) != digest:
        raise store.damage(f"request {number} isn't as it came")
    return NumberedIntake(number, received_at, events, unpacked(kept))


def _digest(number: int, model: str, received_at: int, events: int, kept: bytes) -> int | None:
    """Return the digest of an intake; None where a value has become one of another type."""
    try:
        return zlib.crc32(kept, zlib.crc32(f"{number:d} {model} {received_at:d} {events:d}".encode()))
    except (TypeError, ValueError):
        return None


def _numbering(store: Store) -> str:
    match store.rows(IDENTITY):
        case [(str(identity), again)] if identity == again:
            return f"{NUMBERING}{identity}"
    raise store.damage("it no longer tells which file it is")
