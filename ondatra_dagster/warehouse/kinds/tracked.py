"""Kind tracked: rows belong to groups; a group is rewritten whole when anything in it differs."""

import dataclasses
from functools import reduce

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - as all of Spark's documentation calls it

from ondatra_dagster.planning.commit_note import CommitNote
from ondatra_dagster.planning.delta_schema import CONTENT_HASH, REASON, ROWID
from ondatra_dagster.warehouse.comparison import ROWS, column_of, content_hash, content_sums, same_keys
from ondatra_dagster.warehouse.delta_tables import Target
from ondatra_dagster.warehouse.kinds.effect import Effect, SetAside, rows_before
from ondatra_dagster.warehouse.kinds.merge import NULL

OLD_HASH, OLD_ROWS = "__ondatra_old_hash", "__ondatra_old_rows"


def write(source: DataFrame, target: Target, note: CommitNote, set_aside: SetAside) -> Effect:
    """Delete and insert of every row of each group that differs, in one commit; none when no group does."""
    source.persist()
    groups = _changed_groups(source, target).persist()
    try:
        lacks_key = _lacks_key(target)
        inserted, deleted, invalid = _totals(groups, lacks_key)
        new = _rows_of(source, groups.where(~lacks_key), target)
        target.before_commit(lambda: _after(new, groups, target))
        aside = source.where(lacks_key).withColumn(REASON, F.lit(NULL))
        set_aside(aside, {NULL: invalid} if invalid else {})
        rows = rows_before(target) + inserted - deleted
        told = dataclasses.replace(note, rows=rows)
        if deleted:
            old = _rowids_of(groups, target)
            target.merge(new.unionByName(old, allowMissingColumns=True), told, matched="delete")
        elif inserted:
            target.append(new, told)
        return Effect(inserted=inserted, deleted=deleted, rows=rows)
    finally:
        groups.unpersist()
        source.unpersist()


def _changed_groups(rows: DataFrame, target: Target) -> DataFrame:
    """The key of each group that differs, with hash and size as they will be and as they were; null: nothing.

    The rows without a key are a group here too, which the table never has.
    """
    new = _hashes(rows, target)
    if target.is_empty:
        nothing = {OLD_HASH: F.lit(None).cast("string"), OLD_ROWS: F.lit(None).cast("bigint")}
        return new.withColumns(nothing)
    old = _kept_hashes(target).withColumnsRenamed({CONTENT_HASH: OLD_HASH, ROWS: OLD_ROWS})
    joined = new.alias("n").join(old.alias("o"), same_keys(target.key_columns, "n", "o"), "full_outer")
    is_there = column_of(CONTENT_HASH).isNotNull()
    keys = [
        F.when(is_there, column_of(name, "n")).otherwise(column_of(name, "o")).alias(name)
        for name in target.key_columns
    ]
    differs = ~column_of(CONTENT_HASH).eqNullSafe(column_of(OLD_HASH))
    return joined.where(differs).select(*keys, CONTENT_HASH, ROWS, OLD_HASH, OLD_ROWS)


def _totals(groups: DataFrame, lacks_key: Column) -> tuple[int, int, int]:
    """How many rows come, go, and are invalid."""
    found = groups.agg(
        F.sum(F.when(~lacks_key, column_of(ROWS))),
        F.sum(OLD_ROWS),
        F.sum(F.when(lacks_key, column_of(ROWS))),
    ).collect()[0]
    inserted, deleted, invalid = (int(number or 0) for number in found)
    return inserted, deleted, invalid


def _kept_hashes(target: Target) -> DataFrame:
    """The hash of each group of the table: as it was kept, or anew when columns have changed since."""
    if not target.trusts_hashes:
        return _hashes(target.rows, target)
    hashes = target.rows.groupBy(*_keys(target))
    return hashes.agg(F.max(CONTENT_HASH).alias(CONTENT_HASH), F.count(F.lit(1)).alias(ROWS))


def _hashes(rows: DataFrame, target: Target) -> DataFrame:
    hashed, sums = content_sums(rows, target.fields)
    by_group = hashed.groupBy(*_keys(target)).agg(*sums)
    return by_group.select(*_keys(target), content_hash().alias(CONTENT_HASH), ROWS)


def _rows_of(source: DataFrame, groups: DataFrame, target: Target) -> DataFrame:
    """The rows of the query that belong to the groups, with the hash of theirs."""
    is_same = same_keys(target.key_columns, "s", "g")
    return source.alias("s").join(groups.alias("g"), is_same).select("s.*", f"g.{CONTENT_HASH}")


def _after(new: DataFrame, groups: DataFrame, target: Target) -> DataFrame:
    """All rows as they would be: those of the groups that change, and the others."""
    is_same = same_keys(target.key_columns, "t", "g")
    kept = target.rows.alias("t").join(groups.alias("g"), is_same, "left_anti")
    return target.only_fields(kept).unionByName(target.only_fields(new))


def _rowids_of(groups: DataFrame, target: Target) -> DataFrame:
    """The rows that the table has of the groups, as far as their deletion needs them."""
    is_same = same_keys(target.key_columns, "t", "g")
    return target.rows.alias("t").join(groups.alias("g"), is_same, "left_semi").select(ROWID)


def _keys(target: Target) -> list[Column]:
    return [column_of(name) for name in target.key_columns]


def _lacks_key(target: Target) -> Column:
    return reduce(Column.__and__, [key.isNull() for key in _keys(target)])
