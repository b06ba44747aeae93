"""The kinds merge and scd2: the rows of a key are updated, or kept as versions of it.

Merge writes rows with a new key or other values. Only a full refresh deletes the keys that the query no longer gives.
Scd2 keeps every version of a key's row, with the snapshots between which it was the current one. A snapshot is the
version of the commit itself, so a closed row ends where its successor begins.
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
    """Insert the rows whose key is new, and update those that differ, in one commit at most."""
    found = _compare_keys(work, work.target.rows, finds_gone=False)
    try:
        work.check_before_commit(lambda: found.rows_after(work.target.rows, work.target))
        work.write_invalid_rows(found.invalid_rows, found.invalid_counts)
        told = work.commit_note(rows=count_existing_rows(work.target) + found.new_count - found.deleted_count)
        if found.changed_count or found.deleted_count:
            work.target.merge(found.rows_to_write, told, inserts=found.new_count > 0)
        elif found.new_count:
            work.target.append(found.rows_to_write.drop(ROWID_COLUMN, DELETE_FLAG), told)
        return WriteResult(
            inserted=found.new_count, updated=found.changed_count, deleted=found.deleted_count, rows=told.rows or 0
        )
    finally:
        found.release()


def _compare_keys(work: WriteRequest, old: DataFrame, *, finds_gone: bool) -> KeyComparison:
    """Compare the query's rows with the table's current ones. At a full refresh, a key may have several of these."""
    if work.is_full:
        with split_duplicate_keys(old, work.rows, work.target) as (standing, others):
            return compare_by_key(work.rows, standing, work.target, finds_gone=True, surplus=others)
    return compare_by_key(work.rows, None if work.target.is_empty else old, work.target, finds_gone=finds_gone)


VALID_FROM, VALID_TO, IS_CURRENT = "valid_from_snapshot", "valid_to_snapshot", "is_current"


def write_scd2(work: WriteRequest) -> WriteResult:
    """Close every version that the query no longer gives, and insert every new one, in one commit at most."""
    target = work.target
    found = _compare_keys(work, current_version_rows(target.rows), finds_gone=True)
    try:
        snapshot = target.next_version
        work.check_before_commit(lambda: _versions_after(found.rows_to_write, target, snapshot))
        work.write_invalid_rows(found.invalid_rows, found.invalid_counts)
        opened, closed = found.new_count + found.changed_count, found.changed_count + found.deleted_count
        told = work.commit_note(rows=count_existing_rows(target) + opened)
        if closed:
            target.merge(_changed_versions(found.rows_to_write, snapshot), told, updates=(VALID_TO, IS_CURRENT))
        elif opened:
            target.append(_new_versions(found.rows_to_write, snapshot), told)
        if opened or closed:
            _check_snapshot(work, snapshot)
        return WriteResult(inserted=opened, updated=closed, rows=told.rows or 0)
    finally:
        found.release()


def current_version_rows(rows: DataFrame) -> DataFrame:
    """Return the rows that are current versions: all rows of a table that has no versions yet."""
    return rows.where(IS_CURRENT) if IS_CURRENT in rows.columns else rows


def _new_versions(found: DataFrame, snapshot: int) -> DataFrame:
    """Return the versions that begin now."""
    begins = {VALID_FROM: _version_literal(snapshot), VALID_TO: _version_literal(None), IS_CURRENT: F.lit(True)}
    return found.where(~F.col(DELETE_FLAG)).drop(DELETE_FLAG, ROWID_COLUMN).withColumns(begins)


def _changed_versions(found: DataFrame, snapshot: int) -> DataFrame:
    """Return the versions that begin now, and the rowids of those that end now."""
    ends = {VALID_TO: _version_literal(snapshot), IS_CURRENT: F.lit(False)}
    ended = found.where(column_of(ROWID_COLUMN).isNotNull()).select(ROWID_COLUMN).withColumns(ends)
    return _new_versions(found, snapshot).unionByName(ended, allowMissingColumns=True)


def _versions_after(found: DataFrame, target: TargetTable, snapshot: int) -> DataFrame:
    """Return all versions as they will be after the write."""
    ends = {VALID_TO: _version_literal(snapshot), IS_CURRENT: F.lit(False)}
    ended = found.where(column_of(ROWID_COLUMN).isNotNull()).select(ROWID_COLUMN)
    others = target.rows.join(ended, ROWID_COLUMN, "left_anti")
    closed = target.rows.join(ended, ROWID_COLUMN, "left_semi").withColumns(ends)
    opened = _new_versions(found, snapshot)
    return others.unionByName(closed).drop(ROWID_COLUMN).unionByName(opened)


def _version_literal(number: int | None) -> Column:
    return F.lit(number).cast("bigint")


def _check_snapshot(work: WriteRequest, snapshot: int) -> None:
    """Raise WarehouseError if another commit came in between: then another program wrote to the table."""
    state = read_table_state(work.target.path)
    if state is None or state.version_offset + state.version != snapshot:
        raise WarehouseError(
            f"another program wrote to {work.target.path} at the same time, so that its snapshots are not the"
            f" versions of their commits: RESTORE it to version {snapshot - 1} and run again"
        )
