"""The kind merge: rows with a new key or other values are written; no row is ever deleted.

A full refresh deletes the keys that the query no longer gives.
"""

from ondatra_dagster.deltalog.system_columns import ROWID_COLUMN
from ondatra_dagster.warehouse.kinds.duplicate_keys import split_duplicate_keys
from ondatra_dagster.warehouse.kinds.key_comparison import KeyComparison, compare_by_key
from ondatra_dagster.warehouse.kinds.write_interface import WriteRequest, WriteResult, count_existing_rows
from ondatra_dagster.warehouse.target_table import DELETE_FLAG


def write_merge(work: WriteRequest) -> WriteResult:
    """Insert of rows whose key is new, update of those that differ, in one commit at most."""
    found = _compare_all_keys(work) if work.is_full else _compare_keys(work)
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


def _compare_keys(work: WriteRequest) -> KeyComparison:
    old = None if work.target.is_empty else work.target.rows
    return compare_by_key(work.rows, old, work.target, finds_gone=False)


def _compare_all_keys(work: WriteRequest) -> KeyComparison:
    """The same, and what goes."""
    with split_duplicate_keys(work.target.rows, work.rows, work.target) as (standing, others):
        return compare_by_key(work.rows, standing, work.target, finds_gone=True, surplus=others)
