"""The step of a sync run that sends the queue's units, as far as the guards, a pause and the API allow."""

import logging

from ondatra_dagster.delivery.delivery_loop import DeliveryHooks, DeliveryResult, DeliverySettings, deliver
from ondatra_dagster.delivery.finalize_call import call_finalize, clear_pending_finalize
from ondatra_dagster.delivery.push.push_interface import BatchSink
from ondatra_dagster.delivery.queue.async_jobs import count_units_in_jobs
from ondatra_dagster.delivery.queue.change_and_outcome_counts import (
    PLANNED,
    Counts,
    UnitCounter,
    UnitOperation,
    add_counts,
    count_units,
)
from ondatra_dagster.delivery.queue.claimed_batches import Batch
from ondatra_dagster.delivery.queue.queue_status import QueueStatus, read_status
from ondatra_dagster.delivery.queue.removal_count import RemovalCount, allow_removals
from ondatra_dagster.delivery.queue.settle_batch import SettledBatch
from ondatra_dagster.errors import OtherStateFolderError
from ondatra_dagster.sync.run_bookkeeping import RunBookkeeper
from ondatra_dagster.sync.run_context import RunContext
from ondatra_dagster.sync.run_counts_reasons_and_samples import RunCounters
from ondatra_dagster.sync.run_summary import MAX_SAMPLES, GridRow, describe_counts

log = logging.getLogger(__name__)


class DeliveryStep:
    """The delivery of one sync run."""

    def __init__(self, context: RunContext, bookkeeper: RunBookkeeper, counters: RunCounters) -> None:
        self._sync = context.sync
        self._ports = context.ports
        self._queue = context.queue
        self._bookkeeper = bookkeeper
        self._counters = counters
        self._counter = UnitCounter(self._queue)
        self._is_first_run = context.version_from is None
        # when to look for other state folders again, and to renew this run's heartbeat
        self._next_check_at = self._ports.clock() + self._ports.publish_seconds
        self._conflict: OtherStateFolderError | None = None  # set if another state folder has begun a run meanwhile

    def execute(self, removals: RemovalCount | None) -> DeliveryResult:
        """Send units until nothing more can be sent now, then call the sink's finalize().

        `removals` is the delete guard's count of removals. Open jobs are polled even if nothing may be sent,
        because they may expire meanwhile.
        """
        self._count_planned()
        try:
            return self._send_or_poll(removals)
        finally:
            self._counters.grid.count_unsent(count_units_in_jobs(self._queue, self._counter))

    def _count_planned(self) -> None:
        self._planned_counts = planned_counts = count_units(self._queue)
        with self._queue.store.write_transaction():
            all_counts = Counts({operation: planned_counts[operation] for operation in UnitOperation})
            add_counts(self._queue, self._bookkeeper.run_id, {PLANNED: all_counts})
        self._counters.grid.add_counts(GridRow.PLANNED, planned_counts)

    def _send_or_poll(self, removals: RemovalCount | None) -> DeliveryResult:
        status = self._read_queue_status()
        if not self._ports.may_send() or (removals and self._sync.limits.has_too_many_deletes(removals)):
            return self._poll_jobs() if status.polls_due and self._ports.may_poll else DeliveryResult()
        if not (status.can_deliver or status.can_finalize):
            return DeliveryResult()
        if removals:
            allow_removals(self._queue)
        self._bookkeeper.conflict_check.check_during_run()
        if self._is_first_run:
            self._announce_first_run()
        with self._ports.open_push() as push:
            delivery = self._deliver_batches(push)
            self._call_finalize(push)
        return delivery

    def _announce_first_run(self) -> None:
        rows = describe_counts(self._planned_counts) or "nothing"
        address = self._sync.push_config.base_url or f"the addresses in {self._sync.push_config.file}"
        self._ports.notify(f"{self._sync.id} runs for the first time: {rows} to send to {address}")

    def _poll_jobs(self) -> DeliveryResult:
        with self._ports.open_push() as push:
            return self._deliver_batches(push, only_polls=True)

    def _deliver_batches(self, push: BatchSink, *, only_polls: bool = False) -> DeliveryResult:
        delivery = deliver(
            self._queue,
            push,
            DeliverySettings.from_config(
                self._sync.push_config, run_id=self._bookkeeper.run_id, journal=self._sync.journal_file
            ),
            DeliveryHooks(
                clock=self._ports.clock,
                on_settled=self._record_batch,
                may_continue=lambda: not self._conflict and (only_polls or self._ports.may_send()),
                sleep=self._ports.sleep,
                on_idle=self._publish_and_check,
                idle_seconds=self._seconds_to_next_check,
            ),
            only_polls=only_polls,
            counter=self._counter,
        )
        if self._conflict:
            raise self._conflict
        return delivery

    def _publish_and_check(self) -> None:
        """Publish records that are due. Every few seconds, also look for other state folders that deliver."""
        now = self._ports.clock()
        self._bookkeeper.publisher.publish_if_due(now=now)
        if now >= self._next_check_at and not self._conflict:
            self._next_check_at = now + self._ports.publish_seconds
            try:
                self._bookkeeper.conflict_check.check_during_run()
            except OtherStateFolderError as conflict_error:
                self._conflict = conflict_error  # batches that are being sent are finished first

    def _seconds_to_next_check(self) -> float:
        now = self._ports.clock()
        return min(self._bookkeeper.publisher.seconds_to_next(now=now), max(self._next_check_at - now, 0.0))

    def _record_batch(self, batch: Batch, settled_batch: SettledBatch) -> None:
        self._log_warnings(batch, settled_batch)
        self._counters.add_settled(settled_batch)
        self._bookkeeper.publisher.add_settled_rows(settled_batch.record_count, now=self._ports.clock())
        self._publish_and_check()

    def _log_warnings(self, batch: Batch, settled_batch: SettledBatch) -> None:
        """Log the warnings that push() gave for delivered rows, each different message once per batch."""
        keys: dict[str, list[str]] = {}
        for warning in settled_batch.warnings:
            keys.setdefault(warning.message, []).append(warning.key)
        for message, warned_keys in list(keys.items())[:MAX_SAMPLES]:
            log_format = "sync=%s batch=%d rows=%d first=%s delivered with a warning: %s"
            log.warning(log_format, self._sync.id, batch.number, len(warned_keys), warned_keys[0], message)
        if len(keys) > MAX_SAMPLES:
            log_format = "sync=%s batch=%d %d more messages of rows that were delivered with a warning"
            log.warning(log_format, self._sync.id, batch.number, len(keys) - MAX_SAMPLES)

    def _call_finalize(self, push: BatchSink) -> None:
        """Call the sink's finalize() if it is due and no unit waits."""
        if "finalize" not in self._sync.push_config.functions:
            clear_pending_finalize(self._queue)
            return
        is_finalize_due = self._read_queue_status().can_finalize and self._ports.may_send()
        problem = call_finalize(self._queue, push, journal=self._sync.journal_file) if is_finalize_due else None
        if problem:
            self._counters.add_error(problem)

    def _read_queue_status(self) -> QueueStatus:
        return read_status(self._queue.store, now=self._ports.clock())
