"""Some of the keys that are still to be delivered, for those who only look."""

from typing import NamedTuple

from ondatra_dagster.delivery.queue.tables import IDENTIFIER
from ondatra_dagster.delivery.queue.unit_counts import HAD, HAS, Operation, operation_of
from ondatra_dagster.store.database import Store

OLDEST = f"""
select {IDENTIFIER}, {HAD} or is_context, {HAS} or is_context, attempts, message
from unit
where state in ('pending', 'claimed', 'waiting')
    and version <= (select value from meta where name = 'watermark')
    -- a new row is no unit of its own while the old one is there whose place it takes
    and not (phase = 1 and {HAD} = 0 and exists (
        select 1 from unit as old
        where old.phase = 0 and old.belongs_to = unit.belongs_to
            and old.state in ('pending', 'claimed', 'waiting')
    ))
order by since, id limit ?
"""


class Waiting(NamedTuple):
    """One key that waits."""

    key: str
    operation: Operation
    attempts: int
    error: str  # why it didn't arrive; empty when it hasn't been tried


def oldest(store: Store, *, limit: int) -> list[Waiting]:
    """The keys that have waited longest."""
    return [
        Waiting(str(key), operation_of(had=bool(had), has=bool(has)), int(attempts), str(message or ""))
        for key, had, has, attempts, message in store.rows(OLDEST, (limit,))
    ]
