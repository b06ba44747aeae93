"""Rows that are told apart by a key, beside those that a table has: what is new, differs, went or is invalid.

The query is evaluated once, into just that: with nothing changed it is nothing.
"""

import dataclasses
from collections import Counter
from collections.abc import Mapping
from functools import reduce

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 - as all of Spark's documentation calls it

from ondatra_dagster.planning.delta_schema import REASON, ROWID
from ondatra_dagster.warehouse.comparison import column_of, same_rows
from ondatra_dagster.warehouse.delta_tables import GOES, Target
from ondatra_dagster.warehouse.kinds.one_a_key import lacks_key

NULL, DUPLICATE = "NULL", "DUPLICATE"
GIVEN = "__ondatra_given"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class KeyedRows:
    """What a query's rows come to, computed once and counted."""

    _found: DataFrame  # with REASON, ROWID and GOES
    invalid: Mapping[str, int]  # by reason
    new: int
    changed: int
    gone: int

    @property
    def to_write(self) -> DataFrame:
        """New rows without a rowid, changed ones with that of the old, and the rowids of those that go."""
        return self._found.where(F.col(REASON).isNull()).drop(REASON)

    @property
    def to_set_aside(self) -> DataFrame:
        return self._found.where(F.col(REASON).isNotNull()).drop(ROWID, GOES)

    def after(self, rows: DataFrame, target: Target) -> DataFrame:
        """All rows of the table as they would be: those that change, and the others."""
        kept = rows.join(self.to_write.select(ROWID), ROWID, "left_anti")
        written = self.to_write.where(~F.col(GOES))
        return target.only_fields(kept).unionByName(target.only_fields(written))

    def release(self) -> None:
        self._found.unpersist()


def compare(
    rows: DataFrame,
    old: DataFrame | None,
    target: Target,
    *,
    finds_gone: bool,
    surplus: DataFrame | None = None,
) -> KeyedRows:
    """The query's rows beside `old`, the table's rows that stand for a key each; None: there are none yet.

    A key goes when it isn't given any more; one that is given in rows which can't be written stays as it is.
    `surplus` are rows of the table that go in any case.
    """
    reasoned = rows.withColumn(REASON, _reason(target))
    if old is None:
        found = reasoned.withColumns({ROWID: F.lit(None).cast("bigint"), GOES: F.lit(False)})
    else:
        found = _differing(reasoned, old, target, "full_outer" if finds_gone else "left")
    if surplus:
        goes = surplus.select(ROWID, F.lit(True).alias(GOES))
        found = found.unionByName(goes, allowMissingColumns=True)
    found.persist()
    counts = found.groupBy(REASON, F.isnull(ROWID).alias("is_new"), GOES).count().collect()
    valid = {(row["is_new"], row[GOES]): row["count"] for row in counts if not row[REASON]}
    invalid: Counter[str] = Counter()
    for row in counts:
        if row[REASON]:
            invalid[row[REASON]] += row["count"]
    return KeyedRows(
        _found=found,
        invalid=invalid,
        new=valid.get((True, False), 0),
        changed=valid.get((False, False), 0),
        gone=valid.get((False, True), 0),
    )


def _differing(reasoned: DataFrame, old: DataFrame, target: Target, join: str) -> DataFrame:
    """The rows to set aside, those to write with the rowid of the row that they change, and those that go."""
    # not null-safe: no row with a null in its key is written, and Spark reads both sides once less
    is_same_key = reduce(
        Column.__and__, [column_of(name, "s") == column_of(name, "t") for name in target.key_columns]
    )
    given = reasoned.withColumn(GIVEN, F.lit(True))
    joined = given.alias("s").join(old.alias("t"), is_same_key, join)
    is_given = column_of(GIVEN).isNotNull()
    differs = column_of(ROWID, "t").isNull() | ~same_rows(target.fields, "s", "t")
    goes = ~is_given & ~lacks_key(target.key_columns, "t")
    found = joined.where(goes | (is_given & (column_of(REASON).isNotNull() | differs)))
    return found.select("s.*", f"t.{ROWID}", (~is_given).alias(GOES)).drop(GIVEN)


def _reason(target: Target) -> Column:
    """Why a row can't be written: a null in its key, or its key comes more than once."""
    times = F.count(F.lit(1)).over(Window.partitionBy(*map(column_of, target.key_columns)))
    return F.when(lacks_key(target.key_columns), F.lit(NULL)).when(times > 1, F.lit(DUPLICATE))
