"""The effect of each kind on a table, in plain Python: rows in, changes out. Tests compare Spark and Delta with it."""

import collections
import dataclasses
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

Row = tuple[Any, ...]  # first a key of two columns, the second may be null; all values are hashable
ExpectedChange = tuple[Any, ...]  # a change type, then the row

INSERT, DELETE = "insert", "delete"
PREIMAGE, POSTIMAGE = "update_preimage", "update_postimage"


@dataclasses.dataclass
class ExpectedTable:
    """A table of one kind."""

    rows: Counter[Row] = dataclasses.field(default_factory=Counter)  # scd2: with its three columns
    version: int = 0
    last_query_rows: Counter[Row] = dataclasses.field(default_factory=Counter)  # the query's rows at the newest commit


def key_of(row: Row) -> Row:
    return row[:2]


def group_by_key(rows: Iterable[Row]) -> dict[Row, Counter[Row]]:
    groups: dict[Row, Counter[Row]] = collections.defaultdict(Counter)
    for row in rows:
        groups[key_of(row)][row] += 1
    return groups


def replace_all(old: Counter[Row], new: Counter[Row]) -> list[ExpectedChange]:
    return [*((DELETE, *row) for row in old.elements()), *((INSERT, *row) for row in new.elements())]


def apply_table(state: ExpectedTable, query_rows: Counter[Row]) -> list[ExpectedChange]:
    if query_rows == state.rows:
        return []
    changes = replace_all(state.rows, query_rows)
    state.rows = query_rows
    return changes


def apply_append(state: ExpectedTable, query_rows: Counter[Row]) -> list[ExpectedChange]:
    new = query_rows - state.last_query_rows
    if new:
        state.rows = state.rows + new
        state.last_query_rows = query_rows
    return [(INSERT, *row) for row in new.elements()]


def valid_rows_by_key(query_rows: Counter[Row]) -> dict[Row, Row | None]:
    """Return the only row of each key; None for a key whose rows are all invalid."""
    return {
        key: next(iter(rows)) if rows.total() == 1 and None not in key else None
        for key, rows in group_by_key(query_rows.elements()).items()
    }


def count_invalid_rows(query_rows: Counter[Row]) -> dict[str, int]:
    """Return the number of rows that are invalid for merge and scd2, by reason."""
    counts: Counter[str] = Counter()
    for key, rows in group_by_key(query_rows.elements()).items():
        if None in key:
            counts["NULL"] += rows.total()
        elif rows.total() > 1:
            counts["DUPLICATE"] += rows.total()
    return dict(counts)


def apply_merge(state: ExpectedTable, query_rows: Counter[Row]) -> list[ExpectedChange]:
    old = {key_of(row): row for row in state.rows}
    changes: list[ExpectedChange] = []
    for key, row in valid_rows_by_key(query_rows).items():
        if row is None or old.get(key) == row:
            continue
        changes += [(PREIMAGE, *old[key]), (POSTIMAGE, *row)] if key in old else [(INSERT, *row)]
        old[key] = row
    state.rows = Counter(old.values())
    return changes


def apply_tracked(state: ExpectedTable, query_rows: Counter[Row]) -> list[ExpectedChange]:
    return _apply_changed_groups(state, group_by_key(query_rows.elements()), deletes_missing=True)


def apply_partition(state: ExpectedTable, query_rows: Counter[Row]) -> list[ExpectedChange]:
    return _apply_changed_groups(state, group_by_key(query_rows.elements()), deletes_missing=False)


def _apply_changed_groups(
    state: ExpectedTable, new: dict[Row, Counter[Row]], *, deletes_missing: bool
) -> list[ExpectedChange]:
    old = group_by_key(state.rows.elements())
    changes: list[ExpectedChange] = []
    for key in {*new, *(old if deletes_missing else ())}:
        had, has = old.get(key, Counter()), new.get(key, Counter())
        if had != has:
            changes += replace_all(had, has)
            old[key] = has
    state.rows = sum(old.values(), Counter())
    return changes


def apply_scd2(state: ExpectedTable, query_rows: Counter[Row]) -> list[ExpectedChange]:
    version = state.version + 1
    current = {key_of(row): row for row in state.rows if row[-1]}
    changes: list[ExpectedChange] = []
    new_rows = valid_rows_by_key(query_rows)
    for key in {*current, *new_rows}:
        old, new = current.get(key), new_rows.get(key)
        if (key in new_rows and new is None) or (old and new and old[:-3] == new):
            continue
        if old:
            closed = (*old[:-2], version, False)
            changes += [(PREIMAGE, *old), (POSTIMAGE, *closed)]
            state.rows = state.rows - Counter([old]) + Counter([closed])
        if new:
            opened = (*new, version, None, True)
            changes.append((INSERT, *opened))
            state.rows = state.rows + Counter([opened])
    return changes


APPLY_BY_KIND: dict[str, Callable[[ExpectedTable, Counter[Row]], list[ExpectedChange]]] = {
    "table": apply_table,
    "append": apply_append,
    "merge": apply_merge,
    "tracked": apply_tracked,
    "scd2": apply_scd2,
    "partition": apply_partition,
}
