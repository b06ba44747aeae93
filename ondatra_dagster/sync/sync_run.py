"""A sync run from end to end: recover the queue, enqueue, check deletes, deliver, publish, summarize.

Each step can be interrupted at any moment; the next run continues from what is on disk. The module
run_counts_reasons_and_samples has the counters, run_bookkeeping the run's stored state, and delivery_step the
sending. A dry run does the steps before the delivery, on a copy of the queue.
"""

import contextlib
import dataclasses
import logging
from datetime import UTC, datetime

from ondatra_dagster import interruption
from ondatra_dagster.delivery.queue.async_jobs import count_units_in_jobs
from ondatra_dagster.delivery.queue.change_and_outcome_counts import UnitCounter, UnitOperation, count_units
from ondatra_dagster.delivery.queue.claimed_batches import mark_due_pending
from ondatra_dagster.delivery.queue.outcomes_recorded_after_snapshot import RecordedOutcomes
from ondatra_dagster.delivery.queue.pending_rows import read_oldest_pending
from ondatra_dagster.delivery.queue.preview_of_changes_to_send import read_expected_changes
from ondatra_dagster.delivery.queue.queue_database import Queue, correct_times
from ondatra_dagster.delivery.queue.queue_status import read_status
from ondatra_dagster.delivery.queue.removal_count import RemovalCount
from ondatra_dagster.delivery.queue.unpublished_records import PushAttempt
from ondatra_dagster.errors import BusyError, OndatraError, OtherStateFolderError
from ondatra_dagster.interruption import InterruptedRunError
from ondatra_dagster.sync.delivery_step import DeliveryStep
from ondatra_dagster.sync.enqueue_step import enqueue_table_changes
from ondatra_dagster.sync.record_publisher import drop_recorded_invalid_rows, store_invalid_rows
from ondatra_dagster.sync.recovery.queue_recovery import recover_queue
from ondatra_dagster.sync.recovery.state_folder_conflict import StateFolderConflictCheck
from ondatra_dagster.sync.run_bookkeeping import (
    RunBookkeeper,
    build_past_run,
    choose_mode,
    close_crashed_runs,
    find_newest_known_run,
    record_refusal,
)
from ondatra_dagster.sync.run_context import Ports, RunContext, RunOptions, create_run_id, version_of_watermark
from ondatra_dagster.sync.run_counts_reasons_and_samples import RunCounters
from ondatra_dagster.sync.run_history_store import RunResult
from ondatra_dagster.sync.run_summary import MAX_SAMPLES, DryRunResult, GridRow, RunCause, RunSummary, describe_counts
from ondatra_dagster.sync.send_guards import check_removals, count_table_units, unit_noun
from ondatra_dagster.sync.sync_checks import Severity, run_sync_checks
from ondatra_dagster.sync.sync_definition import Sync

log = logging.getLogger(__name__)

INTERRUPTED_MESSAGE = "it was interrupted; the next run continues from there"


def run_sync(sync: Sync, ports: Ports, options: RunOptions) -> RunSummary:
    """Deliver the sync's rows as far as possible now, and return a summary of the outcomes.

    If another process delivers this sync, or there is nothing to do, the summary says so and has no run id.
    """
    at, conflict_check = ports.now(), StateFolderConflictCheck(sync, ports)
    source = ports.read_source()
    if source is None:
        return summarize_missing_table(sync, at)
    with contextlib.ExitStack() as stack:
        try:
            queue = stack.enter_context(sync.open_queue())
        except BusyError as busy_error:
            return RunSummary.without_run(sync.id, str(busy_error), end_time=at)
        source = ports.read_source() or source  # again: other processes may have used the queue until it was locked
        context = RunContext.create(sync, ports, options, queue, source)
        try:
            conflict_check.check_before_run()
            recorded_outcomes = recover_queue(queue, sync, ports, source, is_new_state=options.allows_new_state)
        except OndatraError as error:
            record_refusal(context, error)
            raise
        close_crashed_runs(queue, sync, ports)
        correct_queue_times(queue, sync, ports.clock())
        mark_due_pending(queue, ports.clock())
        return SyncRun(context.with_current_watermarks()).execute(recorded_outcomes, conflict_check)


