"""Tables in plain Python with the change feed of their kind, for tests that need no warehouse."""

import dataclasses
import random
from collections.abc import Iterator

import orjson

from ondatra_dagster.delivery.acknowledged_to_desired_diff import UnitKind
from ondatra_dagster.row_changes import ChangeType, Column, FeedPage, FeedSegment, InvalidRow, Layout, RowChange
from ondatra_dagster.sync.run_context import SourceState

LAYOUT = Layout((Column("id", "string"), Column("value", "int")))


@dataclasses.dataclass
class KeyedFeedTable:
    """A table with the feed of its kind: merge's for rows, tracked's for groups."""

    shape: UnitKind
    rows: dict[str, list[tuple[int, int]]] = dataclasses.field(default_factory=dict)  # key → (rowid, value)…
    feed: list[RowChange] = dataclasses.field(default_factory=list)
    version: int = 0
    next_rowid: int = 1

    @property
    def layout(self) -> Layout:
        return LAYOUT

    def write(self, key: str, values: list[int]) -> None:
        """Write one version that gives the key these values."""
        self.version += 1
        old = self.rows.get(key, [])
        keep = self.shape is UnitKind.ROW and old and values
        rowids = [old[0][0]] if keep else [self._next_rowid() for _ in values]
        new = list(zip(rowids, values, strict=True))
        before, now = (
            (ChangeType.UPDATE_PREIMAGE, ChangeType.UPDATE_POSTIMAGE)
            if keep
            else (ChangeType.DELETE, ChangeType.INSERT)
        )
        for change_type, rows in ((before, old), (now, new)):
            for rowid, value in rows:
                payload = orjson.dumps([key, value]).decode()
                self.feed.append(RowChange(key, rowid, change_type, self.version, payload))
        self.rows[key] = new

    def _next_rowid(self) -> int:
        self.next_rowid += 1
        return self.next_rowid

    def read_segment(self, after: int, upto: int | None = None) -> FeedSegment:
        last = self.version if upto is None else upto
        changes = sorted((c for c in self.feed if after < c.version <= last), key=lambda c: (c.key, c.version))
        return FeedSegment(after, last, [FeedPage(LAYOUT, changes)])

    def content(self) -> dict[str, list[int]]:
        return {key: sorted(value for _, value in rows) for key, rows in self.rows.items() if rows}

    def source(self) -> SourceState:
        return SourceState(
            table_id="table", version=self.version, invalid_version=-1, invalid_count=0, columns=LAYOUT.columns
        )

    def segments(self, after: int | None, upto: int) -> Iterator[FeedSegment]:
        """Yield the segment that a sync requests; a first sync gets the rows of that version."""
        if after is not None or not self.version:
            yield self.read_segment(after or 0, upto)
            return
        newest = {change.rowid: change for change in self.feed if change.version <= upto}
        rows = [
            change._replace(change_type=ChangeType.INSERT, version=upto)
            for change in newest.values()
            if change.change_type in (ChangeType.INSERT, ChangeType.UPDATE_POSTIMAGE)
        ]
        yield FeedSegment(-1, upto, [FeedPage(LAYOUT, sorted(rows, key=lambda row: (row.key, row.rowid)))])

    def invalid_rows(self, after: int, upto: int) -> Iterator[InvalidRow]:
        yield from ()


def random_steps(shape: UnitKind, chance: random.Random, *, keys: str, steps: int) -> Iterator[tuple[str, list[int]]]:
    """Yield random steps: keys get ever newer values, and sometimes none."""
    for step in range(1, steps + 1):
        count = 0 if chance.random() < 0.25 else 1 if shape is UnitKind.ROW else chance.randint(1, 4)
        yield chance.choice(keys), [100 * step + n for n in range(count)]
