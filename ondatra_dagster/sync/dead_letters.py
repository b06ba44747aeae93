"""A sync's dead letters, for those who only look: what they are and how they go again is the queue's."""

from collections.abc import Iterator
from datetime import datetime

from ondatra_dagster.delivery.queue import letters
from ondatra_dagster.delivery.queue.letters import DeadLetter
from ondatra_dagster.delivery.queue.reasons import Reason, dead_reasons
from ondatra_dagster.delivery.queue.states import looking_at
from ondatra_dagster.delivery.queue.tables import read_shape
from ondatra_dagster.sync.sync import Sync


def dead_letters(
    sync: Sync,
    *,
    limit: int | None = None,
    since: datetime | None = None,
    offset: int = 0,
    most_rows: int | None = None,
) -> Iterator[DeadLetter]:
    """Yield what died since then, the oldest first; after the first `offset` of them, at most `limit`.

    Each has at most `most_rows` of what it would send.
    """
    with looking_at(sync.queue) as store:
        shape = read_shape(store) if store else None
        if store and shape:
            yield from letters.dead_letters(
                store, shape, limit=limit, since=since, offset=offset, most_rows=most_rows
            )


def why_dead(sync: Sync, *, limit: int) -> tuple[Reason, ...]:
    """Why they are, the most frequent reason first."""
    with looking_at(sync.queue) as store:
        shape = read_shape(store) if store else None
        return dead_reasons(store, shape, limit=limit) if store and shape else ()


def refusal(letter: DeadLetter) -> str | None:
    """When it was refused, in words; None where it was tried often enough."""
    if not letter.was_refused:
        return None
    return "refused at once" if letter.attempts == 1 else f"refused at attempt {letter.attempts}"


def name_of(letter: DeadLetter, sync: Sync) -> str:
    """What it is called among people; the one unit of a table that goes out whole has no key."""
    return "(the whole table)" if not letter.key and sync.is_whole_table else letter.key
