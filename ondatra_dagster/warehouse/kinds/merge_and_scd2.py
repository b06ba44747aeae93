"""The kinds merge and scd2: a changed row replaces the row with its key, or becomes a new version of it.

Merge writes rows with a new key or other values. Only a full refresh deletes keys that the query no longer returns.
Scd2 keeps every version of a key's row. It stores the snapshot in which a version became current and the one in which
it ended. A snapshot's number is the version of the commit itself, so a closed version ends where its successor begins.
"""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - as all of Spark's documentation calls it

from ondatra_dagster.deltalog.log_reader import read_table_state
from ondatra_dagster.errors import WarehouseError
from ondatra_dagster.project.sql.output_and_system_columns import ROWID_COLUMN
from ondatra_dagster.warehouse.create_and_write_target_table import DELETE_FLAG, TargetTable
from ondatra_dagster.warehouse.kinds.new_changed_and_deleted_rows_by_key import (
    KeyComparison,
    compare_by_key,
    split_duplicate_keys,
)
from ondatra_dagster.warehouse.kinds.write_interface import WriteRequest, WriteResult, count_existing_rows
from ondatra_dagster.warehouse.row_equality_and_hashes import column_of


def write_merge(work: WriteRequest) -> WriteResult:
    """Insert the rows whose key is new, and update those whose values differ, in at most one commit."""
    comparison = _compare_keys(work, work.target.rows, finds_deleted=False)
    try:
        work.check_before_commit(lambda: comparison.rows_after(work.target.rows, work.target))
        work.write_invalid_rows(comparison.invalid_rows, comparison.invalid_counts)
        note = work.commit_note(rows=count_existing_rows(work.target) + comparison.new_count - comparison.deleted_count)
        if comparison.changed_count or comparison.deleted_count:
            work.target.merge(comparison.rows_to_write, note, inserts=comparison.new_count > 0)
        elif comparison.new_count:
            work.target.append(comparison.rows_to_write.drop(ROWID_COLUMN, DELETE_FLAG), note)
        return WriteResult(
            inserted=comparison.new_count,
            updated=comparison.changed_count,
            deleted=comparison.deleted_count,
            rows=note.rows or 0,
        )
    finally:
        comparison.release()


def _compare_keys(work: WriteRequest, old: DataFrame, *, finds_deleted: bool) -> KeyComparison:
    """Compare the query's rows with the table's current rows.

    At a full refresh, a key may have several current rows.
    """
    if work.is_full:
        with split_duplicate_keys(old, work.rows, work.target) as (kept_rows, surplus_rows):
            return compare_by_key(work.rows, kept_rows, work.target, finds_deleted=True, surplus=surplus_rows)
    return compare_by_key(work.rows, None if work.target.is_empty else old, work.target, finds_deleted=finds_deleted)


VALID_FROM, VALID_TO, IS_CURRENT = "valid_from_snapshot", "valid_to_snapshot", "is_current"


def write_scd2(work: WriteRequest) -> WriteResult:
    """Close every current version that the query no longer returns, and insert every new one, in at most one commit."""
    target = work.target
    comparison = _compare_keys(work, current_version_rows(target.rows), finds_deleted=True)
    try:
        snapshot = target.next_version
        work.check_before_commit(lambda: _versions_after(comparison.rows_to_write, target, snapshot))
        work.write_invalid_rows(comparison.invalid_rows, comparison.invalid_counts)
        opened_count, closed_count = (
            comparison.new_count + comparison.changed_count,
            comparison.changed_count + comparison.deleted_count,
        )
        note = work.commit_note(rows=count_existing_rows(target) + opened_count)
        if closed_count:
            target.merge(_changed_versions(comparison.rows_to_write, snapshot), note, updates=(VALID_TO, IS_CURRENT))
        elif opened_count:
            target.append(_new_versions(comparison.rows_to_write, snapshot), note)
        if opened_count or closed_count:
            _check_snapshot(work, snapshot)
        return WriteResult(inserted=opened_count, updated=closed_count, rows=note.rows or 0)
    finally:
        comparison.release()


def current_version_rows(rows: DataFrame) -> DataFrame:
    """Return the rows that are current versions. In a table without versions yet, these are all rows."""
    return rows.where(IS_CURRENT) if IS_CURRENT in rows.columns else rows


def _new_versions(changes: DataFrame, snapshot: int) -> DataFrame:
    """Return the rows of the versions that begin with this write."""
    start_values = {VALID_FROM: _version_literal(snapshot), VALID_TO: _version_literal(None), IS_CURRENT: F.lit(True)}
    return changes.where(~F.col(DELETE_FLAG)).drop(DELETE_FLAG, ROWID_COLUMN).withColumns(start_values)


def _changed_versions(changes: DataFrame, snapshot: int) -> DataFrame:
    """Return the versions that begin with this write, and the rowids of those that end with it."""
    end_values = {VALID_TO: _version_literal(snapshot), IS_CURRENT: F.lit(False)}
    ended_rows = changes.where(column_of(ROWID_COLUMN).isNotNull()).select(ROWID_COLUMN).withColumns(end_values)
    return _new_versions(changes, snapshot).unionByName(ended_rows, allowMissingColumns=True)


def _versions_after(changes: DataFrame, target: TargetTable, snapshot: int) -> DataFrame:
    """Return all versions as the table will have them after the write."""
    end_values = {VALID_TO: _version_literal(snapshot), IS_CURRENT: F.lit(False)}
    ended_rows = changes.where(column_of(ROWID_COLUMN).isNotNull()).select(ROWID_COLUMN)
    unchanged_versions = target.rows.join(ended_rows, ROWID_COLUMN, "left_anti")
    closed_versions = target.rows.join(ended_rows, ROWID_COLUMN, "left_semi").withColumns(end_values)
    new_versions = _new_versions(changes, snapshot)
    return unchanged_versions.unionByName(closed_versions).drop(ROWID_COLUMN).unionByName(new_versions)


def _version_literal(number: int | None) -> Column:
    return F.lit(number).cast("bigint")


def _check_snapshot(work: WriteRequest, snapshot: int) -> None:
    """Raise WarehouseError if another program committed before this write.

    The snapshot's number is then not the version of this write's commit.
    """
    state = read_table_state(work.target.path)
    if state is None or state.version_offset + state.version != snapshot:
        raise WarehouseError(
            f"another program wrote to {work.target.path} at the same time, so that its snapshots are not the"
            f" versions of their commits: RESTORE it to version {snapshot - 1} and run again"
        )
