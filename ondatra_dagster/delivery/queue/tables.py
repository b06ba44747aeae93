"""The queue file of one sync: its tables, and the few values that stand for the whole of it.

One process writes it, which holds its lock; the lock ends with its owner, so what a dead owner had
claimed is free at once. The verbs on the tables are the other modules of this package; states looks at a
queue that another process may be writing.

A unit is a delivery key that the API may not have as the table has it. Of a key without a unit, the API has
the table's row.
"""

import contextlib
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path

import orjson

from ondatra_dagster.changes import Column, Layout
from ondatra_dagster.delivery.frontier import NOTHING_ENQUEUED
from ondatra_dagster.delivery.queue.digests import check_seals, follow_changes
from ondatra_dagster.delivery.target import Shape
from ondatra_dagster.errors import BusyError, StateError
from ondatra_dagster.store.database import Schema, Store, connect
from ondatra_dagster.store.lock import FileLock

IF_DAMAGED = (
    "move it away: the next run makes it again from the frontier and the records, and sends nothing that is"
    " recorded there again; only how long rows have waited, or been dead, is forgotten"
)
SCHEMA = Schema(
    "queue",
    (
        (
            "first",
            """
            create table meta (name text primary key, value) without rowid;
            -- the newest has the highest number: columns that come back are numbered anew
            create table layout (id integer primary key, columns text not null);
            -- base, tried and target are images, see delivery/target.py
            -- a version above the watermark is not visible yet
            create table unit (
                id integer primary key,
                key text not null unique,
                belongs_to text not null,  -- of a row by its rowid: the key's value, the partition's
                is_context integer not null default 0,  -- a delete beside inserts that take the row's place
                version integer not null,
                base text not null,
                tried text,
                target text not null,
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
                refused_at integer,  -- the try at which a dead one was refused, null when it ran out of tries
                digest integer not null  -- see digests
            );
            create index unit_next on unit (state, phase, outages, id);
            -- the newest target of keys that have a unit already, until its version becomes visible
            create table staged (key text primary key, version integer not null, target text not null,
                digest integer not null);
            -- what was handed to push, just as it was: a crash sends exactly this again
            create table batch (
                id integer primary key,
                number integer not null,
                rows text not null,
                seed text not null,
                is_part integer not null,
                begun integer not null default 0,
                crashes integer not null default 0,
                answered integer not null default 0,
                -- what an asynchronous API made of it, as JSON, with times in seconds since 1970
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
            -- how many units of a run that goes on were planned, succeeded, rejected, failed
            create table run_count (
                run_id text,
                cell text,
                operation text,
                units integer not null,
                primary key (run_id, cell, operation)
            ) without rowid;
            -- how many rows the API has of each mirror, whose base isn't kept
            create table content (key text primary key, rows integer not null) without rowid;
            -- the digest of all rows of a small table
            create table seal (name text primary key, digest integer) without rowid;
            insert into seal (name) values ('meta'), ('layout'), ('run')
            """,
        ),
    ),
    if_damaged=IF_DAMAGED,
)

# the name of a span of runs: what they recorded as set aside the queue takes for new, see sync/records.py
ASIDE_TOLD_IN = "set_aside_told_in"
GENERATION = "generation"  # the name of a text in all idempotency keys: each resync draws a new one
OWED = "owed_to_finalize"  # the name of what is kept for it, see delivery/finalizing.py
FORGOTTEN = "forgotten"  # in the notes of a queue that has none beside it

# by what people know a unit: a version of a key by that key
IDENTIFIER = "iif((select value from meta where name = 'shape') = 'version', belongs_to, key)"
# what the API has: what is to be deleted may be there though nobody has heard so
HELD = "iif(base = '' and target = '', coalesce(tried, ''), base)"
# how many rows there are of an image, which has a line a row
IMAGE_ROWS = "iif({0} = '', 0, 1 + length({0}) - length(replace({0}, char(10), '')))"
# only versions are looked for by their key, so only they pay for it
INDEX_KEYS = "create index if not exists unit_of_key on unit (belongs_to)"
READ_META = "select value from meta where name = ?"
WRITE_META = "insert into meta values (?, ?) on conflict (name) do update set value = excluded.value"
FORGET_META = "delete from meta where name = ?"
READ_LAYOUTS = "select id, columns from layout"
ADD_LAYOUT = "insert into layout (columns) values (?) returning id"


