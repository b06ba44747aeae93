"""A table of any kind in plain Python, with the change feed that Delta would give: the kit's warehouse."""

import collections
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TypeAlias

import orjson

from ondatra_dagster.changes import Change, ChangeType, Column, FeedPage, Json, Layout, Segment, identifier
from ondatra_dagster.delivery.shapes import is_by_key
from ondatra_dagster.delivery.target import Shape
from ondatra_dagster.testing.conformance.case import PushCase, Row

TYPES = {bool: "boolean", int: "bigint", float: "double", str: "string"}
SCD2_TYPES = {"valid_from_snapshot": "bigint", "valid_to_snapshot": "bigint", "is_current": "boolean"}
Told: TypeAlias = Iterator[tuple[ChangeType, int, Row]]  # change type, rowid, row


class SampleTable:
    """The table of one case."""

    def __init__(self, case: PushCase, shape: Shape) -> None:
        self._case = case
        self._shape = shape
        self._rows: dict[int, Row] = {}  # rowid → row
        self._version = 0
        self._next = 1
        self.layout = Layout(tuple(_columns(case)))

    def write(self, given: Sequence[Row]) -> Segment:
        """The query gives these rows now; what the feed has of it."""
        self._version += 1
        told = list(WRITERS[self._case.kind](self, [dict(row) for row in given]))
        after = -1 if self._version == 1 else self._version - 1
        changes = [self._change(*each) for each in told]
        if self._is_whole:
            changes = self._content() if changes else []
        elif is_by_key(self._case.kind_of, self._shape):
            changes.sort(key=lambda change: change.key)  # those of one key stand together
        return Segment(after, self._version, [FeedPage(self.layout, changes)])

    @property
    def _is_whole(self) -> bool:
        return self._shape is Shape.MIRROR and not self._case.key

    def _content(self) -> list[Change]:
        """The rows that are there, as one unit; none is content, too."""
        there = [self._change(ChangeType.INSERT, rowid, row) for rowid, row in self._rows.items()]
        return there or [Change("", 0, ChangeType.DELETE, self._version, "[]")]

    def _change(self, change_type: ChangeType, rowid: int, row: Row) -> Change:
        key = identifier(self._key(row)) if self._case.key else ""
        payload = orjson.dumps([row.get(name) for name in self.layout.names]).decode()
        if self._is_whole or is_by_key(self._case.kind_of, self._shape):
            return Change("" if self._is_whole else key, rowid, change_type, self._version, payload)
        return Change(str(rowid), rowid, change_type, self._version, payload, key)

    def _key(self, row: Row) -> list[Json]:
        return [row[name] for name in self._case.key]

    def _insert(self, rows: Sequence[Row]) -> Told:
        for row in rows:
            self._rows[self._next] = row
            yield ChangeType.INSERT, self._next, row
            self._next += 1

    def _delete(self, rowids: Sequence[int]) -> Told:
        for rowid in rowids:
            yield ChangeType.DELETE, rowid, self._rows.pop(rowid)

    def _update(self, rowid: int, row: Row) -> Told:
        yield ChangeType.UPDATE_PREIMAGE, rowid, self._rows[rowid]
        yield ChangeType.UPDATE_POSTIMAGE, rowid, row
        self._rows[rowid] = row

    def _table(self, given: list[Row]) -> Told:
        if _counted(given) != _counted(self._rows.values()):
            yield from self._delete(list(self._rows))
            yield from self._insert(given)

    def _append(self, given: list[Row]) -> Told:
        there = _counted(self._rows.values())
        for row in given:
            text = _text(row)
            if there[text]:
                there[text] -= 1
            else:
                yield from self._insert([row])

    def _merge(self, given: list[Row]) -> Told:
        there = {_text(self._key(row)): rowid for rowid, row in self._rows.items()}
        for row in given:
            rowid = there.get(_text(self._key(row)))
            if rowid is None:
                yield from self._insert([row])
            elif self._rows[rowid] != row:
                yield from self._update(rowid, row)

    def _by_key(self, given: list[Row]) -> Told:
        """Groups and partitions are replaced as a whole; groups that aren't given go, partitions stay."""
        now: dict[str, list[Row]] = collections.defaultdict(list)
        there: dict[str, list[int]] = collections.defaultdict(list)
        for row in given:
            now[_text(self._key(row))].append(row)
        for rowid, row in self._rows.items():
            there[_text(self._key(row))].append(rowid)
        looked_at = now if self._case.kind == "partition" else {**there, **now}
        for key in list(looked_at):
            if _counted(now[key]) != _counted(self._rows[rowid] for rowid in there[key]):
                yield from self._delete(there[key])
                yield from self._insert(now[key])

    def _scd2(self, given: list[Row]) -> Told:
        current = {_text(self._key(row)): rowid for rowid, row in self._rows.items() if row["is_current"]}
        now = {_text(self._key(row)): row for row in given}
        for key in [key for key in current if self._differs(current[key], now.get(key))]:
            closed = {"valid_to_snapshot": self._version, "is_current": False}
            yield from self._update(current[key], {**self._rows[current.pop(key)], **closed})
        opened = {"valid_from_snapshot": self._version, "valid_to_snapshot": None, "is_current": True}
        yield from self._insert([{**row, **opened} for key, row in now.items() if key not in current])

    def _differs(self, rowid: int, row: Row | None) -> bool:
        there = {name: value for name, value in self._rows[rowid].items() if name not in SCD2_TYPES}
        return there != row


WRITERS: Mapping[str, Callable[[SampleTable, list[Row]], Told]] = {
    "table": SampleTable._table,  # noqa: SLF001 - a table of its own methods
    "append": SampleTable._append,  # noqa: SLF001
    "merge": SampleTable._merge,  # noqa: SLF001
    "tracked": SampleTable._by_key,  # noqa: SLF001
    "partition": SampleTable._by_key,  # noqa: SLF001
    "scd2": SampleTable._scd2,  # noqa: SLF001
}


def _columns(case: PushCase) -> Iterator[Column]:
    values: dict[str, Json] = {}
    for row in (row for rows in case.versions for row in rows):
        for name, value in row.items():
            if values.get(name) is None:
                values[name] = value
    for name, value in values.items():
        yield Column(name, case.types.get(name) or TYPES.get(type(value), "string"))
    if case.kind == "scd2":
        yield from (Column(name, kind) for name, kind in SCD2_TYPES.items())


def _text(value: object) -> str:
    return orjson.dumps(value, option=orjson.OPT_SORT_KEYS).decode()


def _counted(rows: Iterator[Row] | Sequence[Row] | object) -> collections.Counter[str]:
    return collections.Counter(map(_text, rows))  # type: ignore[arg-type]
