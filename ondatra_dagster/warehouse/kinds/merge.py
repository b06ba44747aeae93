"""Kind merge: rows are told apart by a key; what is new or differs is written, nothing is ever deleted.

But by a full refresh: it takes away the keys that the query no longer gives.
"""

from ondatra_dagster.planning.delta_schema import ROWID
from ondatra_dagster.warehouse.delta_tables import GOES
from ondatra_dagster.warehouse.kinds.effect import Effect, Work, rows_before
from ondatra_dagster.warehouse.kinds.keyed_rows import KeyedRows, compare
from ondatra_dagster.warehouse.kinds.one_a_key import one_a_key


def write(work: Work) -> Effect:
    """Insert of rows whose key is new, update of those that differ, in one commit at most."""
    found = _all_differences(work) if work.is_full else _differences(work)
    try:
        work.before_commit(lambda: found.after(work.target.rows, work.target))
        work.set_aside(found.to_set_aside, found.invalid)
        told = work.told(rows=rows_before(work.target) + found.new - found.gone)
        if found.changed or found.gone:
            work.target.merge(found.to_write, told, inserts=found.new > 0)
        elif found.new:
            work.target.append(found.to_write.drop(ROWID, GOES), told)
        return Effect(inserted=found.new, updated=found.changed, deleted=found.gone, rows=told.rows or 0)
    finally:
        found.release()


def _differences(work: Work) -> KeyedRows:
    old = None if work.target.is_empty else work.target.rows
    return compare(work.rows, old, work.target, finds_gone=False)


def _all_differences(work: Work) -> KeyedRows:
    """The same, and what goes."""
    with one_a_key(work.target.rows, work.rows, work.target) as (standing, others):
        return compare(work.rows, standing, work.target, finds_gone=True, surplus=others)
