"""Kind tracked: rows belong to groups; a group is rewritten whole when anything in it differs."""

import dataclasses
from functools import reduce

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - as all of Spark's documentation calls it

from ondatra_dagster.planning.commit_note import CommitNote
from ondatra_dagster.planning.delta_schema import CONTENT_HASH, REASON, ROWID
from ondatra_dagster.warehouse.comparison import column_of, content_hash, content_sums, same_keys
from ondatra_dagster.warehouse.delta_tables import Target
from ondatra_dagster.warehouse.kinds.effect import Effect, SetAside, rows_before
from ondatra_dagster.warehouse.kinds.merge import NULL

OLD_HASH = "__ondatra_old_hash"


def write(source: DataFrame, target: Target, note: CommitNote, set_aside: SetAside) -> Effect:
    """Delete and insert of every row of each group that differs, in one commit; none when no group does."""
    source.persist()
    lacks_key = reduce(Column.__and__, [column_of(name).isNull() for name in target.key_columns])
    groups = _changed_groups(source.where(~lacks_key), target).persist()
    try:
        changed, gone = groups.agg(F.count(F.lit(1)), F.count(OLD_HASH)).collect()[0]
        _set_invalid_aside(source.where(lacks_key), set_aside)
        before = rows_before(target)
        if not changed:
            return Effect(rows=before)
        new = _rows_of(source, groups.where(column_of(CONTENT_HASH).isNotNull()), target)
        inserted = new.count()
        old = _rowids_of(groups, target) if gone else None
        deleted = old.count() if old is not None else 0
        told = dataclasses.replace(note, rows=before + inserted - deleted)
        if old is None:
            target.append(new, told)
        else:
            target.merge(new.unionByName(old, allowMissingColumns=True), told, matched="delete")
        return Effect(inserted=inserted, deleted=deleted, rows=before + inserted - deleted)
    finally:
        groups.unpersist()
        source.unpersist()


def _changed_groups(rows: DataFrame, target: Target) -> DataFrame:
    """The key of each group that differs, its new hash (null: it is gone), its old one (null: it is new)."""
    new = _hashes(rows, target).withColumnRenamed("hash", CONTENT_HASH)
    if target.is_empty:
        return new.withColumn(OLD_HASH, F.lit(None).cast("string"))
    old = _kept_hashes(target).withColumnRenamed("hash", OLD_HASH)
    joined = new.alias("n").join(old.alias("o"), same_keys(target.key_columns, "n", "o"), "full_outer")
    keys = [
        F.when(column_of(CONTENT_HASH).isNotNull(), column_of(name, "n"))
        .otherwise(column_of(name, "o"))
        .alias(name)
        for name in target.key_columns
    ]
    differs = ~column_of(CONTENT_HASH).eqNullSafe(column_of(OLD_HASH))
    return joined.where(differs).select(*keys, CONTENT_HASH, OLD_HASH)


def _kept_hashes(target: Target) -> DataFrame:
    """The hash of each group of the table: as it was kept, or anew when columns have changed since."""
    if not target.trusts_hashes:
        return _hashes(target.rows(), target)
    keys = [column_of(name) for name in target.key_columns]
    return target.rows().groupBy(*keys).agg(F.max(CONTENT_HASH).alias("hash"))


def _hashes(rows: DataFrame, target: Target) -> DataFrame:
    keys = [column_of(name) for name in target.key_columns]
    hashed, sums = content_sums(rows, target.fields)
    return hashed.groupBy(*keys).agg(*sums).select(*keys, content_hash().alias("hash"))


def _rows_of(source: DataFrame, groups: DataFrame, target: Target) -> DataFrame:
    """The rows of the query that belong to the groups, with the hash of theirs."""
    is_same = same_keys(target.key_columns, "s", "g")
    return source.alias("s").join(groups.alias("g"), is_same).select("s.*", f"g.{CONTENT_HASH}")


def _rowids_of(groups: DataFrame, target: Target) -> DataFrame:
    """The rows that the table has of the groups, as far as their deletion needs them."""
    is_same = same_keys(target.key_columns, "t", "g")
    return target.rows().alias("t").join(groups.alias("g"), is_same, "left_semi").select(ROWID)


def _set_invalid_aside(rows: DataFrame, set_aside: SetAside) -> None:
    counted = rows.count()
    set_aside(rows.withColumn(REASON, F.lit(NULL)), {NULL: counted} if counted else {})
