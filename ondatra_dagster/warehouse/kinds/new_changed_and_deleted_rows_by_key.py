"""The comparison of a query's rows with a table's by key: new, changed, deleted, invalid and duplicate rows.

The query is evaluated once. The result has no rows if nothing has changed. A key may have several rows in a table that
had another kind or key, or to which another program has written.
"""

import contextlib
import dataclasses
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import reduce

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 - as all of Spark's documentation calls it

from ondatra_dagster.errors import WarehouseError
from ondatra_dagster.project.sql.output_and_system_columns import REASON_COLUMN, ROWID_COLUMN
from ondatra_dagster.warehouse.create_and_write_target_table import DELETE_FLAG, TargetTable
from ondatra_dagster.warehouse.row_equality_and_hashes import column_of, same_rows
from ondatra_dagster.warehouse.schema_evolution import ddl_type

TIMES_COLUMN, NUMBER_COLUMN, IN_QUERY_COLUMN = "__ondatra_times", "__ondatra_number", "__ondatra_given"
MAX_NAMED_KEYS = 3  # the number of keys that a message names


@contextlib.contextmanager
def split_duplicate_keys(
    rows: DataFrame, query_rows: DataFrame, target: TargetTable
) -> Iterator[tuple[DataFrame, DataFrame | None]]:
    """Yield one row to keep for each key, and all other rows; None instead if there are no other rows.

    If the query returns one of a key's rows, this row is kept, so that it doesn't change. Otherwise the oldest is kept.
    Raises WarehouseError if the query also returns several rows with such a key.
    """
    names = target.key_columns
    if _count_keys(rows, names).where((F.col(TIMES_COLUMN) > 1) | has_null_key(names)).isEmpty():
        yield rows, None
        return
    query_rows.persist()
    try:
        check_duplicate_keys(query_rows, rows, names)
        numbered_rows = _number_rows_by_key(rows, query_rows, target)
        is_first = (F.col(NUMBER_COLUMN) == 1) & ~has_null_key(names)
        yield numbered_rows.where(is_first).drop(NUMBER_COLUMN), numbered_rows.where(~is_first).drop(NUMBER_COLUMN)
    finally:
        query_rows.unpersist()


def check_duplicate_keys(query_rows: DataFrame, table_rows: DataFrame, names: Sequence[str]) -> None:
    """Raise WarehouseError if a key has several rows both in the query and in the table.

    It is unknown then which of the table's rows to keep.
    """
    if not _have_same_key_types(query_rows, table_rows, names):
        return
    query_keys, table_keys = (
        _count_keys(rows, names).where(F.col(TIMES_COLUMN) > 1) for rows in (query_rows, table_rows)
    )
    common_keys = query_keys.alias("s").join(table_keys.alias("t"), _is_same_key(names), "left_semi")
    keys = [column_of(name).cast("string") for name in names]
    sample = common_keys.select(*keys).sort(*keys).limit(MAX_NAMED_KEYS + 1).collect()
    if sample:
        key_list = ", ".join("/".join(map(str, key)) for key in sample[:MAX_NAMED_KEYS])
        ending = " and others" if len(sample) > MAX_NAMED_KEYS else ""
        raise WarehouseError(
            f"keys that are duplicates in the table are duplicates in the query's result too: {key_list}{ending} of"
            f" {', '.join(names)}; change the query so that it returns one row per key"
        )


def has_null_key(names: Sequence[str], table: str | None = None) -> Column:
    """Return whether at least one column of a row's key is null."""
    return reduce(Column.__or__, [column_of(name, table).isNull() for name in names])


def _number_rows_by_key(rows: DataFrame, query_rows: DataFrame, target: TargetTable) -> DataFrame:
    """Number the rows of each key: first the rows that the query returns, then the others by age."""
    names = target.key_columns
    is_same_row = _is_same_key(names) & same_rows(target.fields, "s", "t")
    equal_rows = rows.alias("t").join(query_rows.alias("s"), is_same_row, "left_semi")
    marked_rows = rows.join(equal_rows.select(ROWID_COLUMN, F.lit(True).alias(IN_QUERY_COLUMN)), ROWID_COLUMN, "left")
    key_window = Window.partitionBy(*map(column_of, names)).orderBy(F.col(IN_QUERY_COLUMN).isNull(), ROWID_COLUMN)
    return marked_rows.withColumn(NUMBER_COLUMN, F.row_number().over(key_window)).drop(IN_QUERY_COLUMN)


def _count_keys(rows: DataFrame, names: Sequence[str]) -> DataFrame:
    return rows.groupBy(*map(column_of, names)).agg(F.count(F.lit(1)).alias(TIMES_COLUMN))


def _is_same_key(names: Sequence[str]) -> Column:
    return reduce(Column.__and__, [column_of(name, "s") == column_of(name, "t") for name in names])


def _have_same_key_types(query_rows: DataFrame, table_rows: DataFrame, names: Sequence[str]) -> bool:
    """Return whether the query and the table both have the key's columns, with the same types."""
    types_of_both = [
        {field.name.casefold(): ddl_type(field.dataType) for field in rows.schema} for rows in (query_rows, table_rows)
    ]
    query_types, table_types = (
        [types_by_name.get(name.casefold()) for name in names] for types_by_name in types_of_both
    )
    return query_types == table_types


