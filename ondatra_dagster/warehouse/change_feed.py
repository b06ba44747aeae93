"""The changes of a table between two versions, in pages that fit into memory."""

import dataclasses
import itertools
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import pyarrow as pa
from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 - as all of Spark's documentation calls it

from ondatra_dagster import row_changes
from ondatra_dagster.deltalog.log_reader import count_changed_bytes, read_table_size, read_table_state, split_feed_range
from ondatra_dagster.deltalog.removable_history import find_last_equal_commit, find_oldest_readable_version
from ondatra_dagster.planning.find_table_and_columns import invalid_table_path
from ondatra_dagster.project.sql.output_and_system_columns import (
    CHANGE_TYPE_COLUMN,
    COMMIT_VERSION_COLUMN,
    FEED_COLUMNS,
    REASON_COLUMN,
    ROWID_COLUMN,
)
from ondatra_dagster.row_changes import ChangeType, FeedPage, FeedSegment, InvalidRow, Layout, RowChange
from ondatra_dagster.warehouse.arrow_to_json import array_texts, json_columns, key_identifiers, object_texts
from ondatra_dagster.warehouse.row_equality_and_hashes import column_of
from ondatra_dagster.warehouse.schema_evolution import visible_fields
from ondatra_dagster.warehouse.spark.error_messages import explain_spark_errors
from ondatra_dagster.warehouse.spark.memory_and_tuning_by_work_size import tune_for_size
from ondatra_dagster.warehouse.spark.session import Warehouse

TYPE_COLUMN, VERSION_COLUMN, PAGE_COLUMN = CHANGE_TYPE_COLUMN, COMMIT_VERSION_COLUMN, "__ondatra_page"
PAGE_BYTES = 8_000_000  # bytes of Parquet files: some hundred thousand rows, which need ten times as much memory
CHANGE_TYPES = {change_type.value: change_type for change_type in ChangeType}
DELETE, INSERT = ChangeType.DELETE.value, ChangeType.INSERT.value
UPDATE_PREIMAGE, UPDATE_POSTIMAGE = ChangeType.UPDATE_PREIMAGE.value, ChangeType.UPDATE_POSTIMAGE.value
REMOVING_TYPES = (DELETE, UPDATE_PREIMAGE)
# the order of change types: deleted rows before inserted ones, an update's preimage before its postimage
TYPE_ORDER = ([DELETE], [UPDATE_PREIMAGE], [UPDATE_POSTIMAGE], [INSERT])
# both images of an update have the same position
SENDING_ORDER = ([DELETE], [UPDATE_PREIMAGE, UPDATE_POSTIMAGE], [INSERT])


