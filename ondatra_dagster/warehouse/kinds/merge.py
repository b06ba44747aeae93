"""Kind merge: rows are told apart by a key; what is new or differs is written, nothing is ever deleted."""

import dataclasses
from functools import reduce

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 - as all of Spark's documentation calls it

from ondatra_dagster.planning.commit_note import CommitNote
from ondatra_dagster.planning.delta_schema import REASON, ROWID
from ondatra_dagster.warehouse.comparison import column_of, same_keys, same_rows
from ondatra_dagster.warehouse.delta_tables import Target
from ondatra_dagster.warehouse.kinds.effect import Effect, SetAside, rows_before

NULL, DUPLICATE = "NULL", "DUPLICATE"


def write(source: DataFrame, target: Target, note: CommitNote, set_aside: SetAside) -> Effect:
    """Insert of rows whose key is new, update of those that differ, in one commit; none when there are none.

    The query is evaluated once, into what differs and what is invalid: with nothing changed that is nothing.
    """
    looked_at = _changed_or_invalid(source, target).persist()
    try:
        changes = looked_at.where(F.col(REASON).isNull()).drop(REASON)
        counts = looked_at.groupBy(REASON, F.isnull(ROWID).alias("is_new")).count().collect()
        invalid = {row[REASON]: row["count"] for row in counts if row[REASON]}
        target.before_commit(lambda: _after(changes, target))
        set_aside(looked_at.where(F.col(REASON).isNotNull()).drop(ROWID), invalid)
        valid = {row["is_new"]: row["count"] for row in counts if not row[REASON]}
        inserted, updated = valid.get(True, 0), valid.get(False, 0)
        rows = rows_before(target) + inserted
        if updated:
            target.merge(changes, dataclasses.replace(note, rows=rows), matched="update")
        elif inserted:
            target.append(changes.drop(ROWID), dataclasses.replace(note, rows=rows))
        return Effect(inserted=inserted, updated=updated, rows=rows)
    finally:
        looked_at.unpersist()


def _changed_or_invalid(source: DataFrame, target: Target) -> DataFrame:
    """The rows to set aside, with a reason, and those to write, with the rowid of the row they change."""
    reasoned = source.withColumn(REASON, _reason(target.key_columns))
    if target.is_empty:
        return reasoned.withColumn(ROWID, F.lit(None).cast("bigint"))
    is_same_key = column_of(REASON, "s").isNull() & same_keys(target.key_columns, "s", "t")
    joined = reasoned.alias("s").join(target.rows.alias("t"), is_same_key, "left")
    is_new = column_of(ROWID, "t").isNull()
    differs = is_new | ~same_rows(target.fields, "s", "t")
    return joined.where(column_of(REASON, "s").isNotNull() | differs).select("s.*", f"t.{ROWID}")


def _after(changes: DataFrame, target: Target) -> DataFrame:
    """All rows as they would be: those that change, and the others."""
    kept = target.rows.join(changes.select(ROWID), ROWID, "left_anti")
    return target.only_fields(kept).unionByName(target.only_fields(changes))


def _reason(key_columns: tuple[str, ...]) -> Column:
    """Why a row can't be written: a null in its key, or its key comes more than once."""
    keys = [column_of(name) for name in key_columns]
    lacks_key = reduce(Column.__or__, [key.isNull() for key in keys])
    times = F.count(F.lit(1)).over(Window.partitionBy(*keys))
    return F.when(lacks_key, F.lit(NULL)).when(times > 1, F.lit(DUPLICATE))
