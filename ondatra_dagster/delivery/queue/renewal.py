"""What is sent again although nothing has changed: every row of a table, or rows that should long be gone."""

from collections.abc import Callable

import orjson

from ondatra_dagster.changes import Segment
from ondatra_dagster.delivery.queue.enqueue import (
    CHUNK_KEYS,
    NewUnit,
    add_units,
    chunks,
    folded,
    held_unit,
    known_keys,
    phase,
    weight_of,
)
from ondatra_dagster.delivery.queue.fold import Folded
from ondatra_dagster.delivery.queue.tables import Queue

# a dead letter goes again, too; what is frozen goes first in any case
RENEW = """
update unit set state = 'pending', attempts = 0, outages = 0, due_at = null, message = null, died_at = null
where state in ('waiting', 'dead') and key in (select value from json_each(?))
"""
RENEW_DELETES = """
update unit set state = 'pending', attempts = 0, outages = 0, due_at = null, message = null, died_at = null
where state in ('waiting', 'dead') and target = ''
"""


def send_again(queue: Queue, segment: Segment, *, now: float, only_adds: bool) -> int:
    """Let every row of a snapshot go once more; how many keys that are.

    The queue knows what the API has: rows with a unit go as that says, all others as updates, or as inserts
    in a kind that has none. Cut off, it has let some of them go, which harms nobody.
    """
    of = _as_new if only_adds else held_unit
    return _add(queue, segment, lambda each: of(queue, each, now), renews=True)


def remove(queue: Queue, segment: Segment, *, now: float) -> int:
    """Let the deletes of a segment go, of keys that the queue doesn't know; how many these are."""
    added = _add(queue, segment, lambda each: _as_gone(queue, each, now), renews=False)
    with queue.store.immediate():
        owed = queue.store.run(RENEW_DELETES)
    return added + owed


def _add(queue: Queue, segment: Segment, of: Callable[[Folded], NewUnit], *, renews: bool) -> int:
    keys = 0
    for chunk in chunks(folded(queue, segment), CHUNK_KEYS):
        with queue.store.immediate():
            known = known_keys(queue, [each.key for each in chunk])
            new = [of(each) for each in chunk if each.key not in known]
            add_units(queue, new)
            if renews:
                queue.store.run(RENEW, (orjson.dumps(sorted(known)).decode(),))
            keys += len(chunk) if renews else len(new)
    return keys


def _as_new(queue: Queue, each: Folded, now: float) -> NewUnit:
    return each.key, each.belongs_to, each.version, "", None, each.target, 1, phase(queue, each.target), now


def _as_gone(queue: Queue, each: Folded, now: float) -> NewUnit:
    rows = weight_of(queue, each.base, None, "")
    return each.key, each.belongs_to, each.version, each.base, None, "", rows, phase(queue, ""), now