def correct_queue_times(queue: Queue, sync: Sync, now: float) -> None:
    """Correct times that a clock set ahead has left in the queue, and log a warning about them."""
    latest_time = correct_times(queue, now)
    if latest_time is not None:
        latest_text, now_text = (
            datetime.fromtimestamp(time, UTC).isoformat(" ", "seconds") for time in (latest_time, now)
        )
        log.warning(
            "%s: its queue has times up to %s, and the clock says %s. All waiting rows count as due now."
            " If the clock is wrong, correct it",
            *(sync.id, latest_text, now_text),
        )


def summarize_missing_table(sync: Sync, end_time: datetime) -> RunSummary:
    """Return the summary of a sync whose model has no table yet."""
    message = f"{sync.model.name} has no table yet; it is created when the model runs"
    return RunSummary.without_run(sync.id, message, end_time=end_time)


class SyncRun:
    """A sync run from its start to its end."""

    def __init__(self, context: RunContext) -> None:
        self._context = context
        self._sync = context.sync
        self._ports = context.ports
        self._queue = context.queue
        self._source = context.source
        self._counters = RunCounters()
        self._removals: RemovalCount | None = None

    def execute(self, recorded_outcomes: RecordedOutcomes, conflict_check: StateFolderConflictCheck) -> RunSummary:
        if not self._has_work():
            enqueue_table_changes(self._queue, self._sync, self._ports, self._source, recorded_outcomes)
            self._check_removals()
            return self._build_summary(None, message=self._describe_hold() or "nothing is new, and nothing is due")
        bookkeeper = self._begin_run(conflict_check)
        try:
            self._enqueue_and_store_invalid(recorded_outcomes, bookkeeper.run_id)
            self._check_removals()
            delivery = DeliveryStep(self._context, bookkeeper, self._counters).execute(self._removals)
            summary = self._build_summary(
                bookkeeper.run_id, is_outage=delivery.is_outage, message=self._describe_hold()
            )
            failed = any(verdict.severity is Severity.ERROR for verdict in run_sync_checks(summary, self._sync.limits))
            bookkeeper.end_run(summary, RunResult.FAILED if failed else RunResult.SUCCEEDED)
        except (OndatraError, InterruptedRunError) as error:
            self._record_failure(bookkeeper, error)
            raise
        return summary

    def _begin_run(self, conflict_check: StateFolderConflictCheck) -> RunBookkeeper:
        try:
            return RunBookkeeper.begin_run(self._context, conflict_check)
        except OtherStateFolderError as error:
            record_refusal(self._context, error)
            raise

    def _record_failure(self, bookkeeper: RunBookkeeper, error: BaseException) -> None:
        """Record that the run failed.

        If a signal was received, record an interruption and raise InterruptedRunError: the signal most likely
        caused the error.
        """
        if interruption.received_signal():
            bookkeeper.record_failure(
                self._build_summary(bookkeeper.run_id, message=INTERRUPTED_MESSAGE), RunResult.INTERRUPTED
            )
            raise InterruptedRunError from None
        self._counters.add_error(str(error))
        bookkeeper.record_failure(self._build_summary(bookkeeper.run_id, message=str(error)), RunResult.FAILED)

    def execute_dry(self, recorded_outcomes: RecordedOutcomes, run_id: str) -> RunSummary:
        """Execute the steps of a run up to its first send; leave their changes in the queue."""
        self._enqueue_and_store_invalid(recorded_outcomes, run_id)
        self._check_removals()
        self._counters.grid.add_counts(GridRow.PLANNED, count_units(self._queue))
        self._counters.grid.count_unsent(count_units_in_jobs(self._queue, UnitCounter(self._queue)))
        return self._build_summary(run_id, message=self._ports.find_hold_reason() or "")

    def _has_work(self) -> bool:
        return (
            self._source.version > self._queue.watermark
            or self._source.invalid_version > self._queue.invalid_watermark
            or self._can_send_or_poll()
        )

    def _can_send_or_poll(self) -> bool:
        """Return whether units of the queue may be sent now, or jobs may be polled now."""
        status = read_status(self._queue.store, now=self._ports.clock())
        return (status.can_send and self._ports.may_send()) or (status.polls_due > 0 and self._ports.may_poll)

    def _enqueue_and_store_invalid(self, recorded_outcomes: RecordedOutcomes, run_id: str) -> None:
        enqueue_table_changes(self._queue, self._sync, self._ports, self._source, recorded_outcomes)
        now, invalid_version = self._ports.clock(), self._source.invalid_version
        if invalid_version > self._queue.invalid_watermark:
            invalid_rows = self._ports.feed.invalid_rows(self._queue.invalid_watermark, invalid_version)
            rows = drop_recorded_invalid_rows(self._queue, self._ports.record_store, self._sync.id, invalid_rows)
            attempt = PushAttempt(run_id=run_id, started_at=now, ended_at=now, max_attempts=0)
            stored_count = store_invalid_rows(
                self._queue, self._counters.sample_invalid_rows(rows), attempt, upto=invalid_version
            )
            self._counters.grid.add_counts(GridRow.INVALID, {UnitOperation.INSERT: stored_count})

    def _check_removals(self) -> None:
        self._removals = check_removals(
            self._queue,
            self._sync,
            self._source,
            self._ports.feed,
            # not while nothing may be sent: removals that are enqueued until then would be allowed too
            is_allowed=self._context.options.allows_deletes and self._ports.may_send(),
        )

    def _describe_hold(self) -> str:
        """Return the reason why nothing may be sent, and what is pending; "" if units may be sent."""
        hold_reason = self._ports.find_hold_reason()
        planned_text = describe_counts(count_units(self._queue)) if hold_reason else ""
        return f"{hold_reason}: {planned_text} pending" if planned_text else hold_reason or ""

    def _build_summary(self, run_id: str | None, *, is_outage: bool = False, message: str) -> RunSummary:
        return RunSummary(
            sync_id=self._sync.id,
            run_id=run_id,
            cause=RunCause(self._context.options.trigger, *choose_mode(self._context)),
            started_at=self._context.started_at,
            ended_at=self._ports.now(),
            version_from=self._context.version_from,
            version_to=version_of_watermark(self._queue.watermark),
            grid=self._counters.grid,
            queue=read_status(self._queue.store, now=self._ports.clock()),
            invalid_count=self._source.invalid_count,
            removals=self._removals,
            pending_samples=tuple(read_oldest_pending(self._queue.store, limit=MAX_SAMPLES)),
            unit_noun=unit_noun(self._sync),
            reject_reasons=self._counters.reject_messages.most_common(),
            warned_units=self._counters.warned_units,
            warning_reasons=self._counters.warning_messages.most_common(),
            invalid_samples=self._counters.collect_invalid_samples(self._context),
            failure_reasons=self._counters.failure_messages.most_common(),
            first_errors=self._counters.first_errors,
            dead_units=self._counters.dead_units,
            is_outage=is_outage,
            message=message,
        )


