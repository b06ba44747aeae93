"""Rows that are told apart by a key, beside those that a table has: what is new, differs, went or is invalid.

The query is evaluated once, into just that: with nothing changed it is nothing.
"""

import dataclasses
from collections.abc import Mapping
from functools import reduce

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 - as all of Spark's documentation calls it

from ondatra_dagster.planning.delta_schema import REASON, ROWID
from ondatra_dagster.warehouse.comparison import column_of, same_keys, same_rows
from ondatra_dagster.warehouse.delta_tables import GOES, Target

NULL, DUPLICATE = "NULL", "DUPLICATE"
NUMBER = "__ondatra_number"


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


def one_a_key(rows: DataFrame, target: Target) -> tuple[DataFrame, DataFrame]:
    """The oldest row of each key, and all others: a table that was of another kind may have several."""
    of_key = Window.partitionBy(*map(column_of, target.key_columns)).orderBy(ROWID)
    numbered = rows.withColumn(NUMBER, F.row_number().over(of_key))
    is_first = F.col(NUMBER) == 1
    return numbered.where(is_first).drop(NUMBER), numbered.where(~is_first).drop(NUMBER)


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
        found = _new_or_changed(reasoned, old, target)
        if finds_gone:
            is_given = same_keys(target.key_columns, "t", "s")
            gone = old.alias("t").join(rows.alias("s"), is_given, "left_anti").select(ROWID)
            gone = gone.unionAll(surplus.select(ROWID)) if surplus else gone
            found = found.unionByName(gone.withColumn(GOES, F.lit(True)), allowMissingColumns=True)
    found.persist()
    counts = found.groupBy(REASON, F.isnull(ROWID).alias("is_new"), GOES).count().collect()
    valid = {(row["is_new"], row[GOES]): row["count"] for row in counts if not row[REASON]}
    return KeyedRows(
        _found=found,
        invalid={row[REASON]: row["count"] for row in counts if row[REASON]},
        new=valid.get((True, False), 0),
        changed=valid.get((False, False), 0),
        gone=valid.get((False, True), 0),
    )


def _new_or_changed(reasoned: DataFrame, old: DataFrame, target: Target) -> DataFrame:
    """The rows to set aside and those to write, with the rowid of the row that they change."""
    is_same_key = column_of(REASON, "s").isNull() & same_keys(target.key_columns, "s", "t")
    joined = reasoned.alias("s").join(old.alias("t"), is_same_key, "left")
    is_new = column_of(ROWID, "t").isNull()
    differs = is_new | ~same_rows(target.fields, "s", "t")
    found = joined.where(column_of(REASON, "s").isNotNull() | differs)
    return found.select("s.*", f"t.{ROWID}", F.lit(False).alias(GOES))


def _reason(target: Target) -> Column:
    """Why a row can't be written: a null in its key, or its key comes more than once."""
    keys = [column_of(name) for name in target.key_columns]
    lacks_key = reduce(Column.__or__, [key.isNull() for key in keys])
    times = F.count(F.lit(1)).over(Window.partitionBy(*keys))
    return F.when(lacks_key, F.lit(NULL)).when(times > 1, F.lit(DUPLICATE))
