"""Before anything is sent: does the queue still tell what the API holds, and if not, what do the records?"""

from collections.abc import Hashable, Iterable, Iterator, Sequence

from ondatra_dagster.changes import ChangeType, Segment
from ondatra_dagster.delivery.finalizing import owe_units, renew_debt
from ondatra_dagster.delivery.frontier import NOTHING_ENQUEUED, Frontier
from ondatra_dagster.delivery.queue.enqueue import enqueue
from ondatra_dagster.delivery.queue.form import NAMED_SINCE, take_form
from ondatra_dagster.delivery.queue.publication import files_begun, leaves_frontier, open_runs
from ondatra_dagster.delivery.queue.recovered import KeyEnd, Recovered, contents_told
from ondatra_dagster.delivery.queue.removals import contents_of, remember_contents
from ondatra_dagster.delivery.queue.settled import SUCCEEDED
from ondatra_dagster.delivery.queue.tables import Queue
from ondatra_dagster.delivery.queue.takeover import (
    beside_runs,
    doubt,
    end_takeover,
    frontier_of,
    is_taking_over,
    take_over,
)
from ondatra_dagster.delivery.target import Shape
from ondatra_dagster.errors import ResyncNeededError
from ondatra_dagster.sync.form_check import refuse_form_of, settle_form
from ondatra_dagster.sync.other_states import describe_takeover, newest_run
from ondatra_dagster.sync.ports import Feed, Ports, SourceState
from ondatra_dagster.sync.records import note_told_aside
from ondatra_dagster.sync.sync import Sync
from ondatra_dagster.sync.whole_table import KEY, whole_segment
from ondatra_dagster.tracking.record import Delivered

# sorts before every run: what a sync leaves before its first run has sent anything
BEFORE_ALL_RUNS = "00000000T000000Z-aaaaaa"


def cross_check(
    queue: Queue, sync: Sync, ports: Ports, source: SourceState, *, is_new_state: bool = False
) -> Recovered:
    """Make the queue one that can be gone on from, or say why it can't; what later records say has ended.

    With `is_new_state` a sync without a frontier begins as in its first run, whatever was delivered before.
    """
    frontier, newest = ports.tracking.newest_frontier(sync.id), newest_run(sync, ports)
    has_begun = queue.meta("table_id") is not None and not is_taking_over(queue)
    is_lost = not has_begun or _is_older(queue, sync, ports, frontier, newest)
    left = frontier if is_lost and frontier and _may_have_sent(frontier, newest) else None
    if left:
        refuse_form_of(left, sync, source)
        ports.notify(describe_takeover(queue, sync, ports, left))
        take_over(queue, left, now=ports.clock(), recorded_upto=newest)
        renew_debt(queue, journal=sync.journal)
    elif is_lost or _is_empty_for_another(queue, sync, source):
        if frontier is None and not is_new_state:
            _refuse_if_known(sync, ports)
        _begin(queue, sync, ports, source, frontier)
    _refuse_another_table(queue, sync, source)
    _refuse_another_destination(queue, sync)
    settle_form(queue, sync, ports, source)
    return _recover(queue, sync, ports, source, left) if left else Recovered(())


def _may_have_sent(frontier: Frontier, newest: str) -> bool:
    """Whether the run that left it, or one that came later, had anything to send."""
    return frontier.watermark != NOTHING_ENQUEUED or newest > frontier.run_id


def _is_empty_for_another(queue: Queue, sync: Sync, source: SourceState) -> bool:
    """Whether it was begun for another table or another API, and has taken in nothing of it."""
    begun_for = queue.meta("table_id"), queue.meta("base_url") or ""
    return queue.watermark == NOTHING_ENQUEUED and begun_for != (source.table_id, sync.config.base_url or "")


def is_older(queue: Queue, sync: Sync, ports: Ports) -> bool:
    """Whether others have gone on since the queue was as it is: somebody has put back a copy of it."""
    return _is_older(queue, sync, ports, ports.tracking.newest_frontier(sync.id), newest_run(sync, ports))


def _is_older(queue: Queue, sync: Sync, ports: Ports, frontier: Frontier | None, newest: str) -> bool:
    if frontier is None:
        return False
    known = queue.meta("last_run") or BEFORE_ALL_RUNS
    known_beside, left_beside = beside_runs(queue, frontier)
    if known < max(frontier.run_id, newest) or known_beside < left_beside:
        return True
    return any(_has_gone_on(queue, sync, ports, frontier, run_id) for run_id in open_runs(queue))


