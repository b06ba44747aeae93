"""The rows that a query and a table don't have in common, brought into the table."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - as all of Spark's documentation calls it

from ondatra_dagster.planning.commit_note import CommitNote
from ondatra_dagster.planning.delta_schema import ROWID
from ondatra_dagster.warehouse.delta_tables import GOES, Target
from ondatra_dagster.warehouse.kinds.effect import Effect
from ondatra_dagster.warehouse.multisets import difference


def write_difference(source: DataFrame, target: Target, note: CommitNote) -> Effect:
    """Delete of the rows that the query hasn't, insert of those that the table hasn't, in one commit."""
    missing, extra = difference(source, target.rows, target.fields)
    changes = missing.unionByName(
        extra.select(ROWID, F.lit(True).alias(GOES)), allowMissingColumns=True
    ).persist()
    try:
        inserted, deleted = changes.agg(F.count_if(F.isnull(ROWID)), F.count(ROWID)).collect()[0]
        if deleted:
            target.merge(changes, note, inserts=inserted > 0)
        elif inserted:
            target.append(changes.drop(ROWID, GOES), note)
        return Effect(inserted=inserted, deleted=deleted, rows=note.rows or 0)
    finally:
        changes.unpersist()
