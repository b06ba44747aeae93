"""The queue file of one sync: its schema, its metadata, its opening, and the correction of its times.

One process writes it and holds its lock. The operating system releases the lock when the process ends, so
another process can use its claimed batches at once. The other modules of this package read and write the
tables; queue_status also reads a queue that another process is writing.

A unit is a delivery key whose rows at the API may differ from those in the table. For a key without a unit, the
API has the table's rows.
"""

import contextlib
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path

import orjson

from ondatra_dagster.delivery.acknowledged_to_desired_diff import UnitKind
from ondatra_dagster.delivery.queue.damage_checksums import check_table_digests, install_digest_triggers
from ondatra_dagster.errors import BusyError, StateError
from ondatra_dagster.future_time_correction import is_from_future, is_from_future_sql
from ondatra_dagster.row_changes import Column, Layout
from ondatra_dagster.storage.file_lock import FileLock
from ondatra_dagster.storage.sqlite_database import SqliteSchema, SqliteStore, open_database, open_existing_database

NOTHING_ENQUEUED = -1  # the watermark of a queue that has no changes yet
DAMAGE_ADVICE = (
    "move it away: the next run rebuilds it from the queue snapshot and the records, and repeats no recorded"
    " delivery. Only the waiting times of rows and dead letters are lost"
)
SCHEMA = SqliteSchema(
    "queue",
    (
        (
            "first",
            """
            create table meta (name text primary key, value) without rowid;
            -- the newest has the highest number, even if an older one has the same columns
            create table layout (id integer primary key, columns text not null);
            -- acknowledged, maybe_sent and desired are sets of rows, see delivery/acknowledged_to_desired_diff.py
            -- a version above the watermark is not visible yet
            create table unit (
                id integer primary key,
                key text not null unique,
                belongs_to text not null,  -- for a unit by rowid: the value of its key or partition
                is_context integer not null default 0,  -- a delete that is sent with the inserts that replace the row
                version integer not null,
                acknowledged text not null,
                maybe_sent text,
                desired text not null,
                rows integer not null,
                phase integer not null,
                state text not null,
                since real not null,
                attempts integer not null default 0,
                outages integer not null default 0,
                -- how often its idempotency keys were renewed, after an answered try or by a replay
                key_renewals integer not null default 0,
                due_at real,
                set_at real,  -- the moment at which due_at was set
                message text,
                died_at real,
                refused_at integer,  -- the attempt at which a dead unit was rejected, null after too many attempts
                digest integer not null  -- see damage_checksums.py
            );
            create index unit_next on unit (state, phase, outages, id);
            -- the newest desired rows of keys that already have a unit, until their version becomes visible
            create table staged (key text primary key, version integer not null, desired text not null,
                digest integer not null);
            -- the exact input of push: after a crash exactly this is sent again
            create table batch (
                id integer primary key,
                number integer not null,
                rows text not null,
                seed text not null,
                is_part integer not null,
                begun integer not null default 0,
                crashes integer not null default 0,
                answered integer not null default 0,
                -- the job of an asynchronous API, as JSON, with times in seconds since 1970
                units integer not null,
                job text,
                submitted_at real,
                next_poll_at real,
                masked_job text,  -- the reference without secrets, null when it has none
                set_at real,  -- the moment at which next_poll_at was set, null: with submitted_at
                digest integer not null
            );
            -- rows that ended, until they are in a published file
            create table settled (
                id integer primary key,
                run_id text not null,
                type text not null,
                count integer not null,
                started_at real not null,
                ended_at real not null,
                rows blob not null,
                file integer,
                digest integer not null
            );
            create table run (run_id text primary key, about text not null, files text not null default '{}');
            -- how many units of an active run were planned, succeeded, rejected, failed
            create table run_count (
                run_id text,
                cell text,
                operation text,
                units integer not null,
                primary key (run_id, cell, operation)
            ) without rowid;
            -- how many rows the API has of each mirror, whose acknowledged rows aren't kept
            create table content (key text primary key, rows integer not null) without rowid;
            -- the digest of all rows of a small table
            create table seal (name text primary key, digest integer) without rowid;
            insert into seal (name) values ('meta'), ('layout'), ('run')
            """,
        ),
    ),
    damage_advice=DAMAGE_ADVICE,
)


