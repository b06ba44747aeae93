"""The digests of a queue's rows: no changed byte of what it will send or write is read as other data.

A unit, a batch and a pack of settled rows each have one in their row, a small table has one for all its rows.
They are computed when a row is written and compared when it is read. Statements that change a unit or a small
table needn't know: triggers of the connection that writes the queue follow up. A row that was damaged before
it was changed stays damaged.

Not covered are the columns that only say when and how often a unit is tried, why it isn't there yet, and the
counts of runs and of mirrors' rows. Its state is a word, of which no changed letter makes another one.
"""

import zlib
from collections.abc import Sequence
from typing import Any, Final

from ondatra_dagster.store.database import Store, Value

STATES: Final = frozenset({"pending", "claimed", "waiting", "dead"})
# what unit_digest() is of, in its order
UNIT_COLUMNS: Final = (
    "key",
    "belongs_to",
    "is_context",
    "version",
    "base",
    "tried",
    "target",
    "rows",
    "phase",
    "key_renewals",
)
BATCH_COLUMNS: Final = ("number", "rows", "seed", "is_part", "units", "job", "submitted_at", "masked_job")
SETTLED_COLUMNS: Final = ("run_id", "type", "count", "started_at", "ended_at", "rows", "file")
SEALED: Final = {"meta": ("name", "value"), "layout": ("id", "columns"), "run": ("run_id", "about", "files")}
DAMAGED: Final = -1  # the digest of no row

_PRIME: Final = 4_294_967_291  # below 2**32: no changed bit of a number leaves its remainder


def _of_table(table: str) -> str:
    names = SEALED[table]
    row = " || ' ' || ".join(f"quote({name})" for name in names)
    rows = f"select {row} as row from main.{table} order by {names[0]}"
    return f"coalesce((select group_concat(row, ' ') from ({rows})), '')"


def _prefixed(prefix: str, names: Sequence[str]) -> str:
    return ", ".join(f"{prefix}.{name}" for name in names)


def _update_trigger(table: str, names: Sequence[str], function: str) -> str:
    old, new = (f"{function}({_prefixed(prefix, names)})" for prefix in ("old", "new"))
    return f"""
        create temp trigger if not exists digest_of_{table} after update of {", ".join(names)} on main.{table}
        begin
            update {table} set digest = iif(old.digest is {old}, {new}, {DAMAGED}) where id = new.id;
        end
    """


TRIGGERS: Final = (
    _update_trigger("unit", UNIT_COLUMNS, "unit_digest"),
    _update_trigger("batch", BATCH_COLUMNS, "row_digest"),
    *(
        f"""
        create temp trigger if not exists seal_{table}_{event} after {event} on main.{table}
        begin
            update seal set digest = row_digest({_of_table(table)}) where name = '{table}';
        end
        """
        for table in SEALED
        for event in ("insert", "update", "delete")
    ),
)
SEALS: Final = {
    table: f"select {_of_table(table)}, (select digest from seal where name = ?)" for table in SEALED
}


def unit_digest(values: Sequence[Any]) -> int:
    """Return the digest of the values of UNIT_COLUMNS; it is called for each row that is sent."""
    key, belongs_to, is_context, version, base, tried, target, rows, phase, renewals = values
    numbers = version * 4096 + renewals * 65_521 + rows * 16 + phase * 4 + is_context * 2 + (tried is None)
    text = f"{key}\x1f{belongs_to}\x1f{base}\x1f{target}\x1f{'' if tried is None else tried}"
    return zlib.crc32(text.encode(), numbers % _PRIME)


def row_digest(*values: Value) -> int:
    """Return the digest of any row; whole numbers count as equal to those that SQLite makes real."""
    digest = 0
    for value in values:
        if isinstance(value, bytes):
            digest = zlib.crc32(value, zlib.crc32(b"b", digest))
        elif isinstance(value, str):
            digest = zlib.crc32(value.encode(), zlib.crc32(b"s", digest))
        else:
            digest = zlib.crc32(repr(value and float(value)).encode(), zlib.crc32(b"n", digest))
    return digest


def _digest_or_none(*values: Any) -> int | None:
    try:
        return unit_digest(values)
    except (TypeError, ValueError, OverflowError):  # a value has become one of another type
        return None


def follow_changes(store: Store) -> None:
    """Let the digests follow all changes of this connection, which is the one that writes the queue."""
    store.add_function("unit_digest", _digest_or_none)
    store.add_function("row_digest", row_digest)
    for trigger in TRIGGERS:
        store.run(trigger)


def check_seals(store: Store) -> None:
    """Raise StateError unless the small tables are as they were written."""
    for table, statement in SEALS.items():
        ((text, digest),) = store.rows(statement, (table,))
        if digest is None and not text:
            continue  # nothing was ever in it
        if digest != row_digest(text):
            raise store.damage(f"its table {table} isn't as it was written")


def check_unit(store: Store, unit: object, values: Sequence[Any], digest: object) -> None:
    """Raise StateError unless the values of UNIT_COLUMNS are as they were written."""
    try:
        if unit_digest(values) == digest:
            return
    except (TypeError, ValueError, OverflowError):  # a value has become one of another type
        pass
    raise store.damage(f"unit {unit} isn't as it was written")


def check_row(store: Store, table: str, row: object, values: Sequence[Any], digest: object) -> None:
    """Raise StateError unless the values of a row are as they were written."""
    if row_digest(*values) != digest:
        raise store.damage(f"row {row} of its table {table} isn't as it was written")
