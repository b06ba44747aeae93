"""A table of any kind in plain Python, with a change feed like Delta's. It is the conformance kit's warehouse."""

import collections
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TypeAlias

import orjson

from ondatra_dagster.delivery.acknowledged_to_desired_diff import UnitKind
from ondatra_dagster.delivery.unit_shape_by_model_kind import is_named_by_key
from ondatra_dagster.row_changes import ChangeType, Column, FeedPage, FeedSegment, Json, Layout, RowChange, format_key
from ondatra_dagster.testing.conformance.push_test_input import PushCase, Row

TYPES_BY_PYTHON_TYPE = {bool: "boolean", int: "bigint", float: "double", str: "string"}
SCD2_TYPES = {"valid_from_snapshot": "bigint", "valid_to_snapshot": "bigint", "is_current": "boolean"}
RowChanges: TypeAlias = Iterator[tuple[ChangeType, int, Row]]  # change type, rowid, row


class InMemoryTable:
    """The table of one test case."""

    def __init__(self, case: PushCase, shape: UnitKind) -> None:
        self._case = case
        self._shape = shape
        self._rows: dict[int, Row] = {}  # rowid → row
        self._version = 0
        self._next_rowid = 1
        self.layout = Layout(tuple(_case_columns(case)))

    def write_rows(self, query_rows: Sequence[Row]) -> FeedSegment:
        """Write the query's rows as a new version. Return the changes in the table's feed for this version."""
        self._version += 1
        row_changes = list(WRITERS_BY_KIND[self._case.kind](self, [dict(row) for row in query_rows]))
        previous_version = -1 if self._version == 1 else self._version - 1
        changes = [self._build_change(*row_change) for row_change in row_changes]
        if self._is_single_unit:
            changes = self._whole_content() if changes else []
        elif is_named_by_key(self._case.model_kind, self._shape):
            changes.sort(key=lambda change: change.key)  # the feed has all changes of one key next to each other
        return FeedSegment(previous_version, self._version, [FeedPage(self.layout, changes)])

    @property
    def _is_single_unit(self) -> bool:
        return self._shape is UnitKind.MIRROR and not self._case.key

    def _whole_content(self) -> list[RowChange]:
        """Return the table's rows as the changes of one unit.

        For an empty table, return a delete with an empty list.
        """
        inserts = [self._build_change(ChangeType.INSERT, rowid, row) for rowid, row in self._rows.items()]
        return inserts or [RowChange("", 0, ChangeType.DELETE, self._version, "[]")]

    def _build_change(self, change_type: ChangeType, rowid: int, row: Row) -> RowChange:
        key = format_key(self._key_values(row)) if self._case.key else ""
        payload = orjson.dumps([row.get(name) for name in self.layout.names]).decode()
        if self._is_single_unit or is_named_by_key(self._case.model_kind, self._shape):
            return RowChange("" if self._is_single_unit else key, rowid, change_type, self._version, payload)
        return RowChange(str(rowid), rowid, change_type, self._version, payload, key)

    def _key_values(self, row: Row) -> list[Json]:
        return [row[name] for name in self._case.key]

    def _insert_rows(self, rows: Sequence[Row]) -> RowChanges:
        for row in rows:
            self._rows[self._next_rowid] = row
            yield ChangeType.INSERT, self._next_rowid, row
            self._next_rowid += 1

    def _delete_rows(self, rowids: Sequence[int]) -> RowChanges:
        for rowid in rowids:
            yield ChangeType.DELETE, rowid, self._rows.pop(rowid)

    def _update_row(self, rowid: int, row: Row) -> RowChanges:
        yield ChangeType.UPDATE_PREIMAGE, rowid, self._rows[rowid]
        yield ChangeType.UPDATE_POSTIMAGE, rowid, row
        self._rows[rowid] = row

    def _write_table(self, query_rows: list[Row]) -> RowChanges:
        if _count_rows(query_rows) != _count_rows(self._rows.values()):
            yield from self._delete_rows(list(self._rows))
            yield from self._insert_rows(query_rows)

    def _write_append(self, query_rows: list[Row]) -> RowChanges:
        unmatched_rows = _count_rows(self._rows.values())
        for row in query_rows:
            text = _json_text(row)
            if unmatched_rows[text]:
                unmatched_rows[text] -= 1
            else:
                yield from self._insert_rows([row])

    def _write_merge(self, query_rows: list[Row]) -> RowChanges:
        rowid_by_key = {_json_text(self._key_values(row)): rowid for rowid, row in self._rows.items()}
        for row in query_rows:
            rowid = rowid_by_key.get(_json_text(self._key_values(row)))
            if rowid is None:
                yield from self._insert_rows([row])
            elif self._rows[rowid] != row:
                yield from self._update_row(rowid, row)

    def _write_by_key(self, query_rows: list[Row]) -> RowChanges:
        """Replace the groups or partitions that differ.

        Groups without new rows are deleted; such partitions are kept.
        """
        new_rows: dict[str, list[Row]] = collections.defaultdict(list)
        old_rowids: dict[str, list[int]] = collections.defaultdict(list)
        for row in query_rows:
            new_rows[_json_text(self._key_values(row))].append(row)
        for rowid, row in self._rows.items():
            old_rowids[_json_text(self._key_values(row))].append(rowid)
        compared_keys = new_rows if self._case.kind == "partition" else {**old_rowids, **new_rows}
        for key in list(compared_keys):
            if _count_rows(new_rows[key]) != _count_rows(self._rows[rowid] for rowid in old_rowids[key]):
                yield from self._delete_rows(old_rowids[key])
                yield from self._insert_rows(new_rows[key])

    def _write_scd2(self, query_rows: list[Row]) -> RowChanges:
        current_rowids = {
            _json_text(self._key_values(row)): rowid for rowid, row in self._rows.items() if row["is_current"]
        }
        new_rows = {_json_text(self._key_values(row)): row for row in query_rows}
        for key in [key for key in current_rowids if self._is_changed(current_rowids[key], new_rows.get(key))]:
            end_columns = {"valid_to_snapshot": self._version, "is_current": False}
            yield from self._update_row(current_rowids[key], {**self._rows[current_rowids.pop(key)], **end_columns})
        start_columns = {"valid_from_snapshot": self._version, "valid_to_snapshot": None, "is_current": True}
        yield from self._insert_rows(
            [{**row, **start_columns} for key, row in new_rows.items() if key not in current_rowids]
        )

    def _is_changed(self, rowid: int, row: Row | None) -> bool:
        current_row = {name: value for name, value in self._rows[rowid].items() if name not in SCD2_TYPES}
        return current_row != row


