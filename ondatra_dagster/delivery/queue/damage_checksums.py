"""The digests of a queue's rows, which keep data with a changed byte from being sent or stored.

A unit, a batch and a chunk of settled rows each have a digest in their row. A small table has one digest for all
its rows. A digest is computed when a row is written and compared when the row is read. Triggers of the writing
connection update the digest of a unit or a small table, so statements needn't do it. If a row is damaged and then
changed, its digest still shows the damage.

Some columns aren't covered: when and how often a unit is tried, its message, and the counts of runs and of mirrors'
rows. A unit's state isn't covered either: no changed letter makes another state of this word.
"""

import zlib
from collections.abc import Sequence
from typing import Any, Final

from ondatra_dagster.storage.sqlite_database import SqliteStore, SqlValue

UNIT_STATES: Final = frozenset({"pending", "claimed", "waiting", "dead"})
# the columns whose digest unit_digest() returns, in its order
UNIT_COLUMNS: Final = (
    "key",
    "belongs_to",
    "is_context",
    "version",
    "acknowledged",
    "maybe_sent",
    "desired",
    "rows",
    "phase",
    "key_renewals",
)
BATCH_COLUMNS: Final = ("number", "rows", "seed", "is_part", "units", "job", "submitted_at", "masked_job")
SETTLED_COLUMNS: Final = ("run_id", "type", "count", "started_at", "ended_at", "rows", "file")
DIGESTED_TABLES: Final = {"meta": ("name", "value"), "layout": ("id", "columns"), "run": ("run_id", "about", "files")}
DAMAGED_DIGEST: Final = -1  # no row has this digest

_PRIME: Final = 4_294_967_291  # below 2**32: each changed bit of a number changes its remainder


def _table_text_sql(table: str) -> str:
    names = DIGESTED_TABLES[table]
    row = " || ' ' || ".join(f"quote({name})" for name in names)
    rows = f"select {row} as row from main.{table} order by {names[0]}"
    return f"coalesce((select group_concat(row, ' ') from ({rows})), '')"


def _update_trigger(table: str, names: Sequence[str], function: str) -> str:
    old, new = (f"{function}({', '.join(f'{row}.{name}' for name in names)})" for row in ("old", "new"))
    return f"""
        create temp trigger if not exists digest_of_{table} after update of {", ".join(names)} on main.{table}
        begin
            update {table} set digest = iif(old.digest is {old}, {new}, {DAMAGED_DIGEST}) where id = new.id;
        end
    """


DIGEST_TRIGGERS: Final = (
    _update_trigger("unit", UNIT_COLUMNS, "unit_digest"),
    _update_trigger("batch", BATCH_COLUMNS, "row_digest"),
    *(
        f"""
        create temp trigger if not exists seal_{table}_{event} after {event} on main.{table}
        begin
            update seal set digest = row_digest({_table_text_sql(table)}) where name = '{table}';
        end
        """
        for table in DIGESTED_TABLES
        for event in ("insert", "update", "delete")
    ),
)
TABLE_DIGEST_QUERIES: Final = {
    table: f"select {_table_text_sql(table)}, (select digest from seal where name = ?)" for table in DIGESTED_TABLES
}


def unit_digest(values: Sequence[Any]) -> int:
    """Return the digest of a unit's UNIT_COLUMNS. This function is called for each row that is sent."""
    key, belongs_to, is_context, version, acknowledged, maybe_sent, desired, rows, phase, renewals = values
    numbers = version * 4096 + renewals * 65_521 + rows * 16 + phase * 4 + is_context * 2 + (maybe_sent is None)
    text = f"{key}\x1f{belongs_to}\x1f{acknowledged}\x1f{desired}\x1f{'' if maybe_sent is None else maybe_sent}"
    return zlib.crc32(text.encode(), numbers % _PRIME)


def row_digest(*values: SqlValue) -> int:
    """Return the digest of any other row.

    A whole number gives the same digest as a real one, which SQLite makes of it.
    """
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
    except (TypeError, ValueError, OverflowError):  # a damaged value has another type
        return None


def install_digest_triggers(store: SqliteStore) -> None:
    """Install triggers that keep the digests up to date, on the connection that writes the queue."""
    store.add_function("unit_digest", _digest_or_none)
    store.add_function("row_digest", row_digest)
    for trigger in DIGEST_TRIGGERS:
        store.execute(trigger)


def check_table_digests(store: SqliteStore) -> None:
    """Raise StateError if one of the small tables (meta, layout, run) is damaged."""
    for table, statement in TABLE_DIGEST_QUERIES.items():
        ((text, digest),) = store.fetch_rows(statement, (table,))
        if digest is None and not text:
            continue  # the table never had a row
        if digest != row_digest(text):
            raise store.damage_error(f"its table {table} is damaged")


def check_unit_digest(store: SqliteStore, unit: object, values: Sequence[Any], digest: object) -> None:
    """Raise StateError unless `digest` is the digest of `values`, the unit's values of UNIT_COLUMNS."""
    try:
        if unit_digest(values) == digest:
            return
    except (TypeError, ValueError, OverflowError):  # a damaged value has another type
        pass
    raise store.damage_error(f"unit {unit} is damaged")


def check_row_digest(store: SqliteStore, table: str, row: object, values: Sequence[Any], digest: object) -> None:
    """Raise StateError unless `digest` is the digest of the row's values."""
    if row_digest(*values) != digest:
        raise store.damage_error(f"row {row} of its table {table} is damaged")