class _PageOrder(NamedTuple):
    page_columns: list[Column]  # rows that are equal in these columns are on the same page
    sort_columns: list[Column]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ChangeFeed:
    """The change feed of one model's table. Spark isn't started before a page is read.

    If changes are grouped by key, all changes of a key are next to each other, oldest first. Otherwise they are in the
    order of versions, deletions before insertions. In this second order each row has only its net change: a row that
    was added and deleted is left out.
    """

    warehouse: Warehouse
    table: str
    key_columns: tuple[str, ...]
    groups_by_key: bool  # True: the delivery key is the key; False: the rowid
    page_bytes: int = PAGE_BYTES

    def segments(self, after: int | None, upto: int) -> Iterator[FeedSegment]:
        """Yield a segment for each range of versions in (after, upto] in which no column was lost or changed.

        If `after` is None, yield the content of the table at version `upto`.
        """
        if after is None:
            yield FeedSegment(-1, upto, self._snapshot_pages(upto))
            return
        for start, end in split_feed_range(self.table, after=after, upto=upto):
            yield FeedSegment(start, end, self._change_pages(start, end))

    def invalid_rows(self, after: int, upto: int) -> Iterator[InvalidRow]:
        """Yield the rows that became invalid in (after, upto], which are versions of the table of invalid rows.

        If the first of these versions can't be read any more, begin with all rows of the oldest readable version.
        """
        table = invalid_table_path(self.table)
        state = read_table_state(table)
        first_readable = find_oldest_readable_version(table, state) if state else after
        if after < first_readable <= upto:
            with explain_spark_errors(table):
                yield from self._read_invalid_rows(*_read_snapshot(self.warehouse, table, first_readable))
        for start, end in split_feed_range(table, after=max(after, first_readable), upto=upto):
            size = count_changed_bytes(table, after=start, upto=end)
            if size:
                with explain_spark_errors(table):
                    is_insert = F.col(TYPE_COLUMN) == ChangeType.INSERT.value
                    yield from self._read_invalid_rows(self._read_changes(table, start, end).where(is_insert), size)

    def _read_invalid_rows(self, rows: DataFrame, size: int) -> Iterator[InvalidRow]:
        names = _model_columns(rows)
        selected_rows = rows.select(*map(column_of, (*names, ROWID_COLUMN, VERSION_COLUMN, REASON_COLUMN)))
        order = _PageOrder([F.col(VERSION_COLUMN), F.col(ROWID_COLUMN)], [F.col(VERSION_COLUMN), F.col(ROWID_COLUMN)])
        for page in self._arrow_pages(selected_rows, order, size):
            yield from _to_invalid_rows(page, names, self._key_positions(names))

    def _snapshot_pages(self, version: int) -> Iterator[FeedPage]:
        with explain_spark_errors(self.table):
            yield from self._feed_pages(*_read_snapshot(self.warehouse, self.table, version))

    def _change_pages(self, after: int, upto: int) -> Iterator[FeedPage]:
        size = count_changed_bytes(self.table, after=after, upto=upto)
        if not size:  # the versions only have ALTERs, and between the steps of one the table may lack a key column
            return
        with explain_spark_errors(self.table):
            rows = self._read_changes(self.table, after, upto)
            if not self.groups_by_key and upto - after > 1:
                rows = _net_changes(rows)
            yield from self._feed_pages(rows, size)

    def _read_changes(self, table: str, after: int, upto: int) -> DataFrame:
        reader = self.warehouse.session.read.format("delta").option("readChangeFeed", "true")
        reader = reader.option("startingVersion", find_last_equal_commit(table, after) + 1)
        return reader.option("endingVersion", upto).load(table)

    def _feed_pages(self, rows: DataFrame, size: int) -> Iterator[FeedPage]:
        names = _model_columns(rows)
        layout = Layout(
            tuple(
                row_changes.Column(field.name, field.dataType.simpleString())
                for field in rows.schema.fields
                if field.name in names
            )
        )
        selected_rows = rows.select(*map(column_of, (*names, ROWID_COLUMN, VERSION_COLUMN, TYPE_COLUMN)))
        for page in self._arrow_pages(selected_rows, self._page_order(), size):
            if page.num_rows:
                key_places = self._key_positions(names)
                yield FeedPage(layout, _to_changes(page, len(names), key_places, by_key=self.groups_by_key))

    def _page_order(self) -> _PageOrder:
        """Return the order of changes: grouped by key, or as they have to be sent."""
        order_in_key = [F.col(VERSION_COLUMN), _type_position(TYPE_ORDER), F.col(ROWID_COLUMN)]
        if not self.groups_by_key:
            row_order = [F.col(VERSION_COLUMN), _type_position(SENDING_ORDER), F.col(ROWID_COLUMN)]
            return _PageOrder(row_order, [*row_order, _type_position(TYPE_ORDER)])
        keys = [column_of(name) for name in self.key_columns]
        return _PageOrder(keys, [*keys, *order_in_key])

    def _key_positions(self, names: Sequence[str]) -> list[int]:
        """Return the positions of the key's columns in `names`, the columns of the payload."""
        casefold_names = [name.casefold() for name in names]
        return [casefold_names.index(name.casefold()) for name in self.key_columns]

    def _arrow_pages(self, rows: DataFrame, order: _PageOrder, size: int) -> Iterator[pa.Table]:
        """Yield the rows in this order.

        A large result is read in pages, because toArrow() holds a whole result in memory.
        """
        tune_for_size(self.warehouse.session, self.warehouse.settings, size)
        page_count = -(-size // self.page_bytes)
        if page_count <= 1:
            yield rows.orderBy(*order.sort_columns).toArrow()
            return
        sorted_rows = rows.repartitionByRange(page_count, *order.page_columns).sortWithinPartitions(*order.sort_columns)
        numbered_rows = sorted_rows.withColumn(PAGE_COLUMN, F.spark_partition_id()).persist()
        try:
            for page in range(page_count):
                yield numbered_rows.where(F.col(PAGE_COLUMN) == page).drop(PAGE_COLUMN).toArrow()
        finally:
            numbered_rows.unpersist()


def _read_snapshot(warehouse: Warehouse, table: str, version: int) -> tuple[DataFrame, int]:
    """Return the rows of a table at a version, and their approximate size in bytes.

    Each row is returned as an insert of this version.
    """
    reader = warehouse.session.read.format("delta").option("versionAsOf", find_last_equal_commit(table, version))
    insert = F.lit(ChangeType.INSERT.value)
    rows = reader.load(table).withColumns({TYPE_COLUMN: insert, VERSION_COLUMN: F.lit(version).cast("bigint")})
    # the log no longer lists the files of removed commits, so the table's size may be the better estimate
    return rows, max(count_changed_bytes(table, after=-1, upto=version), read_table_size(table) or 0)


def _model_columns(rows: DataFrame) -> list[str]:
    """Return the names of the model's own columns among the columns of the rows."""
    return [field.name for field in visible_fields(rows.schema) if field.name not in FEED_COLUMNS]


def _net_changes(rows: DataFrame) -> DataFrame:
    """Return the net change of each row, made of its state before the first change and its state after the last."""
    row_window = Window.partitionBy(ROWID_COLUMN)
    oldest_first = row_window.orderBy(VERSION_COLUMN, _type_position(TYPE_ORDER))
    newest_first = row_window.orderBy(F.col(VERSION_COLUMN).desc(), _type_position(TYPE_ORDER).desc())
    marked_rows = rows.withColumns(
        {
            "__ondatra_was_there": F.first(TYPE_COLUMN).over(oldest_first).isin(*REMOVING_TYPES),
            "__ondatra_is_there": ~F.first(TYPE_COLUMN).over(newest_first).isin(*REMOVING_TYPES),
            "__ondatra_first": F.row_number().over(oldest_first) == 1,
            "__ondatra_last": F.row_number().over(newest_first) == 1,
            VERSION_COLUMN: F.max(VERSION_COLUMN).over(row_window),
        }
    )
    was_there, is_there = F.col("__ondatra_was_there"), F.col("__ondatra_is_there")
    is_base, is_target = F.col("__ondatra_first") & was_there, F.col("__ondatra_last") & is_there
    net_type = F.when(is_base, F.when(is_there, UPDATE_PREIMAGE).otherwise(DELETE)).when(
        is_target, F.when(was_there, UPDATE_POSTIMAGE).otherwise(INSERT)
    )
    return marked_rows.withColumn(TYPE_COLUMN, net_type).where(F.col(TYPE_COLUMN).isNotNull()).select(*rows.columns)


def _type_position(order: Sequence[Sequence[str]]) -> Column:
    """Return the position of a change's type in an order in which several types may have the same position."""
    positions = [F.when(F.col(TYPE_COLUMN).isin(*types), position) for position, types in enumerate(order)]
    return F.coalesce(*positions)


def _to_changes(arrow: pa.Table, width: int, key_places: Sequence[int], *, by_key: bool) -> list[RowChange]:
    columns = json_columns(arrow.select(range(width)))
    rowids, versions, types = (arrow.column(width + index).to_pylist() for index in range(3))
    keys = key_identifiers([columns[index] for index in key_places])
    change_types = map(CHANGE_TYPES.__getitem__, types)
    group_keys = keys if by_key else map(str, rowids)
    belongs_to = itertools.repeat("") if by_key or not keys else keys
    return list(map(RowChange, group_keys, rowids, change_types, versions, array_texts(columns), belongs_to))


def _to_invalid_rows(arrow: pa.Table, names: Sequence[str], key_places: Sequence[int]) -> Iterator[InvalidRow]:
    columns = json_columns(arrow.select(range(len(names))))
    rowids, versions, reasons = (arrow.column(len(names) + index).to_pylist() for index in range(3))
    keys = key_identifiers([columns[index] for index in key_places])
    yield from map(InvalidRow, keys, reasons, versions, rowids, object_texts(names, columns))
