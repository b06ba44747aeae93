"""Rows in groups that are written as a whole: which groups differ from those that a table has.

Each row of the table holds the hash of its group's content, so that a group is compared without its rows.
"""

import dataclasses
from collections.abc import Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - as all of Spark's documentation calls it

from ondatra_dagster.planning.delta_schema import CONTENT_HASH, ROWID
from ondatra_dagster.warehouse.comparison import ROWS, column_of, content_hash, content_sums, same_keys
from ondatra_dagster.warehouse.delta_tables import GOES, Target

OLD_HASH, OLD_ROWS = "__ondatra_old_hash", "__ondatra_old_rows"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Groups:
    """The groups of a query's rows and a table's by the columns that name a group, which may be null."""

    source: DataFrame
    old: DataFrame  # the table's rows
    target: Target
    names: Sequence[str]

    def differing(self) -> DataFrame:
        """Each group that differs, with hash and size as they will be and as they were; null: not there."""
        new = self._hashes(self.source)
        if self.target.is_empty:
            nothing = {OLD_HASH: F.lit(None).cast("string"), OLD_ROWS: F.lit(None).cast("bigint")}
            return new.withColumns(nothing)
        old = self._kept_hashes().withColumnsRenamed({CONTENT_HASH: OLD_HASH, ROWS: OLD_ROWS})
        joined = new.alias("n").join(old.alias("o"), same_keys(self.names, "n", "o"), "full_outer")
        is_there = column_of(CONTENT_HASH).isNotNull()
        names = [
            F.when(is_there, column_of(name, "n")).otherwise(column_of(name, "o")).alias(name)
            for name in self.names
        ]
        differs = ~column_of(CONTENT_HASH).eqNullSafe(column_of(OLD_HASH))
        return joined.where(differs).select(*names, CONTENT_HASH, ROWS, OLD_HASH, OLD_ROWS)

    def new_rows(self, groups: DataFrame) -> DataFrame:
        """The rows of the query that belong to these groups, with the hash of theirs."""
        is_same = same_keys(self.names, "s", "g")
        joined = self.source.alias("s").join(groups.alias("g"), is_same)
        return joined.select("s.*", column_of(CONTENT_HASH, "g"))

    def old_rowids(self, groups: DataFrame) -> DataFrame:
        """The rows that the table has of these groups, as far as their deletion needs them."""
        is_same = same_keys(self.names, "t", "g")
        rowids = self.old.alias("t").join(groups.alias("g"), is_same, "left_semi").select(ROWID)
        return rowids.withColumn(GOES, F.lit(True))

    def after(self, new: DataFrame, groups: DataFrame) -> DataFrame:
        """All rows as they would be: those of the groups that change, and the others."""
        is_same = same_keys(self.names, "t", "g")
        kept = self.old.alias("t").join(groups.alias("g"), is_same, "left_anti")
        return self.target.only_fields(kept).unionByName(self.target.only_fields(new))

    def _kept_hashes(self) -> DataFrame:
        """The hash of each group of the table: as it was kept, or anew when columns have changed since."""
        if not self.target.trusts_hashes:
            return self._hashes(self.old)
        hashes = self.old.groupBy(*self._names())
        return hashes.agg(F.max(CONTENT_HASH).alias(CONTENT_HASH), F.count(F.lit(1)).alias(ROWS))

    def _hashes(self, rows: DataFrame) -> DataFrame:
        hashed, sums = content_sums(rows, self.target.fields)
        by_group = hashed.groupBy(*self._names()).agg(*sums)
        return by_group.select(*self._names(), content_hash().alias(CONTENT_HASH), ROWS)

    def _names(self) -> list[Column]:
        return [column_of(name) for name in self.names]
