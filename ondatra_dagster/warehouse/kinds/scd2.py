"""Kind scd2: every version of a key's row is kept, with the snapshots between which it was the current one.

A snapshot is the version of the commit itself, so a closed row ends where its successor begins.
"""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - as all of Spark's documentation calls it

from ondatra_dagster.errors import WarehouseError
from ondatra_dagster.planning.delta_log import read_table_state
from ondatra_dagster.planning.delta_schema import ROWID
from ondatra_dagster.warehouse.comparison import column_of
from ondatra_dagster.warehouse.delta_tables import GOES, Target
from ondatra_dagster.warehouse.kinds.effect import Effect, Work, rows_before
from ondatra_dagster.warehouse.kinds.keyed_rows import KeyedRows, compare
from ondatra_dagster.warehouse.kinds.one_a_key import one_a_key

VALID_FROM, VALID_TO, IS_CURRENT = "valid_from_snapshot", "valid_to_snapshot", "is_current"


def write(work: Work) -> Effect:
    """Close of every version that isn't given any more, insert of every new one, in one commit at most."""
    target = work.target
    found = _all_differences(work) if work.is_full else _differences(work)
    try:
        snapshot = target.next_version
        work.before_commit(lambda: _after(found.to_write, target, snapshot))
        work.set_aside(found.to_set_aside, found.invalid)
        opened, closed = found.new + found.changed, found.changed + found.gone
        told = work.told(rows=rows_before(target) + opened)
        if closed:
            target.merge(_versions(found.to_write, snapshot), told, updates=(VALID_TO, IS_CURRENT))
        elif opened:
            target.append(_opened(found.to_write, snapshot), told)
        if opened or closed:
            _check_snapshot(work, snapshot)
        return Effect(inserted=opened, updated=closed, rows=told.rows or 0)
    finally:
        found.release()


def _differences(work: Work) -> KeyedRows:
    old = None if work.target.is_empty else current(work.target.rows)
    return compare(work.rows, old, work.target, finds_gone=True)


def _all_differences(work: Work) -> KeyedRows:
    """The same, where a key may have several rows that are current."""
    with one_a_key(current(work.target.rows), work.rows, work.target) as (standing, others):
        return compare(work.rows, standing, work.target, finds_gone=True, surplus=others)


def current(rows: DataFrame) -> DataFrame:
    """The rows that are the current versions: all of a table that has none yet."""
    return rows.where(IS_CURRENT) if IS_CURRENT in rows.columns else rows


def _opened(found: DataFrame, snapshot: int) -> DataFrame:
    """The versions that begin now."""
    begins = {VALID_FROM: _version(snapshot), VALID_TO: _version(None), IS_CURRENT: F.lit(True)}
    return found.where(~F.col(GOES)).drop(GOES, ROWID).withColumns(begins)


def _versions(found: DataFrame, snapshot: int) -> DataFrame:
    """The versions that begin now, and the rowids of those that end now."""
    ends = {VALID_TO: _version(snapshot), IS_CURRENT: F.lit(False)}
    ended = found.where(column_of(ROWID).isNotNull()).select(ROWID).withColumns(ends)
    return _opened(found, snapshot).unionByName(ended, allowMissingColumns=True)


def _after(found: DataFrame, target: Target, snapshot: int) -> DataFrame:
    """All versions as they would be."""
    ends = {VALID_TO: _version(snapshot), IS_CURRENT: F.lit(False)}
    ended = found.where(column_of(ROWID).isNotNull()).select(ROWID)
    others = target.rows.join(ended, ROWID, "left_anti")
    closed = target.rows.join(ended, ROWID, "left_semi").withColumns(ends)
    opened = _opened(found, snapshot)
    return others.unionByName(closed).drop(ROWID).unionByName(opened)


def _version(number: int | None) -> Column:
    return F.lit(number).cast("bigint")


def _check_snapshot(work: Work, snapshot: int) -> None:
    """Raise when another commit came between: the one writer that this table has wasn't alone."""
    state = read_table_state(work.target.path)
    if state is None or state.commits_before + state.version != snapshot:
        raise WarehouseError(
            f"another program wrote to {work.target.path} at the same time, so that its snapshots are not the"
            f" versions of their commits: RESTORE it to version {snapshot - 1} and run again"
        )
