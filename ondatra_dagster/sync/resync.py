"""Beginning anew on purpose: the whole table goes out again, or is taken for what the API has.

It only prepares the queue; the next run delivers as always.
"""

import collections
import dataclasses
import uuid
from collections.abc import Collection, Mapping

from ondatra_dagster.changes import ChangeType, Segment
from ondatra_dagster.delivery.finalizing import renew_debt
from ondatra_dagster.delivery.frontier import Frontier
from ondatra_dagster.delivery.queue.enqueue import enqueue
from ondatra_dagster.delivery.queue.form import NAMED_SINCE, known_form, take_form
from ondatra_dagster.delivery.queue.recovered import Recovered
from ondatra_dagster.delivery.queue.removals import forget_contents, remember_contents
from ondatra_dagster.delivery.queue.renewal import remove, send_again
from ondatra_dagster.delivery.queue.tables import GENERATION, OWED, Queue
from ondatra_dagster.delivery.queue.takeover import (
    LEFT_BESIDE_RUNS,
    beside_runs,
    end_takeover,
    frontier_of,
    is_taking_over,
    take_for_none,
)
from ondatra_dagster.delivery.shapes import Form
from ondatra_dagster.delivery.target import Shape
from ondatra_dagster.errors import ResyncNeededError, StateError
from ondatra_dagster.sync.cross_check import (
    BEFORE_ALL_RUNS,
    cross_check,
    is_older,
    known_address,
    take_in,
)
from ondatra_dagster.sync.form_check import form_of, named_since
from ondatra_dagster.sync.other_states import OtherStates, newest_run
from ondatra_dagster.sync.ports import Ports, SourceState
from ondatra_dagster.sync.records import note_told_aside
from ondatra_dagster.sync.run_account import close_crashed_runs
from ondatra_dagster.sync.sent import Sent
from ondatra_dagster.sync.start import RESYNC
from ondatra_dagster.sync.sync import Sync
from ondatra_dagster.sync.whole_table import whole_segment

FORGET = (
    "delete from unit",
    "delete from staged",
    "delete from batch",
    # without these two the queue says nothing: cut off, a resync is one that never began
    "delete from meta where name in ('table_id', 'watermark', 'removals_upto', 'size')",
)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """How to begin anew."""

    assume_delivered: bool = False  # nothing is sent: the table as it is now counts as delivered
    removes: bool = False  # rows that the records say were sent and the table no longer has are deleted


def resync(sync: Sync, ports: Ports, way: Way) -> int:
    """Make the queue hold every row of the table, or none; how many keys the next run sends.

    A row goes out as an update where the API has acknowledged it, else as an insert.
    """
    source = ports.source()
    if source is None:
        raise StateError(f"{sync.model.name} has no table yet: run the model first")
    with sync.open_queue() as queue:
        source = ports.source() or source  # until the queue was ours, others may have gone on with it
        others = OtherStates(sync, ports)
        others.look_before_run()
        others.begin(f"resync-{uuid.uuid4().hex[:12]}")
        if is_older(queue, sync, ports):
            take_for_none(queue)
        keys = _Resync(sync, ports, queue, source).go(way)
        leave_frontier(queue, sync, ports)
        others.end()
        return keys


