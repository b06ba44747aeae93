"""A sync's dead letters, for those who only look: what they are and how they go again is the queue's."""

from datetime import datetime

from ondatra_dagster.delivery.queue import letters
from ondatra_dagster.delivery.queue.letters import DeadLetter
from ondatra_dagster.delivery.queue.reasons import Reason, dead_reasons
from ondatra_dagster.delivery.queue.states import looking_at
from ondatra_dagster.delivery.queue.tables import read_shape
from ondatra_dagster.sync.sync import Sync


def dead_letters(
    sync: Sync, *, limit: int | None = None, since: datetime | None = None, offset: int = 0
) -> list[DeadLetter]:
    """All that died since then, oldest first; after the first `offset` of them, at most `limit`."""
    with looking_at(sync.queue) as store:
        shape = read_shape(store) if store else None
        if store is None or shape is None:
            return []
        return list(letters.dead_letters(store, shape, limit=limit, since=since, offset=offset))


def why_dead(sync: Sync, *, limit: int) -> tuple[Reason, ...]:
    """Why they are, the most frequent reason first."""
    with looking_at(sync.queue) as store:
        shape = read_shape(store) if store else None
        return dead_reasons(store, shape, limit=limit) if store and shape else ()
