"""Kind partition: of the partitions that the query returns, those that differ are replaced, no others.

A partition's files lie in a folder of their own, named by a digest of its key: not every value that a key
may have can be a folder's name.
"""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - as all of Spark's documentation calls it

from ondatra_dagster.planning.delta_schema import CONTENT_HASH, PARTITION
from ondatra_dagster.warehouse.comparison import ROWS, column_of, row_hashes
from ondatra_dagster.warehouse.delta_tables import Target
from ondatra_dagster.warehouse.kinds.effect import Effect, Work, rows_before
from ondatra_dagster.warehouse.kinds.groups import OLD_ROWS, Groups


def write(work: Work) -> Effect:
    """Delete and insert of every row of each partition that differs, in one commit; none when none does."""
    target = work.target
    source = work.rows.withColumn(PARTITION, _digest(target)).persist()
    # a key of another type has another digest, and so another folder than the rows that are there
    old = target.rows if target.trusts_hashes else target.rows.withColumn(PARTITION, _digest(target))
    groups = Groups(source=source, old=old, target=target, names=[PARTITION])
    differing = groups.differing()
    if not work.is_full:
        differing = differing.where(column_of(CONTENT_HASH).isNotNull())
    differing.persist()
    try:
        inserted, deleted = _totals(differing)
        told = work.told(rows=rows_before(target) + inserted - deleted)
        new = groups.new_rows(differing)
        work.before_commit(lambda: groups.after(new, differing))
        if deleted and target.is_partitioned and target.trusts_hashes and not work.is_full:
            target.overwrite_partitions(new, told)
        elif deleted:  # also those that have nothing to be overwritten with
            target.merge(new.unionByName(groups.old_rowids(differing), allowMissingColumns=True), told)
        elif inserted:
            target.append(new, told)
        return Effect(inserted=inserted, deleted=deleted, rows=told.rows or 0)
    finally:
        differing.unpersist()
        source.unpersist()


def _totals(groups: DataFrame) -> tuple[int, int]:
    """How many rows come and go."""
    found = groups.agg(F.sum(ROWS), F.sum(OLD_ROWS)).collect()[0]
    inserted, deleted = (int(number or 0) for number in found)
    return inserted, deleted


def _digest(target: Target) -> Column:
    """A text that is the same for the same key, whatever is in it."""
    keys = [field for field in target.fields if field.name in target.key_columns]
    return F.concat_ws("-", *(F.hex(number) for number in row_hashes(keys)))
