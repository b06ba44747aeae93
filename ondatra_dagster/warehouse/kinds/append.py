"""Kind append: what the query newly gives is added, nothing is ever changed or taken away."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - as all of Spark's documentation calls it

from ondatra_dagster.warehouse.delta_tables import Target
from ondatra_dagster.warehouse.kinds.effect import Effect, Work, rows_before
from ondatra_dagster.warehouse.multisets import difference

ORDER = "__ondatra_order"


def write(work: Work) -> Effect:
    """Insert of every row that the query gives now and didn't give before, in one commit."""
    # evaluated only where it is asked for, and then once
    now = _in_turn(work.rows, work).persist()
    new = _new_rows(now, work).persist()
    try:
        inserted = new.count()
        work.before_commit(lambda: _after(new, work.target))
        rows = rows_before(work.target) + inserted
        if inserted:
            work.target.append(_as_they_came(new), work.told(rows=rows))
        return Effect(inserted=inserted, rows=rows)
    finally:
        new.unpersist()
        now.unpersist()


def _new_rows(now: DataFrame, work: Work) -> DataFrame:
    """What the query newly gives: beside what it gave then or, where nobody knows that, beside the table."""
    fields = work.target.fields
    if work.target.is_empty:
        return now
    if work.is_full:
        return difference(now, work.target.rows, fields).ours
    if changes := work.earlier.changes():
        came = _in_turn(changes.came, work)
        return difference(came, changes.went, fields).ours if changes.went else came
    then = work.earlier.rows()
    return difference(now, work.target.rows if then is None else then, fields).ours


def _after(new: DataFrame, target: Target) -> DataFrame:
    """All rows as they would be."""
    return target.only_fields(target.rows).unionByName(target.only_fields(new))


def _in_turn(rows: DataFrame, work: Work) -> DataFrame:
    """The rows with their place in the query's own order, where it has one."""
    # the ids rise with the parts of a sorted result
    return rows.withColumn(ORDER, F.monotonically_increasing_id()) if work.keeps_order else rows


def _as_they_came(rows: DataFrame) -> DataFrame:
    """Rows that are written one after another get rowids in that order, and are pushed in it."""
    if ORDER not in rows.columns:
        return rows
    return rows.repartition(1).sortWithinPartitions(ORDER).drop(ORDER)
