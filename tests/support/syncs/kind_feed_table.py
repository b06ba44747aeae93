"""Tables of every kind in plain Python, with rowids and the feed that a sync reads, without Spark."""

import collections
import dataclasses
import random
from collections import Counter
from collections.abc import Iterator

import orjson
from support.random_histories import expected_kind_changes
from support.random_histories.expected_kind_changes import Row

from ondatra_dagster.project.model_kinds import KINDS, Kind
from ondatra_dagster.row_changes import ChangeType, Column, FeedPage, FeedSegment, InvalidRow, Layout, RowChange
from ondatra_dagster.sync.run_context import SourceState

KEY_PARTS = 2  # columns of a key in `expected_kind_changes`
COLUMNS = (Column("id", "string"), Column("part", "string"), Column("value", "int"))
SCD2_COLUMNS = (
    Column("valid_from_snapshot", "bigint"),
    Column("valid_to_snapshot", "bigint"),
    Column("is_current", "boolean"),
)
REMOVED_VALUE_TYPES = {ChangeType.DELETE, ChangeType.UPDATE_PREIMAGE}
# the feed's order: deletes before inserts, the two images of an update together
CHANGE_TYPE_ORDER = {
    ChangeType.DELETE: 0,
    ChangeType.UPDATE_PREIMAGE: 1,
    ChangeType.UPDATE_POSTIMAGE: 1,
    ChangeType.INSERT: 2,
}


