"""The kinds tracked and partition: a group of rows, or a partition, is rewritten whole if anything in it differs.

Each row of the table holds the hash of its group's content, so a group is compared without its rows. A partition's
files are in a separate folder. The folder's name is a digest of the partition's key, because not every key is a
valid folder name.
"""

import dataclasses
from collections.abc import Sequence
from functools import reduce

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - as all of Spark's documentation calls it

from ondatra_dagster.project.sql.output_and_system_columns import (
    CONTENT_HASH_COLUMN,
    PARTITION_COLUMN,
    REASON_COLUMN,
    ROWID_COLUMN,
)
from ondatra_dagster.warehouse.create_and_write_target_table import DELETE_FLAG, TargetTable
from ondatra_dagster.warehouse.kinds.new_changed_and_deleted_rows_by_key import NULL_KEY
from ondatra_dagster.warehouse.kinds.write_interface import WriteRequest, WriteResult, count_existing_rows
from ondatra_dagster.warehouse.row_equality_and_hashes import (
    ROW_COUNT,
    column_of,
    content_hash,
    content_sums,
    row_hashes,
    same_keys,
)

OLD_HASH, OLD_ROWS = "__ondatra_old_hash", "__ondatra_old_rows"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class GroupComparison:
    """The comparison of a query's groups with a table's groups. The columns that identify a group may be null."""

    query_rows: DataFrame
    table_rows: DataFrame
    target: TargetTable
    key_names: Sequence[str]

    def differing_groups(self) -> DataFrame:
        """Return each group that differs, with its new and old hash and its new and old number of rows.

        The new or old values are null if the query or the table doesn't have the group.
        """
        new_hashes = self._compute_hashes(self.query_rows)
        if self.target.is_empty:
            old_nulls = {OLD_HASH: F.lit(None).cast("string"), OLD_ROWS: F.lit(None).cast("bigint")}
            return new_hashes.withColumns(old_nulls)
        old_hashes = self._stored_hashes().withColumnsRenamed({CONTENT_HASH_COLUMN: OLD_HASH, ROW_COUNT: OLD_ROWS})
        joined_hashes = new_hashes.alias("n").join(
            old_hashes.alias("o"), same_keys(self.key_names, "n", "o"), "full_outer"
        )
        is_there = column_of(CONTENT_HASH_COLUMN).isNotNull()
        names = [
            F.when(is_there, column_of(name, "n")).otherwise(column_of(name, "o")).alias(name)
            for name in self.key_names
        ]
        differs = ~column_of(CONTENT_HASH_COLUMN).eqNullSafe(column_of(OLD_HASH))
        return joined_hashes.where(differs).select(*names, CONTENT_HASH_COLUMN, ROW_COUNT, OLD_HASH, OLD_ROWS)

    def new_rows(self, groups: DataFrame) -> DataFrame:
        """Return the query's rows in these groups, with the hash of their group."""
        is_same_group = same_keys(self.key_names, "s", "g")
        joined_rows = self.query_rows.alias("s").join(groups.alias("g"), is_same_group)
        return joined_rows.select("s.*", column_of(CONTENT_HASH_COLUMN, "g"))

    def old_rowids(self, groups: DataFrame) -> DataFrame:
        """Return the rowids of the table's rows in these groups, flagged for deletion."""
        is_same_group = same_keys(self.key_names, "t", "g")
        rowids = self.table_rows.alias("t").join(groups.alias("g"), is_same_group, "left_semi").select(ROWID_COLUMN)
        return rowids.withColumn(DELETE_FLAG, F.lit(True))

    def rows_after(self, new: DataFrame, groups: DataFrame) -> DataFrame:
        """Return all rows as they will be after the write: those of the changed groups, and all others."""
        is_same_group = same_keys(self.key_names, "t", "g")
        unchanged_rows = self.table_rows.alias("t").join(groups.alias("g"), is_same_group, "left_anti")
        return self.target.select_fields(unchanged_rows).unionByName(self.target.select_fields(new))

    def _stored_hashes(self) -> DataFrame:
        """Return the hash of each of the table's groups.

        The hashes are computed again if the columns have changed since the rows were written.
        """
        if not self.target.has_valid_hashes:
            return self._compute_hashes(self.table_rows)
        hashes = self.table_rows.groupBy(*self._key_columns())
        return hashes.agg(F.max(CONTENT_HASH_COLUMN).alias(CONTENT_HASH_COLUMN), F.count(F.lit(1)).alias(ROW_COUNT))

    def _compute_hashes(self, rows: DataFrame) -> DataFrame:
        rows_with_hashes, sums = content_sums(rows, self.target.fields)
        group_sums = rows_with_hashes.groupBy(*self._key_columns()).agg(*sums)
        return group_sums.select(*self._key_columns(), content_hash().alias(CONTENT_HASH_COLUMN), ROW_COUNT)

    def _key_columns(self) -> list[Column]:
        return [column_of(name) for name in self.key_names]