class _Resync:
    """One resync, with the queue in its hands."""

    def __init__(self, sync: Sync, ports: Ports, queue: Queue, source: SourceState) -> None:
        self._sync = sync
        self._ports = ports
        self._queue = queue
        self._source = source
        self._now = ports.clock()
        self._only_adds = sync.model.kind.only_adds
        self._is_lost = queue.meta("table_id") is None or is_taking_over(queue)
        self._frontier = frontier = ports.tracking.newest_frontier(sync.id) if self._is_lost else None
        table_id = frontier.table_id if frontier else queue.meta("table_id")
        self._is_another_table = table_id != source.table_id
        self._form = sync.form.over(source.columns)
        self._named_since = _named_since(queue, frontier, self._form, ports.tracking.runs(sync.id))

    def go(self, way: Way) -> int:
        recovered = None if way.assume_delivered else self._recovered()
        # what runs that were cut off had settled is what the API holds, too
        close_crashed_runs(self._queue, self._sync, self._ports)
        if way.assume_delivered:
            self._begin_anew(self._source.version, holds=self._contents())
            return 0
        # before any row is in the queue again: an API would answer the old idempotency keys from its store
        self._queue.set_meta(GENERATION, uuid.uuid4().hex)
        keys = self._by_queue(recovered) if recovered is not None else self._by_records()
        self._queue.set_meta(RESYNC, 1)
        return keys + (self._remove() if way.removes else 0)

    def _recovered(self) -> Recovered | None:
        """What is known beside a queue that can be gone on from; None where there is no such queue."""
        try:
            return cross_check(self._queue, self._sync, self._ports, self._source)
        except ResyncNeededError:
            return None

    def _by_queue(self, recovered: Recovered) -> int:
        """Where the queue knows what the API has."""
        take_in(self._queue, self._sync, self._ports, self._source, recovered)
        return send_again(self._queue, self._content(), now=self._now, only_adds=self._only_adds)

    def _by_records(self) -> int:
        """Where only the records can tell, as far as they reach."""
        with self._queue.store.immediate():
            self._go_on_from_frontier()
            self._leave_old_address()
            sent = self._sent()
            self._forget()
        is_held = None if self._only_adds else sent.holds
        keys = enqueue(self._queue, self._content(), now=self._now, is_held=is_held)
        self._begin_anew(self._source.version)
        return keys

    def _content(self) -> Segment:
        """The table as it is."""
        feed, version = self._ports.feed, self._source.version
        if self._sync.is_whole_table:
            return whole_segment(feed, after=-1, upto=version, columns=self._source.columns)
        pages = (page for segment in feed.segments(None, version) for page in segment.pages)
        return Segment(-1, version, pages)

    def _remove(self) -> int:
        if self._sync.shape is Shape.MIRROR:
            return 0  # what isn't in a whole content goes by itself
        gone = self._sent().gone(self._queue, self._source)
        return remove(self._queue, gone, now=self._now)

    def _sent(self) -> Sent:
        since = self._queue.meta("known_since")
        return Sent(
            self._sync,
            self._ports.tracking,
            self._source.table_id,
            since=since or None,
            named_since=self._named_since,
        )

    def _contents(self) -> Mapping[str, int]:
        """How many rows each mirror has."""
        if self._sync.shape is not Shape.MIRROR:
            return {}
        pages = self._content().pages
        changes = (change for page in pages for change in page.changes)
        return collections.Counter(each.key for each in changes if each.change_type is ChangeType.INSERT)

    def _begin_anew(self, watermark: int, *, holds: Mapping[str, int] | None = None) -> None:
        with self._queue.store.immediate():
            if holds is not None:
                self._go_on_from_frontier()
                self._leave_old_address()
                self._forget()
                forget_contents(self._queue)
                remember_contents(self._queue, holds.items())
            end_takeover(self._queue)
            self._queue.set_meta("table_id", self._source.table_id)
            self._queue.set_meta("base_url", self._sync.config.base_url or "")
            self._queue.set_meta("watermark", watermark)
            if self._is_another_table:
                # the rows that were set aside beside it are others, too, and counted from its first version
                self._queue.forget_meta("invalid_watermark")
            take_form(self._queue, self._form, named_since=self._named_since)

    def _go_on_from_frontier(self) -> None:
        """What a lost queue has to know beside its units; these begin anew."""
        if not self._is_lost:
            return
        frontier = self._frontier
        if frontier:
            self._queue.set_meta("known_since", frontier.known_since)
            self._queue.set_meta("invalid_watermark", frontier.invalid_watermark)
            if OWED in frontier.notes and self._queue.meta(OWED) is None:
                self._queue.set_meta(OWED, frontier.notes[OWED])
                renew_debt(self._queue, journal=self._sync.journal)
        note_told_aside(
            self._queue,
            since=frontier.run_id if frontier else "",
            upto=newest_run(self._sync, self._ports),
        )

    def _leave_old_address(self) -> None:
        """Where base_url is another now, what the records tell of so far is what another API holds."""
        if known_address(self._queue, self._sync, self._ports) != (self._sync.config.base_url or ""):
            self._queue.set_meta("known_since", newest_run(self._sync, self._ports))
            forget_contents(self._queue)

    def _forget(self) -> None:
        for statement in FORGET:
            self._queue.store.run(statement)


def _named_since(queue: Queue, frontier: Frontier | None, form: Form, runs: Collection[str]) -> str:
    if frontier is None:
        return named_since(known_form(queue), queue.meta(NAMED_SINCE) or "", form, runs)
    return named_since(form_of(frontier), frontier.notes.get(NAMED_SINCE, ""), form, runs)


def leave_frontier(queue: Queue, sync: Sync, ports: Ports) -> None:
    """Let what was decided outlive the queue file, in place of what the last run left."""
    frontier = ports.tracking.newest_frontier(sync.id)
    known = frontier.run_id if frontier else BEFORE_ALL_RUNS
    # what any run has recorded until now says nothing beside it
    newest = max(known, queue.meta("last_run") or "", newest_run(sync, ports))
    queue.set_meta("last_run", newest)
    # a copy from before it has seen the same runs, and has to give way all the same
    queue.set_meta(LEFT_BESIDE_RUNS, 1 + (max(beside_runs(queue, frontier)) if frontier else 0))
    left = frontier_of(queue, sync_id=sync.id, run_id=newest, written_at=ports.now())
    ports.tracking.write_frontier(left)
