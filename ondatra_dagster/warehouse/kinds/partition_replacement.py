"""The kind partition: of the partitions that the query returns, those that differ are replaced, no others.

A partition's files lie in a folder of their own, named by a digest of its key: not every value that a key
may have can be a folder's name.
"""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - as all of Spark's documentation calls it

from ondatra_dagster.deltalog.system_columns import CONTENT_HASH_COLUMN, PARTITION_COLUMN
from ondatra_dagster.warehouse.kinds.group_comparison import OLD_ROWS, GroupComparison
from ondatra_dagster.warehouse.kinds.write_interface import WriteRequest, WriteResult, count_existing_rows
from ondatra_dagster.warehouse.row_comparison import ROW_COUNT, column_of, row_hashes
from ondatra_dagster.warehouse.target_table import TargetTable


def write_partitions(work: WriteRequest) -> WriteResult:
    """Delete and insert of every row of each partition that differs, in one commit; none when none does."""
    target = work.target
    source = work.rows.withColumn(PARTITION_COLUMN, _partition_digest(target)).persist()
    # a key of another type has another digest, and so another folder than the rows that are there
    old = (
        target.rows if target.has_valid_hashes else target.rows.withColumn(PARTITION_COLUMN, _partition_digest(target))
    )
    groups = GroupComparison(query_rows=source, table_rows=old, target=target, key_names=[PARTITION_COLUMN])
    differing = groups.differing_groups()
    if not work.is_full:
        differing = differing.where(column_of(CONTENT_HASH_COLUMN).isNotNull())
    differing.persist()
    try:
        inserted, deleted = _count_rows(differing)
        told = work.commit_note(rows=count_existing_rows(target) + inserted - deleted)
        new = groups.new_rows(differing)
        work.check_before_commit(lambda: groups.rows_after(new, differing))
        if deleted and target.is_partitioned and target.has_valid_hashes and not work.is_full:
            target.overwrite_partitions(new, told)
        elif deleted:  # also those that have nothing to be overwritten with
            target.merge(new.unionByName(groups.old_rowids(differing), allowMissingColumns=True), told)
        elif inserted:
            target.append(new, told)
        return WriteResult(inserted=inserted, deleted=deleted, rows=told.rows or 0)
    finally:
        differing.unpersist()
        source.unpersist()


def _count_rows(groups: DataFrame) -> tuple[int, int]:
    """How many rows come and go."""
    found = groups.agg(F.sum(ROW_COUNT), F.sum(OLD_ROWS)).collect()[0]
    inserted, deleted = (int(number or 0) for number in found)
    return inserted, deleted


def _partition_digest(target: TargetTable) -> Column:
    """A text that is the same for the same key, whatever is in it."""
    keys = [field for field in target.fields if field.name in target.key_columns]
    return F.concat_ws("-", *(F.hex(number) for number in row_hashes(keys)))
