"""Beginning anew on purpose: the whole table goes out again, or is taken for what the API has.

It only prepares the queue; the next run delivers as always.
"""

from ondatra_dagster.delivery.frontier import NOTHING_ENQUEUED
from ondatra_dagster.delivery.queue.enqueue import enqueue
from ondatra_dagster.delivery.queue.tables import Queue
from ondatra_dagster.errors import StateError
from ondatra_dagster.sync.ports import Ports, SourceState
from ondatra_dagster.sync.sync import Sync
from ondatra_dagster.tracking.record import Operation, RecordStatus

NEVER_HELD = "select key from unit where base = '' and tried is null"
FORGET = (
    "delete from unit",
    "delete from staged",
    "delete from batch",
    "delete from meta where name = 'removals_upto'",
)


def resync(sync: Sync, ports: Ports, *, assume_delivered: bool) -> int:
    """Make the queue hold every row of the table, or none; how many keys the next run sends.

    A row goes out as an update where the API has acknowledged it, else as an insert. With `assume_delivered`
    the table as it is now counts as delivered.
    """
    source = ports.source()
    if source is None:
        raise StateError(f"{sync.model.name} has no table yet: run the model first")
    with sync.open_queue() as queue:
        if assume_delivered:
            _begin_anew(queue, sync, ports, source, watermark=source.version)
            return 0
        held, never_held = _held(queue, sync, ports, source)
        _begin_anew(queue, sync, ports, source, watermark=NOTHING_ENQUEUED)
        return sum(
            enqueue(queue, segment, now=ports.clock(), is_held=lambda key: _is_held(key, held, never_held))
            for segment in ports.feed.segments(None, source.version)
        )


def _is_held(key: str, held: set[str] | None, never_held: set[str]) -> bool:
    return key in held if held is not None else key not in never_held


def _held(queue: Queue, sync: Sync, ports: Ports, source: SourceState) -> tuple[set[str] | None, set[str]]:
    """The keys that the API has, as the records tell; None when the queue knows: all but the others."""
    if (queue.meta("base_url") or sync.config.base_url or "") != (sync.config.base_url or ""):
        return set(), set()  # another API
    if queue.meta("table_id") != source.table_id:
        return _held_by_records(sync, ports), set()
    if queue.watermark < source.version:
        after = None if queue.watermark == NOTHING_ENQUEUED else queue.watermark
        for segment in ports.feed.segments(after, source.version):
            enqueue(queue, segment, now=ports.clock())
    return None, {str(key) for (key,) in queue.store.rows(NEVER_HELD)}


def _held_by_records(sync: Sync, ports: Ports) -> set[str]:
    """Those whose newest acknowledged change wasn't their end."""
    newest: dict[str, tuple[int, bool]] = {}
    for end in ports.tracking.delivered_since(sync.id, None):
        if end.status == RecordStatus.SUCCEEDED:
            mark = (end.table_version, end.operation != Operation.DELETE)
            newest[end.identifier] = max(mark, newest.get(end.identifier, mark))
    return {key for key, (_, stays) in newest.items() if stays}


def _begin_anew(queue: Queue, sync: Sync, ports: Ports, source: SourceState, *, watermark: int) -> None:
    frontier = ports.tracking.newest_frontier(sync.id)
    with queue.store.immediate():
        for statement in FORGET:
            queue.store.run(statement)
        queue.set_meta("table_id", source.table_id)
        queue.set_meta("base_url", sync.config.base_url or "")
        queue.set_meta("watermark", watermark)
        if frontier:
            # the queue is newer than what the last run left behind, and isn't to be replaced by it
            queue.set_meta("last_run", max(frontier.run_id, queue.meta("last_run") or ""))