def _has_gone_on(queue: Queue, sync: Sync, ports: Ports, frontier: Frontier, run_id: str) -> bool:
    """Whether a run that to the queue hasn't ended has left what the queue doesn't know of."""
    if frontier.run_id == run_id and leaves_frontier(queue) != run_id:
        return True
    begun = files_begun(queue, run_id)
    there = ports.tracking.record_files(sync.id, run_id)
    unknown = [file for file in there if file[1] >= begun.get(file[0], 0)]
    return ports.tracking.count_records(sync.id, run_id, unknown) > 0  # a run's end leaves an empty one


def _begin(queue: Queue, sync: Sync, ports: Ports, source: SourceState, frontier: Frontier | None) -> None:
    """Nothing has been sent yet, so of what and to whom that would have been doesn't matter."""
    with queue.store.immediate():
        if frontier:
            queue.set_meta("last_run", frontier.run_id)  # it knows all that this one tells
        queue.set_meta("table_id", source.table_id)
        queue.set_meta("base_url", sync.config.base_url or "")
        take_form(queue, sync.form.over(source.columns), named_since="")
        # in the transaction: a queue that has begun has left a frontier, so that it can be lost at any time
        before = frontier_of(queue, sync_id=sync.id, run_id=BEFORE_ALL_RUNS, written_at=ports.now())
        ports.tracking.write_frontier(before)


def _recover(queue: Queue, sync: Sync, ports: Ports, source: SourceState, frontier: Frontier) -> Recovered:
    """What the records of later runs say of the units that the frontier left."""
    named_since = (queue.meta(NAMED_SINCE) or "") if sync.delivers_by_key else ""
    ends = list(ports.tracking.delivered_since(sync.id, frontier.run_id))
    runs = [run for run in ports.tracking.runs(sync.id) if run > frontier.run_id]
    told = [
        _key_end(sync, end) for end in ends if end.table_id == frontier.table_id and end.run_id > named_since
    ]
    cut_off_at = {run: version for run in runs if (version := _sent_upto(sync, ports, run)) is not None}
    _refuse_older_table(sync, source, max([*cut_off_at.values(), *(end.version for end in told)], default=-1))
    if ends and "finalize" in sync.config.functions:
        _owe(queue, [_key_end(sync, end) for end in ends])
    if sync.shape is Shape.MIRROR:
        remember_contents(queue, contents_told(told, contents_of(queue.store)).items())
    recovered = Recovered(
        told,
        replaces_rows=queue.replaces_rows,
        cut_off_at=cut_off_at,
        frozen={unit.key for unit in frontier.units if unit.state == "claimed"},
    )
    recovered.drop_delivered(queue)
    if runs:
        note_told_aside(queue, since=frontier.run_id, upto=runs[-1])
        doubt(queue)  # the newest of them was cut off: nobody has noted what it did last
    return recovered


def _key_end(sync: Sync, end: Delivered) -> KeyEnd:
    version, message = end.table_version, end.status_message
    return KeyEnd(key_of(sync, end), version, end.status, message, end.change_type, end.run_id)


def _sent_upto(sync: Sync, ports: Ports, run_id: str) -> int | None:
    """The version of the table from which a run began."""
    versions = (ports.tracking.metadata(sync.id, run_id) or {}).get("versions")
    upto = versions.get("to") if isinstance(versions, dict) else None
    return upto if isinstance(upto, int) else None


def _owe(queue: Queue, ends: Iterable[KeyEnd]) -> None:
    """Owe finalize() the units that these records tell of: it may or may not have been called for them."""
    is_delivered: dict[Hashable, bool] = {}
    for number, end in enumerate(ends):
        if end.change_type == ChangeType.UPDATE_PREIMAGE:
            continue
        unit = end.sending if queue.shape is Shape.GROUP else number
        is_delivered[unit] = is_delivered.get(unit, True) and end.status == SUCCEEDED
    succeeded = sum(is_delivered.values())
    with queue.store.immediate():
        owe_units(queue, succeeded=succeeded, failed=len(is_delivered) - succeeded)


