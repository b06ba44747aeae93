"""The rows that a write set aside, in SCHEMA.TABLE__invalid: its own feed tells which are new."""

import dataclasses
from collections.abc import Mapping

from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F  # noqa: N812 - as all of Spark's documentation calls it
from pyspark.sql.types import StringType, StructField

from ondatra_dagster.planning.commit_note import CommitNote
from ondatra_dagster.planning.delta_log import invalid_path, read_table_state
from ondatra_dagster.planning.delta_schema import REASON, ROWID
from ondatra_dagster.warehouse.comparison import row_hashes
from ondatra_dagster.warehouse.delta_tables import GOES, Identity, Target, open_target
from ondatra_dagster.warehouse.kinds.effect import rows_before

HASHES = ("__ondatra_hash_0", "__ondatra_hash_1")
NUMBER = "__ondatra_number"  # equal rows are told apart by it: two of them are two


def set_aside(
    session: SparkSession, table: Target, rows: DataFrame, counts: Mapping[str, int], note: CommitNote
) -> None:
    """Make the table of invalid rows hold just these, in one commit; none when it does already."""
    path = invalid_path(table.path)
    if not counts and read_table_state(path) is None:
        return
    identity = Identity(kind="invalid", key_columns=table.key_columns, own_columns={REASON: "string"})
    target = open_target(session, path, table.fields, identity, converts=True)
    before = rows_before(target)
    if not counts and not before:
        target.end()
        return
    changes = _difference(rows, target).persist()
    try:
        inserted, deleted = changes.agg(F.count_if(F.isnull(ROWID)), F.count(ROWID)).collect()[0]
        told = dataclasses.replace(note, rows=before + inserted - deleted)
        if deleted:
            target.merge(changes.withColumn(GOES, F.col(ROWID).isNotNull()), told)
        elif inserted:
            target.append(changes.drop(ROWID), told)
        target.end()
    finally:
        changes.unpersist()


def _difference(rows: DataFrame, target: Target) -> DataFrame:
    """The rows that the table lacks, without a rowid, and the rowids of those that it has too many."""
    names = [field.name for field in target.fields]
    new, old = _numbered(rows, target).alias("n"), _numbered(target.rows, target).alias("o")
    same = [F.col(f"n.{name}") == F.col(f"o.{name}") for name in (*HASHES, NUMBER)]
    both = new.join(old, same, "full_outer")
    missing, extra = F.isnull(f"o.{NUMBER}"), F.isnull(f"n.{NUMBER}")
    wanted = [
        F.when(missing, F.col(f"n.`{name.replace('`', '``')}`")).alias(name) for name in (*names, REASON)
    ]
    return both.where(missing | extra).select(*wanted, F.when(extra, F.col(f"o.{ROWID}")).alias(ROWID))


def _numbered(rows: DataFrame, target: Target) -> DataFrame:
    """Each row with its hashes, and its number among the rows that are equal to it."""
    fields = [*target.fields, StructField(REASON, StringType())]
    hashed = rows.withColumns(dict(zip(HASHES, row_hashes(fields), strict=True)))
    equal = Window.partitionBy(*HASHES).orderBy(HASHES[0])
    return hashed.withColumn(NUMBER, F.row_number().over(equal))
