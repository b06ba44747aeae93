"""What changed in a table between two versions, in pages that fit into memory."""

import dataclasses
import itertools
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import pyarrow as pa
from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 - as all of Spark's documentation calls it

from ondatra_dagster import changes
from ondatra_dagster.changes import Change, ChangeType, FeedPage, InvalidRow, Layout, Segment
from ondatra_dagster.planning.delta_log import (
    changed_bytes,
    feed_segments,
    invalid_path,
    read_table_state,
    table_bytes,
)
from ondatra_dagster.planning.delta_schema import CHANGE_TYPE, COMMIT_VERSION, FEED_COLUMNS, REASON, ROWID
from ondatra_dagster.planning.table_past import readable_from, rows_stay_until
from ondatra_dagster.warehouse.column_types import visible
from ondatra_dagster.warehouse.comparison import column_of
from ondatra_dagster.warehouse.payloads import array_texts, identifiers, json_columns, object_texts
from ondatra_dagster.warehouse.spark_errors import explained_at
from ondatra_dagster.warehouse.spark_session import Warehouse
from ondatra_dagster.warehouse.work_size import tune

TYPE, VERSION, PAGE = CHANGE_TYPE, COMMIT_VERSION, "__ondatra_page"
PAGE_BYTES = 8_000_000  # of Parquet files: some hundred thousand rows, and ten times that in memory
CHANGE_TYPES = {change_type.value: change_type for change_type in ChangeType}
DELETE, INSERT = ChangeType.DELETE.value, ChangeType.INSERT.value
UPDATE_PREIMAGE, UPDATE_POSTIMAGE = ChangeType.UPDATE_PREIMAGE.value, ChangeType.UPDATE_POSTIMAGE.value
TAKES_AWAY = (DELETE, UPDATE_PREIMAGE)
# what goes before what comes, an update's old image before its new one
PLACES = ([DELETE], [UPDATE_PREIMAGE], [UPDATE_POSTIMAGE], [INSERT])
SENDING = ([DELETE], [UPDATE_PREIMAGE, UPDATE_POSTIMAGE], [INSERT])  # an update's images stand together