def key_of(sync: Sync, end: Delivered) -> str:
    """The unit that a record is of."""
    if sync.is_whole_table:
        return KEY
    return end.identifier if sync.delivers_by_key else str(end.rowid)


def _refuse_if_known(sync: Sync, ports: Ports) -> None:
    # with no records, only the history can tell a sync whose state is lost from one that has never run
    records = ports.tracking.runs(sync.id) or ports.is_logged()
    if records or ports.history.required().has_begun(sync.id):
        raise ResyncNeededError(
            f"{sync.id} has run before, but both its queue and its frontier in the tracking folder are gone,"
            " so it isn't known what the API holds; bring one of them back, or run"
            f" `ondatra resync {sync.id}`, or send all rows as new ones: `ondatra run --allow-new-state"
            f" {sync.model.name}`"
        )


def _refuse_another_table(queue: Queue, sync: Sync, source: SourceState) -> None:
    if queue.meta("table_id") != source.table_id:
        raise ResyncNeededError(
            f"the table of {sync.model.name} was made anew since {sync.id} last ran, so its rows can't be"
            f" compared with what the API holds; run `ondatra resync {sync.id}`"
        )
    _refuse_older_table(sync, source, queue.watermark)
    if NOTHING_ENQUEUED != queue.watermark < source.readable_from:
        raise ResyncNeededError(
            f"{sync.id} has seen {sync.model.name} up to version {queue.watermark}, and what changed between"
            f" that and version {source.readable_from} was freed, which a newer state of {sync.id} had seen:"
            f" it was put back; run `ondatra resync {sync.id}`"
        )


def _refuse_older_table(sync: Sync, source: SourceState, sent_upto: int) -> None:
    if source.version < sent_upto:
        raise ResyncNeededError(
            f"the table of {sync.model.name} is at version {source.version}, but {sync.id} has sent up to"
            f" version {sent_upto}: it was put back; run `ondatra resync {sync.id}`"
        )


def _refuse_another_destination(queue: Queue, sync: Sync) -> None:
    known, now = queue.meta("base_url") or "", sync.config.base_url or ""
    if known != now:
        raise ResyncNeededError(
            f"{sync.config.file} now sends to {now or 'no base_url'}, but what {sync.id} knows is what"
            f" {known or 'no base_url'} holds; put base_url back, or run `ondatra resync {sync.id}`"
        )


def known_address(queue: Queue, sync: Sync, ports: Ports) -> str:
    """The base_url of the API of which queue or frontier tell; this sync's own when neither does."""
    known = queue.meta("base_url")
    frontier = ports.tracking.newest_frontier(sync.id) if known is None else None
    return frontier.base_url if frontier else (sync.config.base_url or "") if known is None else known


def take_in(queue: Queue, sync: Sync, ports: Ports, source: SourceState, recovered: Recovered) -> None:
    """Bring the queue up to the table as it is, and end a takeover that was begun."""
    now = ports.clock()
    recovered.bury_refused(queue, now)
    for upto in _stops(queue, sync, source, recovered):
        for segment in _segments(queue, sync, ports.feed, source, upto):
            _enqueue(queue, segment, recovered, now)
        if recovered.may_be_sent(upto):
            doubt(queue)
        recovered.bury_refused(queue, now)
    with queue.store.immediate():
        end_takeover(queue)


def _enqueue(queue: Queue, segment: Segment, recovered: Recovered, now: float) -> None:
    if not recovered:
        enqueue(queue, segment, now=now)
        return
    enqueue(queue, recovered.without_delivered(segment), now=now)
    recovered.drop_replaced(queue, after=segment.after)


def _stops(queue: Queue, sync: Sync, source: SourceState, recovered: Recovered) -> Sequence[int]:
    if sync.is_whole_table:  # there is only what the table has now
        return [source.version] if source.version > queue.watermark else []
    return recovered.stops(after=queue.watermark, upto=source.version)


def _segments(queue: Queue, sync: Sync, feed: Feed, source: SourceState, upto: int) -> Iterator[Segment]:
    """The changes up to this version that the queue hasn't seen; of a first sync the table as it was then."""
    after = queue.watermark
    if sync.is_whole_table:
        yield whole_segment(feed, after=after, upto=upto, columns=source.columns)
    else:
        yield from feed.segments(None if after == NOTHING_ENQUEUED else after, upto)