class Queue:
    """An open queue file. Only its owner has one."""

    def __init__(self, store: Store, *, shape: Shape, replaces_rows: bool, is_whole_table: bool) -> None:
        self.store = store
        self.shape = shape
        self.replaces_rows = replaces_rows
        self.is_whole_table = is_whole_table
        check_seals(store)
        follow_changes(store)
        self.reload_layouts()
        if shape is Shape.VERSION:
            store.run(INDEX_KEYS)
        if self.meta("queue_id") is None:
            self.set_meta("queue_id", str(uuid.uuid4()))
        if self.meta("shape") is None:  # else it stays that of the units, see form
            self.set_meta("shape", shape.value)

    def meta(self, name: str) -> str | None:
        found = self.store.rows(READ_META, (name,))
        return None if not found or found[0][0] is None else str(found[0][0])

    def set_meta(self, name: str, value: str | int) -> None:
        self.store.run(WRITE_META, (name, value))

    def forget_meta(self, *names: str) -> None:
        self.store.run_many(FORGET_META, [(name,) for name in names])

    @property
    def id(self) -> str:
        return str(self.meta("queue_id"))

    @property
    def watermark(self) -> int:
        """The newest version whose changes are all in the queue, or were delivered."""
        return int(self.meta("watermark") or NOTHING_ENQUEUED)

    @property
    def invalid_watermark(self) -> int:
        """The same for the table of rows that were set aside."""
        return int(self.meta("invalid_watermark") or NOTHING_ENQUEUED)

    @property
    def layouts(self) -> Mapping[int, Layout]:
        return self._layouts

    def reload_layouts(self) -> None:
        self._layouts = read_layouts(self.store)

    def layout_id(self, layout: Layout) -> int:
        """The number under which the images name this layout, the newest from now on."""
        newest = max(self._layouts, default=0)
        if self._layouts.get(newest) != layout:
            newest = int(self.store.rows(ADD_LAYOUT, (dump_layout(layout),))[0][0])
            self._layouts[newest] = layout
        return newest


@contextlib.contextmanager
def open_queue(
    path: Path,
    *,
    shape: Shape,
    replaces_rows: bool = False,
    is_whole_table: bool = False,
    lock: Path | None = None,
) -> Iterator[Queue]:
    """The queue file at `path`, this process being the one that writes it; BusyError when another is.

    Where new rows replace old ones, deletes go before inserts. The content of a whole table is a unit that no
    key names. The lock is beside the file unless somebody says where.
    """
    with FileLock(lock or path.with_suffix(".lock"), purpose="delivers"), _connect(path) as store:
        with store.explaining_damage():
            yield Queue(store, shape=shape, replaces_rows=replaces_rows, is_whole_table=is_whole_table)
        store.checkpoint()


def _connect(path: Path) -> Store:
    """Open the file; a process that writes it without its lock delivers nothing, so it is no BusyError."""
    try:
        return connect(path, SCHEMA)
    except BusyError as error:
        raise StateError(str(error)) from error


def leave_forgotten(path: Path) -> None:
    """Put a queue at `path` that knows just that it was forgotten; the caller holds its lock."""
    with connect(path, SCHEMA) as store:
        follow_changes(store)
        store.run(WRITE_META, (FORGOTTEN, 1))
        store.checkpoint()


def dump_layout(layout: Layout) -> str:
    return orjson.dumps([[column.name, column.type] for column in layout.columns]).decode()


def load_layout(text: str) -> Layout:
    return Layout(tuple(Column(name, kind) for name, kind in orjson.loads(text)))


def read_shape(store: Store) -> Shape | None:
    """What the units are that lie in the file; None: there are none yet."""
    found = store.rows(READ_META, ("shape",))
    return Shape(found[0][0]) if found else None


def units_of_lines(text: str) -> list[int]:
    """Return the units of a frozen batch: each of its lines begins with one."""
    return [int(line.partition(" ")[0]) for line in text.split("\n")]


def read_layouts(store: Store) -> dict[int, Layout]:
    return {int(number): load_layout(str(text)) for number, text in store.rows(READ_LAYOUTS)}