@dataclasses.dataclass
class KindFeedTable:
    """A table, its query's current rows, and all changes of its past."""

    kind_name: str
    by_key: bool = False  # the feed's delivery key is the key's value, as for a mirrored partition
    query_values: dict[str, list[int]] = dataclasses.field(default_factory=dict)  # key → values
    expected_table: expected_kind_changes.ExpectedTable = dataclasses.field(
        default_factory=expected_kind_changes.ExpectedTable
    )
    feed: list[RowChange] = dataclasses.field(default_factory=list)
    content_by_version: list[dict[str, list[int]]] = dataclasses.field(default_factory=list)  # contents by version
    table_id: str = "table"
    columns: tuple[Column, ...] = COLUMNS
    _rowids: dict[Row, list[int]] = dataclasses.field(default_factory=lambda: collections.defaultdict(list))
    _next_rowid: int = 1

    @property
    def kind(self) -> Kind:
        return KINDS[self.kind_name]

    @property
    def version(self) -> int:
        return self.expected_table.version

    @property
    def layout(self) -> Layout:
        return Layout(self.columns + (SCD2_COLUMNS if self.kind.own_columns else ()))

    def write(self, key: str, values: list[int]) -> None:
        """Let the query give these values for the key; write a version if the kind finds a change."""
        self.query_values[key] = values
        now = Counter((key, "p", value) for key, values in self.query_values.items() for value in values)
        changes = expected_kind_changes.APPLY_BY_KIND[self.kind_name](self.expected_table, now)
        if not changes:
            return
        self.expected_table.version += 1
        for change_type, *row in sorted(changes, key=lambda line: CHANGE_TYPE_ORDER[ChangeType(line[0])]):
            self._add_change(ChangeType(change_type), tuple(row))
        self.content_by_version.append(self.content_by_key())

    def remove(self, key: str) -> None:
        """Delete a key that its kind would keep, as a full refresh does."""
        del self.query_values[key]
        self.expected_table.version += 1
        for row in [row for row in self.expected_table.rows if row[0] == key]:
            del self.expected_table.rows[row]
            self._add_change(ChangeType.DELETE, row)
        self.content_by_version.append(self.content_by_key())

    def change_column_type(self, name: str, new_type: str) -> None:
        """Give a column of the table another type from now on."""
        self.columns = tuple(
            column._replace(type=new_type) if column.name == name else column for column in self.columns
        )

    def rename_keys(self, **names: str) -> None:
        """Rename the delivery keys, as another key of the model does."""
        self.feed = [change._replace(key=names[change.key]) for change in self.feed]

    def _add_change(self, change_type: ChangeType, row: Row) -> None:
        if change_type in REMOVED_VALUE_TYPES:
            rowid = self._rowids[row].pop()
        elif change_type is ChangeType.UPDATE_POSTIMAGE:
            rowid = self.feed[-1].rowid
        else:
            rowid = self._next_rowid
            self._next_rowid += 1
        if change_type not in REMOVED_VALUE_TYPES:
            self._rowids[row].append(rowid)
        self.feed.append(self._build_change(row, rowid, change_type, self.version))

    def _build_change(self, row: Row, rowid: int, change_type: ChangeType, version: int) -> RowChange:
        key = row[0] if self.kind.delivers_by_key or self.by_key else str(rowid)
        belongs_to = "" if key == row[0] or not self.kind.needs_key else row[0]
        return RowChange(key, rowid, change_type, version, orjson.dumps(row).decode(), belongs_to)

    def content_by_key(self) -> dict[str, list[int]]:
        """Return the values of each key."""
        values_by_key = collections.defaultdict(list)
        for row in self.expected_table.rows.elements():
            values_by_key[row[0]].append(row[KEY_PARTS])
        return {key: sorted(values) for key, values in values_by_key.items()}

    def content_by_rowid(self) -> dict[str, list[object]]:
        """Return each row by its rowid."""
        return {str(rowid): list(row) for row, rowids in self._rowids.items() for rowid in rowids}

    def find_change_version(self, rowid: int, change_type: ChangeType) -> int | None:
        """Return the version of the row's change of that type, or None."""
        versions = (change.version for change in self.feed if change[1:3] == (rowid, change_type))
        return next(versions, None)

    def source(self) -> SourceState:
        return SourceState(
            table_id=self.table_id,
            version=self.version,
            invalid_version=-1,
            invalid_count=0,
            columns=self.layout.columns,
        )

    def segments(self, after: int | None, upto: int) -> Iterator[FeedSegment]:
        """Yield the segment that a sync requests; a first sync gets the rows of that version."""
        changes = self._snapshot(upto) if after is None else self._changes(after, upto)
        yield FeedSegment(-1 if after is None else after, upto, [FeedPage(self.layout, changes)])

    def invalid_rows(self, after: int, upto: int) -> Iterator[InvalidRow]:
        yield from ()

    def _snapshot(self, version: int) -> list[RowChange]:
        there = {}
        for change in self.feed:
            if change.version <= version:
                there[change.rowid] = change
        changes = [
            change._replace(change_type=ChangeType.INSERT, version=version)
            for change in there.values()
            if change.change_type not in REMOVED_VALUE_TYPES
        ]
        return sorted(changes, key=lambda change: (change.key if self._is_by_key else "", change.rowid))

    def _changes(self, after: int, upto: int) -> list[RowChange]:
        changes = [change for change in self.feed if after < change.version <= upto]
        if self._is_by_key:
            return sorted(changes, key=lambda change: (change.key, change.version))  # stable for one key and version
        return sorted(
            merge_row_changes(changes), key=lambda change: (change.version, CHANGE_TYPE_ORDER[change[2]], change.rowid)
        )

    @property
    def _is_by_key(self) -> bool:
        return self.kind.delivers_by_key or self.by_key


def merge_row_changes(changes: list[RowChange]) -> Iterator[RowChange]:
    """Yield the net effect of each row's changes."""
    rows = collections.defaultdict(list)
    for change in changes:
        rows[change.rowid].append(change)
    for of_row in rows.values():
        first, last = of_row[0], of_row[-1]
        was_there, is_there = (first.change_type in REMOVED_VALUE_TYPES, last.change_type not in REMOVED_VALUE_TYPES)
        if was_there:
            before = ChangeType.UPDATE_PREIMAGE if is_there else ChangeType.DELETE
            yield first._replace(change_type=before, version=last.version)
        if is_there:
            yield last._replace(change_type=ChangeType.UPDATE_POSTIMAGE if was_there else ChangeType.INSERT)


def random_kind_steps(kind: Kind, chance: random.Random, *, keys: str, count: int) -> Iterator[tuple[str, list[int]]]:
    """Yield random steps: keys get ever newer values, and sometimes none."""
    is_one = kind.checks_duplicates
    for step in range(1, count + 1):
        rows = 0 if chance.random() < 0.25 else 1 if is_one else chance.randint(1, 4)
        yield chance.choice(keys), [100 * step + n for n in range(rows)]