def dry_run_sync(sync: Sync, ports: Ports, options: RunOptions) -> DryRunResult:
    """Execute a run on a copy of the queue, up to its first send; return what a run would send.

    The sync's queue must be a copy, and the tracking store must discard writes. If a run would be refused,
    the result has the reason. The dry run leaves only its row in the history.
    """
    at = ports.now()
    source = ports.read_source()
    if source is None:
        return DryRunResult(summary=summarize_missing_table(sync, at))
    with sync.open_queue() as queue:
        context = RunContext.create(sync, ports, options, queue, source)
        run_id = create_run_id(context.started_at, after=find_newest_known_run(context), random=ports.random)
        try:
            recorded_outcomes = recover_queue(queue, sync, ports, source, is_new_state=options.allows_new_state)
            correct_times(queue, ports.clock())
            mark_due_pending(queue, ports.clock())
            context = context.with_current_watermarks()  # only now does a lost queue have its snapshot's watermarks
            summary = SyncRun(context).execute_dry(recorded_outcomes, run_id)
        except OndatraError as error:
            summary_without_run = RunSummary.without_run(sync.id, "", end_time=context.started_at)
            empty_summary = dataclasses.replace(summary_without_run, run_id=run_id, ended_at=ports.now())
            forecast = DryRunResult.from_refusal(empty_summary, str(error))
        else:
            size = count_table_units(queue, sync, source, ports.feed)
            expected_changes = read_expected_changes(queue, since=context.watermark, size=size, samples=MAX_SAMPLES)
            forecast = DryRunResult(summary=summary, expected_changes=expected_changes, source_rows=source.row_count)
        past_run = dataclasses.replace(
            build_past_run(context, run_id),
            ended_at=forecast.summary.ended_at,
            counts=forecast.to_json(),
            result=RunResult.DRY,
            first_errors=(forecast.refusal,) if forecast.refusal else (),
        )
        ports.history.finish_run(past_run)
    return forecast