class _Order(NamedTuple):
    together: list[Column]  # rows that are equal in these are never on two pages, but for one row's own
    within: list[Column]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ChangeFeed:
    """The change feed of one model's table. Spark starts when a page is asked for, not before.

    By key, all changes of a key stand together, oldest first. Else they stand in the order of versions, what
    goes before what comes, and each row tells what its changes come to: one that came and went isn't there.
    """

    warehouse: Warehouse
    table: str
    key_columns: tuple[str, ...]
    by_key: bool  # else the delivery key is the rowid
    page_bytes: int = PAGE_BYTES

    def segments(self, after: int | None, upto: int) -> Iterator[Segment]:
        """The versions in (after, upto], cut where a column went or changed; None: the table at `upto`."""
        if after is None:
            yield Segment(-1, upto, self._snapshot_pages(upto))
            return
        for start, end in feed_segments(self.table, after=after, upto=upto):
            yield Segment(start, end, self._change_pages(start, end))

    def invalid(self, after: int, upto: int) -> Iterator[InvalidRow]:
        """The rows that were newly set aside in (after, upto], which are versions of the table beside.

        Where the first of them were freed, it begins with the rows that were there then.
        """
        table = invalid_path(self.table)
        state = read_table_state(table)
        first = readable_from(table, state) if state else after
        if after < first <= upto:
            with explained_at(table):
                yield from self._invalid_rows(_snapshot(self.warehouse, table, first), _size(table, first))
        for start, end in feed_segments(table, after=max(after, first), upto=upto):
            size = changed_bytes(table, after=start, upto=end)
            if size:
                with explained_at(table):
                    newly = F.col(TYPE) == ChangeType.INSERT.value
                    yield from self._invalid_rows(self._read_changes(table, start, end).where(newly), size)

    def _invalid_rows(self, rows: DataFrame, size: int) -> Iterator[InvalidRow]:
        names = _names(rows)
        chosen = rows.select(*map(column_of, (*names, ROWID, VERSION, REASON)))
        order = _Order([F.col(VERSION), F.col(ROWID)], [F.col(VERSION), F.col(ROWID)])
        for arrow in self._arrow_pages(chosen, order, size):
            yield from _invalid_rows(arrow, names, self._key_places(names))

    def _snapshot_pages(self, version: int) -> Iterator[FeedPage]:
        with explained_at(self.table):
            yield from self._pages(_snapshot(self.warehouse, self.table, version), _size(self.table, version))

    def _change_pages(self, after: int, upto: int) -> Iterator[FeedPage]:
        size = changed_bytes(self.table, after=after, upto=upto)
        if not size:  # nothing but an ALTER, between whose steps the table may lack its very key
            return
        with explained_at(self.table):
            rows = self._read_changes(self.table, after, upto)
            if not self.by_key and upto - after > 1:
                rows = _net(rows)
            yield from self._pages(rows, size)

    def _read_changes(self, table: str, after: int, upto: int) -> DataFrame:
        read = self.warehouse.session.read.format("delta").option("readChangeFeed", "true")
        read = read.option("startingVersion", rows_stay_until(table, after) + 1)
        return read.option("endingVersion", upto).load(table)

    def _pages(self, rows: DataFrame, size: int) -> Iterator[FeedPage]:
        names = _names(rows)
        layout = Layout(
            tuple(
                changes.Column(field.name, field.dataType.simpleString())
                for field in rows.schema.fields
                if field.name in names
            )
        )
        chosen = rows.select(*map(column_of, (*names, ROWID, VERSION, TYPE)))
        for arrow in self._arrow_pages(chosen, self._order(), size):
            if arrow.num_rows:
                places = self._key_places(names)
                yield FeedPage(layout, _changes(arrow, len(names), places, by_key=self.by_key))

    def _order(self) -> _Order:
        """How changes stand: all of a key together, or as they have to be sent."""
        within = [F.col(VERSION), _place(PLACES), F.col(ROWID)]
        if not self.by_key:
            by_row = [F.col(VERSION), _place(SENDING), F.col(ROWID)]
            return _Order(by_row, [*by_row, _place(PLACES)])
        keys = [column_of(name) for name in self.key_columns]
        return _Order(keys, [*keys, *within])

    def _key_places(self, names: Sequence[str]) -> list[int]:
        """Where the key's columns stand among the payload's."""
        folded = [name.casefold() for name in names]
        return [folded.index(name.casefold()) for name in self.key_columns]

    def _arrow_pages(self, rows: DataFrame, order: _Order, size: int) -> Iterator[pa.Table]:
        """The rows in order; toArrow holds a whole answer in memory, so a large one is asked for in parts."""
        tune(self.warehouse.session, self.warehouse.settings, size)
        parts = -(-size // self.page_bytes)
        if parts <= 1:
            yield rows.orderBy(*order.within).toArrow()
            return
        ranged = rows.repartitionByRange(parts, *order.together).sortWithinPartitions(*order.within)
        numbered = ranged.withColumn(PAGE, F.spark_partition_id()).persist()
        try:
            for part in range(parts):
                yield numbered.where(F.col(PAGE) == part).drop(PAGE).toArrow()
        finally:
            numbered.unpersist()


def _snapshot(warehouse: Warehouse, table: str, version: int) -> DataFrame:
    """The table as it was, each row as if it came in that version."""
    read = warehouse.session.read.format("delta").option("versionAsOf", rows_stay_until(table, version))
    insert = F.lit(ChangeType.INSERT.value)
    return read.load(table).withColumns({TYPE: insert, VERSION: F.lit(version).cast("bigint")})


def _size(table: str, version: int) -> int:
    """How large the table was, about: of commits that have gone the log no longer says what they wrote."""
    return max(changed_bytes(table, after=-1, upto=version), table_bytes(table) or 0)


def _names(rows: DataFrame) -> list[str]:
    """The model's own columns."""
    return [field.name for field in visible(rows.schema) if field.name not in FEED_COLUMNS]


def _net(rows: DataFrame) -> DataFrame:
    """Of each row what its changes come to: how it was before the first, and how it is after the last."""
    of_row = Window.partitionBy(ROWID)
    in_order = of_row.orderBy(VERSION, _place(PLACES))
    backwards = of_row.orderBy(F.col(VERSION).desc(), _place(PLACES).desc())
    ends = rows.withColumns(
        {
            "__ondatra_was_there": F.first(TYPE).over(in_order).isin(*TAKES_AWAY),
            "__ondatra_is_there": ~F.first(TYPE).over(backwards).isin(*TAKES_AWAY),
            "__ondatra_first": F.row_number().over(in_order) == 1,
            "__ondatra_last": F.row_number().over(backwards) == 1,
            VERSION: F.max(VERSION).over(of_row),
        }
    )
    was_there, is_there = F.col("__ondatra_was_there"), F.col("__ondatra_is_there")
    base, target = F.col("__ondatra_first") & was_there, F.col("__ondatra_last") & is_there
    net = F.when(base, F.when(is_there, UPDATE_PREIMAGE).otherwise(DELETE)).when(
        target, F.when(was_there, UPDATE_POSTIMAGE).otherwise(INSERT)
    )
    return ends.withColumn(TYPE, net).where(F.col(TYPE).isNotNull()).select(*rows.columns)


def _place(order: Sequence[Sequence[str]]) -> Column:
    """Where a change's type stands in an order in which some are equal."""
    places = [F.when(F.col(TYPE).isin(*types), place) for place, types in enumerate(order)]
    return F.coalesce(*places)


def _changes(arrow: pa.Table, width: int, key_places: Sequence[int], *, by_key: bool) -> list[Change]:
    columns = json_columns(arrow.select(range(width)))
    rowids, versions, types = (arrow.column(width + place).to_pylist() for place in range(3))
    keys = identifiers([columns[place] for place in key_places])
    change_types = map(CHANGE_TYPES.__getitem__, types)
    if by_key:
        return list(map(Change, keys, rowids, change_types, versions, array_texts(columns)))
    belongs_to = keys or itertools.repeat("")
    parts = (map(str, rowids), rowids, change_types, versions, array_texts(columns), belongs_to)
    return list(map(Change, *parts))


def _invalid_rows(arrow: pa.Table, names: Sequence[str], key_places: Sequence[int]) -> Iterator[InvalidRow]:
    columns = json_columns(arrow.select(range(len(names))))
    rowids, versions, reasons = (arrow.column(len(names) + place).to_pylist() for place in range(3))
    keys = identifiers([columns[place] for place in key_places])
    yield from map(InvalidRow, keys, reasons, versions, rowids, object_texts(names, columns))