NULL_KEY, DUPLICATE_KEY = "NULL", "DUPLICATE"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class KeyComparison:
    """The differences between a query's rows and a table's rows, computed and counted once."""

    _rows: DataFrame  # with REASON_COLUMN, ROWID_COLUMN and DELETE_FLAG
    invalid_counts: Mapping[str, int]  # the number of invalid rows by reason
    new_count: int
    changed_count: int
    deleted_count: int

    @property
    def rows_to_write(self) -> DataFrame:
        """Return the rows for the table's merge.

        New rows have no rowid. Changed rows have the rowid of the old row. For rows to delete, only the rowid is set.
        """
        return self._rows.where(F.col(REASON_COLUMN).isNull()).drop(REASON_COLUMN)

    @property
    def invalid_rows(self) -> DataFrame:
        return self._rows.where(F.col(REASON_COLUMN).isNotNull()).drop(ROWID_COLUMN, DELETE_FLAG)

    def rows_after(self, rows: DataFrame, target: TargetTable) -> DataFrame:
        """Return all rows of the table as they will be after the write: the changed ones and the others."""
        unchanged_rows = rows.join(self.rows_to_write.select(ROWID_COLUMN), ROWID_COLUMN, "left_anti")
        written_rows = self.rows_to_write.where(~F.col(DELETE_FLAG))
        return target.select_fields(unchanged_rows).unionByName(target.select_fields(written_rows))

    def release(self) -> None:
        self._rows.unpersist()


def compare_by_key(
    rows: DataFrame,
    old: DataFrame | None,
    target: TargetTable,
    *,
    finds_deleted: bool,
    surplus: DataFrame | None = None,
) -> KeyComparison:
    """Compare the query's rows with `old`, the table's current row of each key.

    `old` is None if the table has no rows yet. With `finds_deleted`, a key that the query no longer returns is
    deleted. A key whose rows are invalid isn't changed. The table's rows in `surplus` are always deleted.
    """
    rows_with_reason = rows.withColumn(REASON_COLUMN, _invalid_reason(target))
    if old is None:
        differences = rows_with_reason.withColumns(
            {ROWID_COLUMN: F.lit(None).cast("bigint"), DELETE_FLAG: F.lit(False)}
        )
    else:
        differences = _differing_rows(rows_with_reason, old, target, "full_outer" if finds_deleted else "left")
    if surplus:
        deleted_rows = surplus.select(ROWID_COLUMN, F.lit(True).alias(DELETE_FLAG))
        differences = differences.unionByName(deleted_rows, allowMissingColumns=True)
    differences.persist()
    counts = differences.groupBy(REASON_COLUMN, F.isnull(ROWID_COLUMN).alias("is_new"), DELETE_FLAG).count().collect()
    valid_counts = {(row["is_new"], row[DELETE_FLAG]): row["count"] for row in counts if not row[REASON_COLUMN]}
    invalid_counts: Counter[str] = Counter()
    for row in counts:
        if row[REASON_COLUMN]:
            invalid_counts[row[REASON_COLUMN]] += row["count"]
    return KeyComparison(
        _rows=differences,
        invalid_counts=invalid_counts,
        new_count=valid_counts.get((True, False), 0),
        changed_count=valid_counts.get((False, False), 0),
        deleted_count=valid_counts.get((False, True), 0),
    )


def _differing_rows(rows_with_reason: DataFrame, old: DataFrame, target: TargetTable, join: str) -> DataFrame:
    """Return the invalid rows, the rows to write, and the rows to delete.

    A row to write has the rowid of the table's row that it changes, if there is one.
    """
    # not null-safe: a row with a null in its key is never written, and in this way Spark reads both sides once less
    query_rows = rows_with_reason.withColumn(IN_QUERY_COLUMN, F.lit(True))
    joined_rows = query_rows.alias("s").join(old.alias("t"), _is_same_key(target.key_columns), join)
    is_in_query = column_of(IN_QUERY_COLUMN).isNotNull()
    differs = column_of(ROWID_COLUMN, "t").isNull() | ~same_rows(target.fields, "s", "t")
    is_deleted = ~is_in_query & ~has_null_key(target.key_columns, "t")
    differences = joined_rows.where(is_deleted | (is_in_query & (column_of(REASON_COLUMN).isNotNull() | differs)))
    return differences.select("s.*", f"t.{ROWID_COLUMN}", (~is_in_query).alias(DELETE_FLAG)).drop(IN_QUERY_COLUMN)


def _invalid_reason(target: TargetTable) -> Column:
    """Return why a row can't be written: its key contains a null, or several rows have its key."""
    key_count = F.count(F.lit(1)).over(Window.partitionBy(*map(column_of, target.key_columns)))
    return F.when(has_null_key(target.key_columns), F.lit(NULL_KEY)).when(key_count > 1, F.lit(DUPLICATE_KEY))