# the name of a span of runs that may have recorded rows which the queue takes for new, see
# sync/record_publisher.py
INVALID_RECORDED_IN_RUNS = "invalid_recorded_in"
KEY_GENERATION = "generation"  # the name of a text in all idempotency keys: each resync draws a new one
PENDING_FINALIZE = "pending_finalize"  # the name of the sums for the next finalize(), see delivery/finalize_call.py
FORGOTTEN_FLAG = "forgotten"  # in the meta of a forgotten queue, which has no other value


# the key by which users know a unit: for a version, the key that it belongs to
UNIT_IDENTIFIER = "iif((select value from meta where name = 'shape') = 'version', belongs_to, key)"


# what the API has: rows that are to be deleted may be there, even if their arrival is unknown
ROWS_ON_API = "iif(acknowledged = '' and desired = '', coalesce(maybe_sent, ''), acknowledged)"


# how many rows a row set has: it is a string with one line per row
ROW_COUNT = "iif({0} = '', 0, 1 + length({0}) - length(replace({0}, char(10), '')))"


# only versions are found by their key, so only they pay for the index
CREATE_KEY_INDEX = "create index if not exists unit_of_key on unit (belongs_to)"
READ_META = "select value from meta where name = ?"
WRITE_META = "insert into meta values (?, ?) on conflict (name) do update set value = excluded.value"
DELETE_META = "delete from meta where name = ?"
READ_LAYOUTS = "select id, columns from layout"
ADD_LAYOUT = "insert into layout (columns) values (?) returning id"


class Queue:
    """An open queue file. Only the process that holds the file's lock may open it."""

    def __init__(self, store: SqliteStore, *, shape: UnitKind, replaces_rows: bool, is_whole_table: bool) -> None:
        self.store = store
        self.unit_kind = shape
        self.replaces_rows = replaces_rows
        self.is_whole_table = is_whole_table
        check_table_digests(store)
        install_digest_triggers(store)
        self.reload_layouts()
        if shape is UnitKind.VERSION:
            store.execute(CREATE_KEY_INDEX)
        if self.read_meta("queue_id") is None:
            self.write_meta("queue_id", str(uuid.uuid4()))
        if self.read_meta("shape") is None:  # otherwise the shape of the stored units stays
            self.write_meta("shape", shape.value)

    def read_meta(self, name: str) -> str | None:
        rows = self.store.fetch_rows(READ_META, (name,))
        return None if not rows or rows[0][0] is None else str(rows[0][0])

    def write_meta(self, name: str, value: str | int) -> None:
        self.store.execute(WRITE_META, (name, value))

    def delete_meta(self, *names: str) -> None:
        self.store.execute_many(DELETE_META, [(name,) for name in names])

    @property
    def watermark(self) -> int:
        """Return the newest table version up to which all changes are enqueued or delivered."""
        return int(self.read_meta("watermark") or NOTHING_ENQUEUED)

    @property
    def invalid_watermark(self) -> int:
        """Return the watermark for the table of invalid rows."""
        return int(self.read_meta("invalid_watermark") or NOTHING_ENQUEUED)

    @property
    def layouts(self) -> Mapping[int, Layout]:
        return self._layouts

    def reload_layouts(self) -> None:
        self._layouts = read_layouts(self.store)

    def store_layout(self, layout: Layout) -> int:
        """Store a layout as the newest one; return the number by which stored rows name it."""
        layout_id = max(self._layouts, default=0)
        if self._layouts.get(layout_id) != layout:
            layout_id = int(self.store.fetch_rows(ADD_LAYOUT, (dump_layout(layout),))[0][0])
            self._layouts[layout_id] = layout
        return layout_id


@contextlib.contextmanager
def open_queue(
    path: Path, *, shape: UnitKind, replaces_rows: bool = False, is_whole_table: bool = False, lock: Path | None = None
) -> Iterator[Queue]:
    """Open the queue file at `path` for writing; raise BusyError if another process writes it.

    With `replaces_rows`, new rows replace old ones, and deletes are sent before inserts. With `is_whole_table`, the
    whole table is one unit that no key names. The lock is next to the file unless `lock` is given.
    """
    with FileLock(lock or path.with_suffix(".lock"), purpose="delivers"), _connect_queue(path) as store:
        with store.explain_damage():
            yield Queue(store, shape=shape, replaces_rows=replaces_rows, is_whole_table=is_whole_table)
        store.checkpoint()


