"""Kind tracked: rows belong to groups; a group is rewritten whole when anything in it differs."""

from functools import reduce

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - as all of Spark's documentation calls it

from ondatra_dagster.planning.delta_schema import REASON
from ondatra_dagster.warehouse.comparison import ROWS, column_of
from ondatra_dagster.warehouse.delta_tables import Target
from ondatra_dagster.warehouse.kinds.effect import Effect, Work, rows_before
from ondatra_dagster.warehouse.kinds.groups import OLD_ROWS, Groups
from ondatra_dagster.warehouse.kinds.keyed_rows import NULL


def write(work: Work) -> Effect:
    """Delete and insert of every row of each group that differs, in one commit; none when no group does."""
    target = work.target
    source = work.rows.persist()
    groups = Groups(source=source, old=target.rows, target=target, names=target.key_columns)
    # the rows without a key are a group here too, which the table never has
    differing = groups.differing().persist()
    try:
        lacks_key = _lacks_key(target)
        inserted, deleted, invalid = _totals(differing, lacks_key)
        new = groups.new_rows(differing.where(~lacks_key))
        work.before_commit(lambda: groups.after(new, differing))
        aside = source.where(lacks_key).withColumn(REASON, F.lit(NULL))
        work.set_aside(aside, {NULL: invalid} if invalid else {})
        told = work.told(rows=rows_before(target) + inserted - deleted)
        if deleted:
            target.merge(new.unionByName(groups.old_rowids(differing), allowMissingColumns=True), told)
        elif inserted:
            target.append(new, told)
        return Effect(inserted=inserted, deleted=deleted, rows=told.rows or 0)
    finally:
        differing.unpersist()
        source.unpersist()


def _totals(groups: DataFrame, lacks_key: Column) -> tuple[int, int, int]:
    """How many rows come, go, and are invalid."""
    found = groups.agg(
        F.sum(F.when(~lacks_key, column_of(ROWS))),
        F.sum(OLD_ROWS),
        F.sum(F.when(lacks_key, column_of(ROWS))),
    ).collect()[0]
    inserted, deleted, invalid = (int(number or 0) for number in found)
    return inserted, deleted, invalid


def _lacks_key(target: Target) -> Column:
    return reduce(Column.__and__, [column_of(name).isNull() for name in target.key_columns])