WRITERS_BY_KIND: Mapping[str, Callable[[InMemoryTable, list[Row]], RowChanges]] = {
    "table": InMemoryTable._write_table,  # noqa: SLF001 - a table of its own methods
    "append": InMemoryTable._write_append,  # noqa: SLF001
    "merge": InMemoryTable._write_merge,  # noqa: SLF001
    "tracked": InMemoryTable._write_by_key,  # noqa: SLF001
    "partition": InMemoryTable._write_by_key,  # noqa: SLF001
    "scd2": InMemoryTable._write_scd2,  # noqa: SLF001
}


def _case_columns(case: PushCase) -> Iterator[Column]:
    values: dict[str, Json] = {}
    for row in (row for rows in case.versions for row in rows):
        for name, value in row.items():
            if values.get(name) is None:
                values[name] = value
    for name, value in values.items():
        yield Column(name, case.types.get(name) or TYPES_BY_PYTHON_TYPE.get(type(value), "string"))
    if case.kind == "scd2":
        yield from (Column(name, kind) for name, kind in SCD2_TYPES.items())


def _json_text(value: object) -> str:
    return orjson.dumps(value, option=orjson.OPT_SORT_KEYS).decode()


def _count_rows(rows: Iterator[Row] | Sequence[Row] | object) -> collections.Counter[str]:
    return collections.Counter(map(_json_text, rows))  # type: ignore[arg-type]