def _connect_queue(path: Path) -> SqliteStore:
    """Open the file; raise StateError if it is busy.

    This process has the queue's lock, so the other writer of the file isn't a delivery.
    """
    try:
        return open_database(path, SCHEMA)
    except BusyError as error:
        raise StateError(str(error)) from error


def create_forgotten_queue(path: Path) -> None:
    """Create a queue at `path` that only has the forgotten flag; the caller holds its lock."""
    with open_database(path, SCHEMA) as store:
        install_digest_triggers(store)
        store.execute(WRITE_META, (FORGOTTEN_FLAG, 1))
        store.checkpoint()


def dump_layout(layout: Layout) -> str:
    return orjson.dumps([[column.name, column.type] for column in layout.columns]).decode()


def load_layout(text: str) -> Layout:
    return Layout(tuple(Column(name, kind) for name, kind in orjson.loads(text)))


def read_unit_kind(store: SqliteStore) -> UnitKind | None:
    """Return the kind of the units in the file; None if no kind was ever stored."""
    rows = store.fetch_rows(READ_META, ("shape",))
    return UnitKind(rows[0][0]) if rows else None


def parse_unit_ids(text: str) -> list[int]:
    """Return the ids of the units in a frozen batch's text. Each line of the text begins with one id."""
    return [int(line.partition(" ")[0]) for line in text.split("\n")]


def read_layouts(store: SqliteStore) -> dict[int, Layout]:
    return {int(number): load_layout(str(text)) for number, text in store.fetch_rows(READ_LAYOUTS)}


@contextlib.contextmanager
def open_for_reading(path: Path) -> Iterator[SqliteStore | None]:
    """Open the queue at `path` for reading; yield None if the file is missing or has no tables yet."""
    with open_existing_database(path, SCHEMA) as store:
        if store is None:
            yield None
            return
        with store.explain_damage():
            check_table_digests(store)
            yield store


def pause_flag_path(queue: Path) -> Path:
    """Return the path of the file that pauses a sync while this file exists.

    It isn't in the queue's folder, and it stays when the queue is deleted.
    """
    return queue.parent.parent / "paused" / queue.stem


def queue_file_path(state: Path, sync_id: str) -> Path:
    """Return the path of a sync's queue."""
    return state / "queue" / f"{sync_id}.sqlite"


def queue_lock_path(queue: Path) -> Path:
    """Return the path of a queue's lock.

    The lock is in another folder than the queue, so that both aren't lost at once.
    """
    return queue.parent.parent / "locks" / queue.parent.name / f"{queue.stem}.lock"


POLL_SET_AT = "coalesce(set_at, submitted_at)"
READ_LATEST_TIMES = (
    "select max(since), max(died_at), max(iif(state = 'waiting', set_at, null)) from unit",
    f"select max(submitted_at), max({POLL_SET_AT}) from batch",
)
CORRECT_TIMES = (
    f"update unit set due_at = :now, set_at = :now where state = 'waiting' and {is_from_future_sql('set_at')}",
    f"update unit set since = :now where {is_from_future_sql('since')}",
    f"update unit set died_at = :now where {is_from_future_sql('died_at')}",
    f"update batch set next_poll_at = :now, set_at = :now where {is_from_future_sql(POLL_SET_AT)}",
    f"update batch set submitted_at = :now where {is_from_future_sql('submitted_at')}",
)


def correct_times(queue: Queue, now: float) -> float | None:
    """Set times to `now` that were stored while the clock was ahead.

    Return the latest of these times; None if there were none. A run calls this function at its start. Afterwards
    waits and ages continue from the present clock. Times of settled rows stay, because they are in the records.
    """
    times = [time for query in READ_LATEST_TIMES for time in queue.store.fetch_rows(query)[0] if time is not None]
    latest = max(times, default=now)
    if not is_from_future(latest, now):
        return None
    with queue.store.write_transaction():
        for statement in CORRECT_TIMES:
            queue.store.execute(statement, {"now": now})
    return latest
