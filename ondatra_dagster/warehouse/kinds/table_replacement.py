"""The kind table: a run replaces the whole content if any row differs, or if the number of equal rows differs."""

from collections.abc import Sequence

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - as all of Spark's documentation calls it
from pyspark.sql.types import StructField

from ondatra_dagster.deltalog.commit_user_metadata import CommitMetadata
from ondatra_dagster.project.sql.output_and_system_columns import ROWID_COLUMN
from ondatra_dagster.warehouse.create_and_write_target_table import DELETE_FLAG, TargetTable
from ondatra_dagster.warehouse.kinds.write_interface import WriteRequest, WriteResult
from ondatra_dagster.warehouse.row_equality_and_hashes import content_fingerprint, row_difference


def write_table(work: WriteRequest) -> WriteResult:
    """Delete every old row and insert every new one, in one commit. Make no commit if old and new rows are the same."""
    target = work.target
    source = work.rows.persist()
    try:
        work.check_before_commit(lambda: source)
        rows, content = content_fingerprint(source, target.fields)
        rows_before, content_before = _stored_fingerprint(target)
        if (rows, content) == (rows_before, content_before):
            return WriteResult(rows=rows)
        note = work.commit_note(rows=rows, fingerprint=content)
        if work.is_full and not target.is_empty:
            return write_difference(source, target, target.fields, note)
        if target.is_empty:
            target.append(source, note)
        else:
            target.overwrite(source, note)
        return WriteResult(inserted=rows, deleted=rows_before, rows=rows)
    finally:
        source.unpersist()


def _stored_fingerprint(target: TargetTable) -> tuple[int, str]:
    """Return the table's number of rows and its fingerprint, from the note of its newest commit if possible."""
    note = target.state.commit_metadata
    if note and note.rows is not None and note.fingerprint and target.has_valid_hashes:
        return note.rows, note.fingerprint
    return content_fingerprint(target.rows, target.fields)


def write_difference(
    source: DataFrame, target: TargetTable, fields: Sequence[StructField], note: CommitMetadata
) -> WriteResult:
    """Delete the rows that only the table has, and insert those that only the query has, in one commit."""
    missing_rows, extra_rows = row_difference(source, target.rows, fields)
    changes = missing_rows.unionByName(
        extra_rows.select(ROWID_COLUMN, F.lit(True).alias(DELETE_FLAG)), allowMissingColumns=True
    ).persist()
    try:
        inserted, deleted = changes.agg(F.count_if(F.isnull(ROWID_COLUMN)), F.count(ROWID_COLUMN)).collect()[0]
        if deleted:
            target.merge(changes, note, inserts=inserted > 0)
        elif inserted:
            target.append(changes.drop(ROWID_COLUMN, DELETE_FLAG), note)
        return WriteResult(inserted=inserted, deleted=deleted, rows=note.rows or 0)
    finally:
        changes.unpersist()
