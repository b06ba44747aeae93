"""Some of the keys that are still to be delivered, for those who only look."""

from typing import NamedTuple

from ondatra_dagster.changes import ChangeType
from ondatra_dagster.delivery.queue.tables import IDENTIFIER
from ondatra_dagster.store.database import Store

OLDEST = f"""
select {IDENTIFIER}, iif(target = '', 'delete', iif(base = '', 'insert', 'update_postimage')), attempts,
    message
from unit
where state in ('pending', 'claimed', 'waiting')
    and version <= (select value from meta where name = 'watermark')
order by since, id limit ?
"""


class Waiting(NamedTuple):
    """One key that waits."""

    key: str
    change_type: ChangeType
    attempts: int
    error: str  # why it didn't arrive; empty when it hasn't been tried


def oldest(store: Store, *, limit: int) -> list[Waiting]:
    """The keys that have waited longest."""
    return [
        Waiting(str(key), ChangeType(change), int(attempts), str(message or ""))
        for key, change, attempts, message in store.rows(OLDEST, (limit,))
    ]
