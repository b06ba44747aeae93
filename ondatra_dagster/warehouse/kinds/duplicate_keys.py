"""The rows of a table that is to have one a key, and may have several so far: which of them stands for a key.

Tables of other kinds or other keys have such, and so have those that somebody else has written to.
"""

import contextlib
from collections.abc import Iterator, Sequence
from functools import reduce

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 - as all of Spark's documentation calls it

from ondatra_dagster.deltalog.system_columns import ROWID_COLUMN
from ondatra_dagster.errors import WarehouseError
from ondatra_dagster.warehouse.row_comparison import column_of, same_rows
from ondatra_dagster.warehouse.schema_evolution import ddl_type
from ondatra_dagster.warehouse.target_table import TargetTable

TIMES_COLUMN, NUMBER_COLUMN, IN_QUERY_COLUMN = "__ondatra_times", "__ondatra_number", "__ondatra_is_given"
MAX_NAMED_KEYS = 3  # keys


@contextlib.contextmanager
def split_duplicate_keys(
    rows: DataFrame, given: DataFrame, target: TargetTable
) -> Iterator[tuple[DataFrame, DataFrame | None]]:
    """The row that stands for each key, and all others; None: there are none.

    It is the one that the query gives, so that it stays as it is, and else the oldest. Raises WarehouseError
    where the query gives several rows of such a key too.
    """
    names = target.key_columns
    if _count_keys(rows, names).where((F.col(TIMES_COLUMN) > 1) | has_null_key(names)).isEmpty():
        yield rows, None
        return
    given.persist()
    try:
        check_duplicate_keys(given, rows, names)
        numbered = _number_rows_by_key(rows, given, target)
        is_first = (F.col(NUMBER_COLUMN) == 1) & ~has_null_key(names)
        yield numbered.where(is_first).drop(NUMBER_COLUMN), numbered.where(~is_first).drop(NUMBER_COLUMN)
    finally:
        given.unpersist()


def check_duplicate_keys(given: DataFrame, there: DataFrame, names: Sequence[str]) -> None:
    """Raise where a key comes more than once on both sides: which row is to stay, nobody can tell."""
    if not _have_same_key_types(given, there, names):
        return
    ours, theirs = (_count_keys(rows, names).where(F.col(TIMES_COLUMN) > 1) for rows in (given, there))
    found = ours.alias("s").join(theirs.alias("t"), _is_same_key(names), "left_semi")
    keys = [column_of(name).cast("string") for name in names]
    some = found.select(*keys).sort(*keys).limit(MAX_NAMED_KEYS + 1).collect()
    if some:
        told = ", ".join("/".join(map(str, key)) for key in some[:MAX_NAMED_KEYS])
        more = " and others" if len(some) > MAX_NAMED_KEYS else ""
        raise WarehouseError(
            f"keys that the table has more than once come more than once in the query too: {told}{more} of"
            f" {', '.join(names)}; which row is to stay, only the query can say: let it give one row a key"
        )


def has_null_key(names: Sequence[str], table: str | None = None) -> Column:
    """Whether there is a null in a row's key."""
    return reduce(Column.__or__, [column_of(name, table).isNull() for name in names])


def _number_rows_by_key(rows: DataFrame, given: DataFrame, target: TargetTable) -> DataFrame:
    """The rows of each key in turn: what the query gives, then by age."""
    names = target.key_columns
    is_same = _is_same_key(names) & same_rows(target.fields, "s", "t")
    equal = rows.alias("t").join(given.alias("s"), is_same, "left_semi")
    marked = rows.join(equal.select(ROWID_COLUMN, F.lit(True).alias(IN_QUERY_COLUMN)), ROWID_COLUMN, "left")
    in_turn = Window.partitionBy(*map(column_of, names)).orderBy(F.col(IN_QUERY_COLUMN).isNull(), ROWID_COLUMN)
    return marked.withColumn(NUMBER_COLUMN, F.row_number().over(in_turn)).drop(IN_QUERY_COLUMN)


def _count_keys(rows: DataFrame, names: Sequence[str]) -> DataFrame:
    return rows.groupBy(*map(column_of, names)).agg(F.count(F.lit(1)).alias(TIMES_COLUMN))


def _is_same_key(names: Sequence[str]) -> Column:
    return reduce(Column.__and__, [column_of(name, "s") == column_of(name, "t") for name in names])


def _have_same_key_types(given: DataFrame, there: DataFrame, names: Sequence[str]) -> bool:
    """Whether both have the key's columns, with the same types."""
    types = [{field.name.casefold(): ddl_type(field.dataType) for field in rows.schema} for rows in (given, there)]
    ours, theirs = ([of.get(name.casefold()) for name in names] for of in types)
    return ours == theirs
