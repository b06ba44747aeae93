"""The enqueueing of a resync: all rows of a table, and deletes of keys that the table no longer has."""

from collections.abc import Callable

import orjson

from ondatra_dagster.delivery.queue.enqueue_changes import (
    CHUNK_KEYS,
    CoalescedChange,
    NewUnit,
    add_units,
    build_maybe_sent_unit,
    coalesce_segment,
    count_stored_rows_to_send,
    keys_with_units,
    send_phase,
    split_into_chunks,
)
from ondatra_dagster.delivery.queue.queue_database import Queue
from ondatra_dagster.row_changes import FeedSegment

# a dead letter goes again, too; what is frozen goes first in any case
REQUEUE_KEYS = """
update unit set state = 'pending', attempts = 0, outages = 0, due_at = null, message = null, died_at = null
where state in ('waiting', 'dead') and key in (select value from json_each(?))
"""
REQUEUE_ALL_DELETES = """
update unit set state = 'pending', attempts = 0, outages = 0, due_at = null, message = null, died_at = null
where state in ('waiting', 'dead') and desired = ''
"""


def enqueue_all_rows(queue: Queue, segment: FeedSegment, *, now: float, only_adds: bool) -> int:
    """Let every row of a snapshot go once more; how many keys that are.

    The queue knows what the API has: rows with a unit go as that says, all others as updates, or as inserts
    in a kind that has none. Cut off, it has let some of them go, which harms nobody.
    """
    of = _build_insert if only_adds else build_maybe_sent_unit
    return _add_units(queue, segment, lambda each: of(queue, each, now), renews=True)


def enqueue_deletes(queue: Queue, segment: FeedSegment, *, now: float) -> int:
    """Let the deletes of a segment go, of keys that the queue doesn't know; how many these are."""
    added = _add_units(queue, segment, lambda each: _build_delete(queue, each, now), renews=False)
    with queue.store.write_transaction():
        owed = queue.store.execute(REQUEUE_ALL_DELETES)
    return added + owed


def _add_units(queue: Queue, segment: FeedSegment, of: Callable[[CoalescedChange], NewUnit], *, renews: bool) -> int:
    keys = 0
    for chunk in split_into_chunks(coalesce_segment(queue, segment), CHUNK_KEYS):
        with queue.store.write_transaction():
            known = keys_with_units(queue, [each.key for each in chunk])
            new = [of(each) for each in chunk if each.key not in known]
            add_units(queue, new)
            if renews:
                queue.store.execute(REQUEUE_KEYS, (orjson.dumps(sorted(known)).decode(),))
            keys += len(chunk) if renews else len(new)
    return keys


def _build_insert(queue: Queue, each: CoalescedChange, now: float) -> NewUnit:
    return (each.key, each.belongs_to, each.version, "", None, each.desired, 1, send_phase(queue, each.desired), now)


def _build_delete(queue: Queue, each: CoalescedChange, now: float) -> NewUnit:
    rows = count_stored_rows_to_send(queue, each.acknowledged, None, "")
    return (each.key, each.belongs_to, each.version, each.acknowledged, None, "", rows, send_phase(queue, ""), now)


DELETE_UNITS_AND_WATERMARK = (
    "delete from unit",
    "delete from staged",
    "delete from batch",
    # without these two the queue says nothing: cut off, a resync is one that never began
    "delete from meta where name in ('table_id', 'watermark', 'removals_upto', 'size')",
)
