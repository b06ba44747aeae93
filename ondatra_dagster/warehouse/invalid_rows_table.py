"""The rows that a write set aside, in SCHEMA.TABLE__invalid: its own feed tells which are new."""

import dataclasses
from collections.abc import Mapping

from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F  # noqa: N812 - as all of Spark's documentation calls it
from pyspark.sql.types import StringType, StructField

from ondatra_dagster.deltalog.commit_metadata import CommitMetadata
from ondatra_dagster.deltalog.log_reader import read_table_state
from ondatra_dagster.deltalog.system_columns import REASON_COLUMN, ROWID_COLUMN
from ondatra_dagster.planning.table_lookup import invalid_table_path
from ondatra_dagster.warehouse.kinds.write_interface import count_existing_rows
from ondatra_dagster.warehouse.row_comparison import row_hashes
from ondatra_dagster.warehouse.target_table import DELETE_FLAG, TableSpec, TargetTable, open_target

HASH_COLUMNS = ("__ondatra_hash_0", "__ondatra_hash_1")
NUMBER_COLUMN = "__ondatra_number"  # equal rows are told apart by it: two of them are two


def write_invalid_rows(
    session: SparkSession, table: TargetTable, rows: DataFrame, counts: Mapping[str, int], note: CommitMetadata
) -> None:
    """Make the table of invalid rows hold just these, in one commit; none when it does already."""
    path = invalid_table_path(table.path)
    if not counts and read_table_state(path) is None:
        return
    identity = TableSpec(kind="invalid", key_columns=table.key_columns, own_columns={REASON_COLUMN: "string"})
    target = open_target(session, path, table.fields, identity, converts=True)
    before = count_existing_rows(target)
    if not counts and not before:
        target.finish_conversion()
        return
    changes = _find_differences(rows, target).persist()
    try:
        inserted, deleted = changes.agg(F.count_if(F.isnull(ROWID_COLUMN)), F.count(ROWID_COLUMN)).collect()[0]
        told = dataclasses.replace(note, rows=before + inserted - deleted)
        if deleted:
            target.merge(changes.withColumn(DELETE_FLAG, F.col(ROWID_COLUMN).isNotNull()), told)
        elif inserted:
            target.append(changes.drop(ROWID_COLUMN), told)
        target.finish_conversion()
    finally:
        changes.unpersist()


def _find_differences(rows: DataFrame, target: TargetTable) -> DataFrame:
    """The rows that the table lacks, without a rowid, and the rowids of those that it has too many."""
    names = [field.name for field in target.fields]
    new, old = _number_rows(rows, target).alias("n"), _number_rows(target.rows, target).alias("o")
    same = [F.col(f"n.{name}") == F.col(f"o.{name}") for name in (*HASH_COLUMNS, NUMBER_COLUMN)]
    both = new.join(old, same, "full_outer")
    missing, extra = F.isnull(f"o.{NUMBER_COLUMN}"), F.isnull(f"n.{NUMBER_COLUMN}")
    wanted = [F.when(missing, F.col(f"n.`{name.replace('`', '``')}`")).alias(name) for name in (*names, REASON_COLUMN)]
    return both.where(missing | extra).select(*wanted, F.when(extra, F.col(f"o.{ROWID_COLUMN}")).alias(ROWID_COLUMN))


def _number_rows(rows: DataFrame, target: TargetTable) -> DataFrame:
    """Each row with its hashes, and its number among the rows that are equal to it."""
    fields = [*target.fields, StructField(REASON_COLUMN, StringType())]
    hashed = rows.withColumns(dict(zip(HASH_COLUMNS, row_hashes(fields), strict=True)))
    equal = Window.partitionBy(*HASH_COLUMNS).orderBy(HASH_COLUMNS[0])
    return hashed.withColumn(NUMBER_COLUMN, F.row_number().over(equal))
