"""The comparison of a query's rows with a table's by key: new, changed, deleted and invalid rows.

The query is evaluated once. The result is empty when nothing has changed.
"""

import dataclasses
from collections import Counter
from collections.abc import Mapping
from functools import reduce

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 - as all of Spark's documentation calls it

from ondatra_dagster.deltalog.system_columns import REASON_COLUMN, ROWID_COLUMN
from ondatra_dagster.warehouse.kinds.duplicate_keys import has_null_key
from ondatra_dagster.warehouse.row_comparison import column_of, same_rows
from ondatra_dagster.warehouse.target_table import DELETE_FLAG, TargetTable

NULL_KEY, DUPLICATE_KEY = "NULL", "DUPLICATE"
IN_QUERY_COLUMN = "__ondatra_given"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class KeyComparison:
    """What a query's rows come to, computed once and counted."""

    _rows: DataFrame  # with REASON, ROWID and GOES
    invalid_counts: Mapping[str, int]  # by reason
    new_count: int
    changed_count: int
    deleted_count: int

    @property
    def rows_to_write(self) -> DataFrame:
        """New rows without a rowid, changed ones with that of the old, and the rowids of those that go."""
        return self._rows.where(F.col(REASON_COLUMN).isNull()).drop(REASON_COLUMN)

    @property
    def invalid_rows(self) -> DataFrame:
        return self._rows.where(F.col(REASON_COLUMN).isNotNull()).drop(ROWID_COLUMN, DELETE_FLAG)

    def rows_after(self, rows: DataFrame, target: TargetTable) -> DataFrame:
        """All rows of the table as they would be: those that change, and the others."""
        kept = rows.join(self.rows_to_write.select(ROWID_COLUMN), ROWID_COLUMN, "left_anti")
        written = self.rows_to_write.where(~F.col(DELETE_FLAG))
        return target.select_fields(kept).unionByName(target.select_fields(written))

    def release(self) -> None:
        self._rows.unpersist()


def compare_by_key(
    rows: DataFrame, old: DataFrame | None, target: TargetTable, *, finds_gone: bool, surplus: DataFrame | None = None
) -> KeyComparison:
    """The query's rows beside `old`, the table's rows that stand for a key each; None: there are none yet.

    A key goes when it isn't given any more; one that is given in rows which can't be written stays as it is.
    `surplus` are rows of the table that go in any case.
    """
    reasoned = rows.withColumn(REASON_COLUMN, _invalid_reason(target))
    if old is None:
        found = reasoned.withColumns({ROWID_COLUMN: F.lit(None).cast("bigint"), DELETE_FLAG: F.lit(False)})
    else:
        found = _differing_rows(reasoned, old, target, "full_outer" if finds_gone else "left")
    if surplus:
        goes = surplus.select(ROWID_COLUMN, F.lit(True).alias(DELETE_FLAG))
        found = found.unionByName(goes, allowMissingColumns=True)
    found.persist()
    counts = found.groupBy(REASON_COLUMN, F.isnull(ROWID_COLUMN).alias("is_new"), DELETE_FLAG).count().collect()
    valid = {(row["is_new"], row[DELETE_FLAG]): row["count"] for row in counts if not row[REASON_COLUMN]}
    invalid: Counter[str] = Counter()
    for row in counts:
        if row[REASON_COLUMN]:
            invalid[row[REASON_COLUMN]] += row["count"]
    return KeyComparison(
        _rows=found,
        invalid_counts=invalid,
        new_count=valid.get((True, False), 0),
        changed_count=valid.get((False, False), 0),
        deleted_count=valid.get((False, True), 0),
    )


def _differing_rows(reasoned: DataFrame, old: DataFrame, target: TargetTable, join: str) -> DataFrame:
    """The rows to set aside, those to write with the rowid of the row that they change, and those that go."""
    # not null-safe: no row with a null in its key is written, and Spark reads both sides once less
    is_same_key = reduce(Column.__and__, [column_of(name, "s") == column_of(name, "t") for name in target.key_columns])
    given = reasoned.withColumn(IN_QUERY_COLUMN, F.lit(True))
    joined = given.alias("s").join(old.alias("t"), is_same_key, join)
    is_given = column_of(IN_QUERY_COLUMN).isNotNull()
    differs = column_of(ROWID_COLUMN, "t").isNull() | ~same_rows(target.fields, "s", "t")
    goes = ~is_given & ~has_null_key(target.key_columns, "t")
    found = joined.where(goes | (is_given & (column_of(REASON_COLUMN).isNotNull() | differs)))
    return found.select("s.*", f"t.{ROWID_COLUMN}", (~is_given).alias(DELETE_FLAG)).drop(IN_QUERY_COLUMN)


def _invalid_reason(target: TargetTable) -> Column:
    """Why a row can't be written: a null in its key, or its key comes more than once."""
    times = F.count(F.lit(1)).over(Window.partitionBy(*map(column_of, target.key_columns)))
    return F.when(has_null_key(target.key_columns), F.lit(NULL_KEY)).when(times > 1, F.lit(DUPLICATE_KEY))
