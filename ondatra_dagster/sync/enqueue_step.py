"""The step of a sync run that enqueues the table's new changes. It sends nothing."""

from collections.abc import Iterator, Sequence

from ondatra_dagster.delivery.queue.enqueue_changes import enqueue_segment
from ondatra_dagster.delivery.queue.outcomes_recorded_after_snapshot import RecordedOutcomes
from ondatra_dagster.delivery.queue.queue_database import NOTHING_ENQUEUED, Queue
from ondatra_dagster.delivery.queue.snapshot_and_restore import end_restore, mark_all_maybe_sent
from ondatra_dagster.row_changes import FeedSegment
from ondatra_dagster.sync.recovery.queue_recovery import recover_queue, write_queue_snapshot
from ondatra_dagster.sync.recovery.state_folder_conflict import StateFolderConflictCheck
from ondatra_dagster.sync.run_bookkeeping import close_crashed_runs
from ondatra_dagster.sync.run_context import Feed, Ports, SourceState
from ondatra_dagster.sync.sync_definition import Sync
from ondatra_dagster.sync.whole_table_unit_and_clone_feeds import read_whole_table


def catch_up_queue(sync: Sync, ports: Ports) -> int | None:
    """Enqueue the new changes of the sync's table; return the number of new table versions.

    Return None if the model has no table, or if the sync has never run. The function also writes the queue's
    snapshot, so that rebuilding a lost queue doesn't need these table versions. Raise BusyError if another
    process delivers the sync, and OtherStateFolderError if another state folder delivers it.
    """
    source = ports.read_source()
    if source is None or not sync.queue_file.exists():
        return None
    with sync.open_queue() as queue:
        source = ports.read_source() or source  # again: other processes may have used the queue until it was locked
        StateFolderConflictCheck(sync, ports).check_before_run()
        recorded_outcomes = recover_queue(queue, sync, ports, source)
        close_crashed_runs(queue, sync, ports)
        old_watermark = queue.watermark
        enqueue_table_changes(queue, sync, ports, source, recorded_outcomes)
        write_queue_snapshot(queue, sync, ports)
        return queue.watermark - old_watermark


def enqueue_table_changes(
    queue: Queue, sync: Sync, ports: Ports, source: SourceState, recorded_outcomes: RecordedOutcomes
) -> None:
    """Enqueue the changes up to the table's present version, and end the queue's restore if one has begun."""
    now = ports.clock()
    recorded_outcomes.mark_rejected_dead(queue, now)
    for stop_version in _list_stop_versions(queue, sync, source, recorded_outcomes):
        for segment in _read_segments(queue, sync, ports.feed, source, stop_version):
            _enqueue_segment(queue, segment, recorded_outcomes, now)
        if recorded_outcomes.may_be_sent(stop_version):
            mark_all_maybe_sent(queue)
        recorded_outcomes.mark_rejected_dead(queue, now)
    with queue.store.write_transaction():
        end_restore(queue)


def _enqueue_segment(queue: Queue, segment: FeedSegment, recorded_outcomes: RecordedOutcomes, now: float) -> None:
    if not recorded_outcomes:
        enqueue_segment(queue, segment, now=now)
        return
    enqueue_segment(queue, recorded_outcomes.without_delivered_changes(segment), now=now)
    recorded_outcomes.delete_replaced_units(queue, after=segment.after_version)


def _list_stop_versions(
    queue: Queue, sync: Sync, source: SourceState, recorded_outcomes: RecordedOutcomes
) -> Sequence[int]:
    if sync.is_whole_table:  # only the table's present rows can be sent
        return [source.version] if source.version > queue.watermark else []
    return recorded_outcomes.split_versions(after=queue.watermark, upto=source.version)


def _read_segments(queue: Queue, sync: Sync, feed: Feed, source: SourceState, upto: int) -> Iterator[FeedSegment]:
    """Yield the changes up to version `upto` that aren't in the queue yet.

    For a sync's first run, or a sync of whole tables, yield the whole table.
    """
    watermark = queue.watermark
    if sync.is_whole_table:
        yield read_whole_table(feed, after=watermark, upto=upto, columns=source.columns)
    else:
        yield from feed.segments(None if watermark == NOTHING_ENQUEUED else watermark, upto)
