"""Kind events: what the collector took is appended, once each; nothing is ever changed or taken away.

The number of the newest event stands in the commit that holds it, as Delta's own transaction: what a killed
run has begun either happened, and the next goes on after it, or didn't.
"""

from collections.abc import Sequence

from pyspark.sql import DataFrame

from ondatra_dagster.arrivals import Misfit, Portion
from ondatra_dagster.planning.delta_log import last_transaction
from ondatra_dagster.warehouse.delta_tables import Target, Transaction
from ondatra_dagster.warehouse.event_rows import EXTRA, event_frame, in_turn
from ondatra_dagster.warehouse.kinds.effect import Effect, Work, rows_before
from ondatra_dagster.warehouse.misfits import keep_misfits

SOME = 20  # misfits that are shown


def write(work: Work) -> Effect:
    """Append of what waits, in the order in which it came: a commit a portion."""
    rows = there = rows_before(work.target)
    misfits, some = 0, list[Misfit]()
    is_judged = False
    if work.events:
        numbering = work.events.numbering
        for portion in work.events.portions(last_transaction(work.target.path, numbering)):
            rows += len(portion.rows)
            misfits += len(portion.misfits)
            some += portion.misfits[: SOME - len(some)]
            _append(work, portion, Transaction(numbering, portion.upto), rows=rows)
            is_judged = True
    if not is_judged:  # the checks are to be told of all the same
        work.judge(work.rows)
        work.before_commit(lambda: work.target.rows)
    return Effect(inserted=rows - there, rows=rows, misfits=misfits, some_misfits=some)


def _append(work: Work, portion: Portion, transaction: Transaction, *, rows: int) -> None:
    """One commit: its rows, and up to which number the table has them now."""
    frame = event_frame(work.target.session, work.rows.schema, portion.rows)
    try:
        work.judge(frame)
        work.before_commit(lambda: _after(frame, work.target))
        note = work.told(rows=rows)
        keep_misfits(work.target, portion.misfits, note, transaction)
        named = {name.casefold(): name for name in frame.columns}
        spelled = {named[field.name.casefold()]: field.name for field in work.target.fields}
        work.target.append(in_turn(frame).withColumnsRenamed(spelled), note, transaction=transaction)
    finally:
        frame.unpersist()


def _after(new: DataFrame, target: Target) -> DataFrame:
    """All rows as they would be."""
    there = target.read_anew()
    names: Sequence[str] = [*(field.name for field in target.fields), EXTRA]
    return there.select(*names).unionByName(new.select(*names))
