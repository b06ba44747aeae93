"""The kind append: a run adds the query's new rows, and never changes or deletes a row."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - as all of Spark's documentation calls it

from ondatra_dagster.warehouse.create_and_write_target_table import TargetTable
from ondatra_dagster.warehouse.kinds.write_interface import WriteRequest, WriteResult, count_existing_rows
from ondatra_dagster.warehouse.row_equality_and_hashes import row_difference

ORDER_COLUMN = "__ondatra_order"


def write_append(work: WriteRequest) -> WriteResult:
    """Insert every row that the query returns now and didn't return before, in one commit."""
    # the rows are computed only if they are needed, and only once
    query_rows = _with_order(work.rows, work).persist()
    new_rows = _new_rows(query_rows, work).persist()
    try:
        inserted = new_rows.count()
        work.check_before_commit(lambda: _rows_after(new_rows, work.target))
        rows = count_existing_rows(work.target) + inserted
        if inserted:
            work.target.append(sort_by_order(new_rows), work.commit_note(rows=rows))
        return WriteResult(inserted=inserted, rows=rows)
    finally:
        new_rows.unpersist()
        query_rows.unpersist()


def _new_rows(query_rows: DataFrame, work: WriteRequest) -> DataFrame:
    """Return the query's new rows, compared with its previous result. If that is unknown, compare with the table."""
    fields = work.target.fields
    if work.target.is_empty:
        return query_rows
    if work.is_full:
        return row_difference(query_rows, work.target.rows, fields).only_left
    if changes := work.previous_results.changes():
        added_rows = _with_order(changes.added_rows, work)
        return (
            row_difference(added_rows, changes.removed_rows, fields).only_left if changes.removed_rows else added_rows
        )
    previous_rows = work.previous_results.rows()
    return row_difference(query_rows, work.target.rows if previous_rows is None else previous_rows, fields).only_left


def _rows_after(new: DataFrame, target: TargetTable) -> DataFrame:
    """Return all rows of the table as they will be after the write."""
    return target.select_fields(target.rows).unionByName(target.select_fields(new))


def _with_order(rows: DataFrame, work: WriteRequest) -> DataFrame:
    """Return the rows with a column for their position, if the query has an ORDER BY."""
    # Spark's ids increase from partition to partition of a sorted result
    return rows.withColumn(ORDER_COLUMN, F.monotonically_increasing_id()) if work.has_order_by else rows


def sort_by_order(rows: DataFrame) -> DataFrame:
    """Return the rows sorted by their position.

    Rows get rowids and are pushed in the order in which they are written.
    """
    if ORDER_COLUMN not in rows.columns:
        return rows
    return rows.repartition(1).sortWithinPartitions(ORDER_COLUMN).drop(ORDER_COLUMN)
