"""What each kind does to a table, in plain Python: rows in, changes out. Tests hold Spark and Delta to it."""

import collections
import dataclasses
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

Row = tuple[Any, ...]  # a key of two parts first, of which the second may be null; hashable throughout
Told = tuple[Any, ...]  # a change type, and the row

INSERT, DELETE = "insert", "delete"
BEFORE, AFTER = "update_preimage", "update_postimage"


@dataclasses.dataclass
class Table:
    """A table of one kind."""

    rows: Counter[Row] = dataclasses.field(default_factory=Counter)  # scd2: with its three columns
    version: int = 0
    then: Counter[Row] = dataclasses.field(
        default_factory=Counter
    )  # what the query gave at the newest commit


def key_of(row: Row) -> Row:
    return row[:2]


def by_key(rows: Iterable[Row]) -> dict[Row, Counter[Row]]:
    found: dict[Row, Counter[Row]] = collections.defaultdict(Counter)
    for row in rows:
        found[key_of(row)][row] += 1
    return found


def replaced(old: Counter[Row], new: Counter[Row]) -> list[Told]:
    return [*((DELETE, *row) for row in old.elements()), *((INSERT, *row) for row in new.elements())]


def table(state: Table, now: Counter[Row]) -> list[Told]:
    if now == state.rows:
        return []
    told = replaced(state.rows, now)
    state.rows = now
    return told


def append(state: Table, now: Counter[Row]) -> list[Told]:
    new = now - state.then
    if new:
        state.rows = state.rows + new
        state.then = now
    return [(INSERT, *row) for row in new.elements()]


def valid(now: Counter[Row]) -> dict[Row, Row | None]:
    """The one row of each key; None for a key of which no row can be written."""
    return {
        key: next(iter(rows)) if rows.total() == 1 and None not in key else None
        for key, rows in by_key(now.elements()).items()
    }


def invalid(now: Counter[Row]) -> dict[str, int]:
    """How many rows merge and scd2 set aside, by reason."""
    counts: Counter[str] = Counter()
    for key, rows in by_key(now.elements()).items():
        if None in key:
            counts["NULL"] += rows.total()
        elif rows.total() > 1:
            counts["DUPLICATE"] += rows.total()
    return dict(counts)


def merge(state: Table, now: Counter[Row]) -> list[Told]:
    old = {key_of(row): row for row in state.rows}
    told: list[Told] = []
    for key, row in valid(now).items():
        if row is None or old.get(key) == row:
            continue
        told += [(BEFORE, *old[key]), (AFTER, *row)] if key in old else [(INSERT, *row)]
        old[key] = row
    state.rows = Counter(old.values())
    return told


def tracked(state: Table, now: Counter[Row]) -> list[Told]:
    return _groups(state, by_key(now.elements()), goes=True)


def partition(state: Table, now: Counter[Row]) -> list[Told]:
    return _groups(state, by_key(now.elements()), goes=False)


def _groups(state: Table, new: dict[Row, Counter[Row]], *, goes: bool) -> list[Told]:
    old = by_key(state.rows.elements())
    told: list[Told] = []
    for key in {*new, *(old if goes else ())}:
        had, has = old.get(key, Counter()), new.get(key, Counter())
        if had != has:
            told += replaced(had, has)
            old[key] = has
    state.rows = sum(old.values(), Counter())
    return told


def scd2(state: Table, now: Counter[Row]) -> list[Told]:
    version = state.version + 1
    current = {key_of(row): row for row in state.rows if row[-1]}
    told: list[Told] = []
    given = valid(now)
    for key in {*current, *given}:
        old, new = current.get(key), given.get(key)
        if (key in given and new is None) or (old and new and old[:-3] == new):
            continue
        if old:
            closed = (*old[:-2], version, False)
            told += [(BEFORE, *old), (AFTER, *closed)]
            state.rows = state.rows - Counter([old]) + Counter([closed])
        if new:
            opened = (*new, version, None, True)
            told.append((INSERT, *opened))
            state.rows = state.rows + Counter([opened])
    return told


MODELS: dict[str, Callable[[Table, Counter[Row]], list[Told]]] = {
    "table": table,
    "append": append,
    "merge": merge,
    "tracked": tracked,
    "scd2": scd2,
    "partition": partition,
}
