"""The comparison of a query's rows with a table's by group: a group that differs is written as a whole.

Each row of the table holds the hash of its group's content, so that a group is compared without its rows.
"""

import dataclasses
from collections.abc import Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - as all of Spark's documentation calls it

from ondatra_dagster.deltalog.system_columns import CONTENT_HASH_COLUMN, ROWID_COLUMN
from ondatra_dagster.warehouse.row_comparison import ROW_COUNT, column_of, content_hash, content_sums, same_keys
from ondatra_dagster.warehouse.target_table import DELETE_FLAG, TargetTable

OLD_HASH, OLD_ROWS = "__ondatra_old_hash", "__ondatra_old_rows"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class GroupComparison:
    """The groups of a query's rows and a table's by the columns that name a group, which may be null."""

    query_rows: DataFrame
    table_rows: DataFrame  # the table's rows
    target: TargetTable
    key_names: Sequence[str]

    def differing_groups(self) -> DataFrame:
        """Each group that differs, with hash and size as they will be and as they were; null: not there."""
        new = self._compute_hashes(self.query_rows)
        if self.target.is_empty:
            nothing = {OLD_HASH: F.lit(None).cast("string"), OLD_ROWS: F.lit(None).cast("bigint")}
            return new.withColumns(nothing)
        old = self._stored_hashes().withColumnsRenamed({CONTENT_HASH_COLUMN: OLD_HASH, ROW_COUNT: OLD_ROWS})
        joined = new.alias("n").join(old.alias("o"), same_keys(self.key_names, "n", "o"), "full_outer")
        is_there = column_of(CONTENT_HASH_COLUMN).isNotNull()
        names = [
            F.when(is_there, column_of(name, "n")).otherwise(column_of(name, "o")).alias(name)
            for name in self.key_names
        ]
        differs = ~column_of(CONTENT_HASH_COLUMN).eqNullSafe(column_of(OLD_HASH))
        return joined.where(differs).select(*names, CONTENT_HASH_COLUMN, ROW_COUNT, OLD_HASH, OLD_ROWS)

    def new_rows(self, groups: DataFrame) -> DataFrame:
        """The rows of the query that belong to these groups, with the hash of theirs."""
        is_same = same_keys(self.key_names, "s", "g")
        joined = self.query_rows.alias("s").join(groups.alias("g"), is_same)
        return joined.select("s.*", column_of(CONTENT_HASH_COLUMN, "g"))

    def old_rowids(self, groups: DataFrame) -> DataFrame:
        """The rows that the table has of these groups, as far as their deletion needs them."""
        is_same = same_keys(self.key_names, "t", "g")
        rowids = self.table_rows.alias("t").join(groups.alias("g"), is_same, "left_semi").select(ROWID_COLUMN)
        return rowids.withColumn(DELETE_FLAG, F.lit(True))

    def rows_after(self, new: DataFrame, groups: DataFrame) -> DataFrame:
        """All rows as they would be: those of the groups that change, and the others."""
        is_same = same_keys(self.key_names, "t", "g")
        kept = self.table_rows.alias("t").join(groups.alias("g"), is_same, "left_anti")
        return self.target.select_fields(kept).unionByName(self.target.select_fields(new))

    def _stored_hashes(self) -> DataFrame:
        """The hash of each group of the table: as it was kept, or anew when columns have changed since."""
        if not self.target.has_valid_hashes:
            return self._compute_hashes(self.table_rows)
        hashes = self.table_rows.groupBy(*self._key_columns())
        return hashes.agg(F.max(CONTENT_HASH_COLUMN).alias(CONTENT_HASH_COLUMN), F.count(F.lit(1)).alias(ROW_COUNT))

    def _compute_hashes(self, rows: DataFrame) -> DataFrame:
        hashed, sums = content_sums(rows, self.target.fields)
        by_group = hashed.groupBy(*self._key_columns()).agg(*sums)
        return by_group.select(*self._key_columns(), content_hash().alias(CONTENT_HASH_COLUMN), ROW_COUNT)

    def _key_columns(self) -> list[Column]:
        return [column_of(name) for name in self.key_names]
