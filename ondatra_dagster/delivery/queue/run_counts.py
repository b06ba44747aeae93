"""The counts of runs that go on, in the queue's file: what a run that is cut off had done by then."""

from collections.abc import Mapping

from ondatra_dagster.delivery.queue.tables import Queue
from ondatra_dagster.delivery.queue.unit_counts import Counts, Operation

PLANNED = "planned"

ADD = """
insert into run_count values (?, ?, ?, ?)
on conflict (run_id, cell, operation) do update set units = units + excluded.units
"""
READ = "select cell, operation, units from run_count where run_id = ?"
FORGET = "delete from run_count where run_id = ?"


def add_counts(queue: Queue, run_id: str, counts: Mapping[str, Counts]) -> None:
    """Add to a run's counts, by cell; the caller has the transaction."""
    rows: list[tuple[str, str, str, int]] = [
        (run_id, str(cell), str(operation), units)
        for cell, units_of in counts.items()
        for operation, units in units_of.items()
        if units
    ]
    if rows:
        queue.store.run_many(ADD, rows)


def read_counts(queue: Queue, run_id: str) -> dict[str, Counts]:
    """Return a run's counts by cell; none when it was cut off before it had planned anything."""
    counts: dict[str, Counts] = {}
    for cell, operation, units in queue.store.rows(READ, (run_id,)):
        counts.setdefault(str(cell), Counts())[Operation(str(operation))] = int(units)
    return counts


def forget_counts(queue: Queue, run_id: str) -> None:
    """Delete a run's counts: they are in its history."""
    queue.store.run(FORGET, (run_id,))
