"""The kind tracked: rows belong to groups; a group is rewritten whole when anything in it differs."""

from functools import reduce

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - as all of Spark's documentation calls it

from ondatra_dagster.deltalog.system_columns import REASON_COLUMN
from ondatra_dagster.warehouse.kinds.group_comparison import OLD_ROWS, GroupComparison
from ondatra_dagster.warehouse.kinds.key_comparison import NULL_KEY
from ondatra_dagster.warehouse.kinds.write_interface import WriteRequest, WriteResult, count_existing_rows
from ondatra_dagster.warehouse.row_comparison import ROW_COUNT, column_of
from ondatra_dagster.warehouse.target_table import TargetTable


def write_tracked(work: WriteRequest) -> WriteResult:
    """Delete and insert of every row of each group that differs, in one commit; none when no group does."""
    target = work.target
    source = work.rows.persist()
    groups = GroupComparison(query_rows=source, table_rows=target.rows, target=target, key_names=target.key_columns)
    # the rows without a key are a group here too, which the table never has
    differing = groups.differing_groups().persist()
    try:
        lacks_key = _has_no_key(target)
        inserted, deleted, invalid = _count_rows(differing, lacks_key)
        new = groups.new_rows(differing.where(~lacks_key))
        work.check_before_commit(lambda: groups.rows_after(new, differing))
        aside = source.where(lacks_key).withColumn(REASON_COLUMN, F.lit(NULL_KEY))
        work.write_invalid_rows(aside, {NULL_KEY: invalid} if invalid else {})
        told = work.commit_note(rows=count_existing_rows(target) + inserted - deleted)
        if deleted:
            target.merge(new.unionByName(groups.old_rowids(differing), allowMissingColumns=True), told)
        elif inserted:
            target.append(new, told)
        return WriteResult(inserted=inserted, deleted=deleted, rows=told.rows or 0)
    finally:
        differing.unpersist()
        source.unpersist()


def _count_rows(groups: DataFrame, lacks_key: Column) -> tuple[int, int, int]:
    """How many rows come, go, and are invalid."""
    found = groups.agg(
        F.sum(F.when(~lacks_key, column_of(ROW_COUNT))), F.sum(OLD_ROWS), F.sum(F.when(lacks_key, column_of(ROW_COUNT)))
    ).collect()[0]
    inserted, deleted, invalid = (int(number or 0) for number in found)
    return inserted, deleted, invalid


def _has_no_key(target: TargetTable) -> Column:
    return reduce(Column.__and__, [column_of(name).isNull() for name in target.key_columns])