def write_tracked(work: WriteRequest) -> WriteResult:
    """Delete and insert every row of each group that differs, in one commit. Make no commit if no group differs."""
    target = work.target
    source = work.rows.persist()
    groups = GroupComparison(query_rows=source, table_rows=target.rows, target=target, key_names=target.key_columns)
    # the rows without a key form a group in the query, which the table never has
    differing_groups = groups.differing_groups().persist()
    try:
        lacks_key = reduce(Column.__and__, [column_of(name).isNull() for name in target.key_columns])
        inserted, deleted, invalid = _count_rows(differing_groups, lacks_key)
        new_rows = groups.new_rows(differing_groups.where(~lacks_key))
        work.check_before_commit(lambda: groups.rows_after(new_rows, differing_groups))
        invalid_rows = source.where(lacks_key).withColumn(REASON_COLUMN, F.lit(NULL_KEY))
        work.write_invalid_rows(invalid_rows, {NULL_KEY: invalid} if invalid else {})
        return _write_groups(work, groups, differing_groups, new_rows, (inserted, deleted))
    finally:
        differing_groups.unpersist()
        source.unpersist()


def _count_rows(groups: DataFrame, lacks_key: Column) -> tuple[int, int, int]:
    """Return the numbers of inserted, deleted and invalid rows."""
    totals = groups.agg(
        F.sum(F.when(~lacks_key, column_of(ROW_COUNT))), F.sum(OLD_ROWS), F.sum(F.when(lacks_key, column_of(ROW_COUNT)))
    ).collect()[0]
    inserted, deleted, invalid = (int(number or 0) for number in totals)
    return inserted, deleted, invalid


def write_partitions(work: WriteRequest) -> WriteResult:
    """Delete and insert every row of each partition that differs, in one commit. Make no commit if none differs.

    Only a full refresh deletes the partitions that the query no longer returns.
    """
    target = work.target
    source = work.rows.withColumn(PARTITION_COLUMN, _partition_digest(target)).persist()
    # a key whose type has changed has another digest, and so another folder than the existing rows
    table_rows = (
        target.rows if target.has_valid_hashes else target.rows.withColumn(PARTITION_COLUMN, _partition_digest(target))
    )
    groups = GroupComparison(query_rows=source, table_rows=table_rows, target=target, key_names=[PARTITION_COLUMN])
    differing_groups = groups.differing_groups()
    if not work.is_full:
        differing_groups = differing_groups.where(column_of(CONTENT_HASH_COLUMN).isNotNull())
    differing_groups.persist()
    try:
        inserted, deleted, _ = _count_rows(differing_groups, F.lit(False))
        new_rows = groups.new_rows(differing_groups)
        work.check_before_commit(lambda: groups.rows_after(new_rows, differing_groups))
        is_overwritable = target.is_partitioned and target.has_valid_hashes and not work.is_full
        return _write_groups(work, groups, differing_groups, new_rows, (inserted, deleted), overwrites=is_overwritable)
    finally:
        differing_groups.unpersist()
        source.unpersist()


def _write_groups(
    work: WriteRequest,
    groups: GroupComparison,
    changed_groups: DataFrame,
    new: DataFrame,
    counts: tuple[int, int],
    *,
    overwrites: bool = False,
) -> WriteResult:
    """Replace the groups that differ by their new rows. `counts` has the numbers of inserted and deleted rows."""
    (inserted, deleted), target = counts, work.target
    note = work.commit_note(rows=count_existing_rows(target) + inserted - deleted)
    if deleted and overwrites:
        target.overwrite_partitions(new, note)
    elif deleted:  # a merge also deletes groups without new rows, which an overwrite would keep
        target.merge(new.unionByName(groups.old_rowids(changed_groups), allowMissingColumns=True), note)
    elif inserted:
        target.append(new, note)
    return WriteResult(inserted=inserted, deleted=deleted, rows=note.rows or 0)


def _partition_digest(target: TargetTable) -> Column:
    """Return a text that depends only on the row's key.

    It is computed from the key's hashes, so every value is allowed.
    """
    keys = [field for field in target.fields if field.name in target.key_columns]
    return F.concat_ws("-", *(F.hex(number) for number in row_hashes(keys)))
