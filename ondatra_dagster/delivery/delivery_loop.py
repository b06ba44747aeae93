"""The delivery of one sync's batches, from claim to settlement, until no batch is left to send.

Threads push the batches, at most `max_concurrent` at once. Only the calling thread uses the queue. In one
transaction it settles all returned batches and claims as many new ones, while other batches are in flight. Some
batches are claimed ahead, so that no thread waits for the disk. Batches that a crashed run left frozen are sent
first.

If push makes jobs of batches, a batch counts as in flight while its job is open. The job is polled until it has
ended, or until this run has waited long enough.
"""

import dataclasses
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from pathlib import Path
from typing import Self

from ondatra_dagster import interruption
from ondatra_dagster.delivery.batch_scheduler import (
    BatchScheduler,
    CircuitBreaker,
    InFlightBatch,
    WorkerThreads,
    has_crashed_too_often,
    reject_crashing_rows,
    restore_crashed_batches,
)
from ondatra_dagster.delivery.finalize_call import schedule_finalize
from ondatra_dagster.delivery.gc_tuning import raise_gc_threshold
from ondatra_dagster.delivery.job_poll_schedule import OpenJobs, unanswered_job_result
from ondatra_dagster.delivery.push.push_config import WHOLE_TABLE_SIZE, PushConfig, PushSettings
from ondatra_dagster.delivery.push.push_interface import BatchSink, PushBatch, PushResult
from ondatra_dagster.delivery.queue.async_jobs import postpone_poll, store_job
from ondatra_dagster.delivery.queue.change_and_outcome_counts import UnitCounter
from ondatra_dagster.delivery.queue.claimed_batches import Batch, load_batches, release_batch, reset_push_starts
from ondatra_dagster.delivery.queue.queue_database import Queue
from ondatra_dagster.delivery.queue.settle_batch import SettledBatch, settle_batch
from ondatra_dagster.delivery.queue.unpublished_records import PushAttempt
from ondatra_dagster.delivery.response_journal import JournalPool
from ondatra_dagster.delivery.row_retry_delays import row_retry_seconds

MAX_IDLE_SECONDS = 10.0  # the longest wait for a returned batch before on_idle() is called
# The most batches that are claimed before a thread is free for them, or that wait for their commit. Half of them
# share one commit. Fewer large batches are claimed ahead: their rows are in memory, and after a crash they are sent
# without newer values.
MAX_BATCHES_AHEAD = 7
MAX_ROWS_AHEAD = 2_000
MISSING_POLL = "the push function no longer has a poll() for their job: the rows are sent again"
INTERRUPT_GRACE_SECONDS = 3.0  # for batches in flight to return after Ctrl-C


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class DeliverySettings:
    """The settings of a delivery: how batches are made and how often their rows are sent."""

    run_id: str
    journal_path: Path
    push: PushSettings
    functions: Collection[str] = ("push",)  # those of push, poll and finalize that the file has

    @classmethod
    def from_config(cls, config: PushConfig, *, run_id: str, journal: Path) -> Self:
        """Return the settings for a run with the config of a push function's file."""
        return cls(run_id=run_id, journal_path=journal, push=config.push, functions=config.functions)

    @property
    def max_claimed(self) -> int:
        """Return how many batches may be claimed at once. Jobs and whole tables or partitions aren't claimed ahead."""
        push = self.push
        if push.batch_mode == "async" or push.batch_size == WHOLE_TABLE_SIZE:
            return push.max_concurrent
        return push.max_concurrent + min(max(MAX_ROWS_AHEAD // push.batch_size, 1), MAX_BATCHES_AHEAD)


@dataclasses.dataclass(slots=True)
class DeliveryResult:
    """The result of one call of deliver()."""

    batch_count: int = 0
    is_outage: bool = False  # the run gave up on the API


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class DeliveryHooks:
    """The functions that a delivery calls: its clock, and the tasks that the run does during the delivery."""

    clock: Callable[[], float]
    on_settled: Callable[[Batch, SettledBatch], None]
    may_continue: Callable[[], bool] = lambda: True
    row_retry_seconds: Callable[[int], float] = row_retry_seconds
    sleep: Callable[[float], None] = interruption.sleep
    on_idle: Callable[[], None] = lambda: None  # called after `idle_seconds()` without a returned batch
    idle_seconds: Callable[[], float] = lambda: MAX_IDLE_SECONDS  # called before each wait


@raise_gc_threshold()
def deliver(
    queue: Queue,
    push: BatchSink,
    settings: DeliverySettings,
    hooks: DeliveryHooks,
    *,
    only_polls: bool = False,
    counter: UnitCounter | None = None,
) -> DeliveryResult:
    """Send all pending units. With `only_polls` send no units, but poll the open jobs.

    `counter` counts the run's units. Without it, a new counter counts the units from now on.
    """
    stored_batches = load_batches(queue)
    jobs = OpenJobs(
        (batch for batch in stored_batches if batch.job),
        interval_seconds=settings.push.poll_interval_seconds,
        timeout_seconds=settings.push.poll_timeout_seconds,
        clock=hooks.clock,
        sleep=hooks.sleep,
    )
    journals = JournalPool(settings.journal_path, {batch.batch_key for batch in stored_batches})
    scheduler = BatchScheduler(
        queue,
        CircuitBreaker(hooks.may_continue),
        jobs,
        restore_crashed_batches(queue, [batch for batch in stored_batches if not batch.job], journals),
        max_claimed=0 if only_polls else settings.max_claimed,
        batch_size=settings.push.batch_size,
    )
    counter = counter or UnitCounter(queue)
    return _DeliveryLoop(queue, push, settings, hooks, scheduler, journals, counter).run()


@dataclasses.dataclass(slots=True)
class _DeliveryLoop:
    """The state of one call of deliver()."""

    queue: Queue
    push: BatchSink
    settings: DeliverySettings
    hooks: DeliveryHooks
    scheduler: BatchScheduler
    journals: JournalPool
    counter: UnitCounter
    workers: WorkerThreads = dataclasses.field(init=False)
    result: DeliveryResult = dataclasses.field(default_factory=DeliveryResult)
    has_delivered: bool = False

    def run(self) -> DeliveryResult:
        self.workers = WorkerThreads(self._push_or_poll, self.settings.push.max_concurrent)
        with interruption.on_interruption(self.workers.wake_waiter):
            return self._run_loop()

    def _run_loop(self) -> DeliveryResult:
        scheduler = self.scheduler
        try:
            self._start_batches(scheduler.next_batches())
            self._start_batches(scheduler.next_polls())
            while scheduler.in_flight_batches or scheduler.wait_for_next_job():
                returned_batches = (
                    self.workers.wait_for_results(self._seconds_to_wait()) if scheduler.in_flight_batches else []
                )
                if interruption.received_signal():
                    self._settle_after_interrupt(returned_batches)
                    interruption.raise_if_interrupted()
                if returned_batches:
                    self._settle_returned(returned_batches)
                else:
                    self.hooks.on_idle()
                self._start_batches(scheduler.next_polls())
        except Exception as error:
            # the batches in flight stay frozen; wait until their threads have ended
            scheduler.circuit_breaker.stop()
            self.workers.shut_down()
            self.journals.close()
            try:  # only a batch whose push raised counts as crashed: a full disk isn't the fault of the rows
                self._reset_push_starts(
                    in_flight_batch
                    for in_flight_batch in scheduler.in_flight_batches.values()
                    if not in_flight_batch.is_in_push
                )
            finally:
                raise error
        except BaseException:
            # after a user's interrupt, don't wait for the API; the journals have the responses so far
            scheduler.circuit_breaker.stop()
            self._reset_push_starts(scheduler.in_flight_batches.values())
            raise
        self.workers.shut_down()
        self.journals.close()
        interruption.raise_if_interrupted()  # after a signal no batch was started, so some weren't sent
        # a single outage among many batches doesn't mean that the API is down
        breaker = scheduler.circuit_breaker
        self.result.is_outage = breaker.is_api_down or (breaker.consecutive_outages > 0 and not self.has_delivered)
        return self.result

    def _settle_after_interrupt(self, returned_batches: Sequence[InFlightBatch]) -> None:
        """Settle these batches, and those that return in the next seconds.

        The circuit breaker lets no new batch start.
        """
        in_flight = self.scheduler.in_flight_batches
        stopped_count = 0  # batches whose push stopped before another call
        give_up_at = time.monotonic() + INTERRUPT_GRACE_SECONDS
        while True:
            stopped_count += sum(in_flight_batch.error is not None for in_flight_batch in returned_batches)
            self._settle_returned(
                [in_flight_batch for in_flight_batch in returned_batches if not in_flight_batch.error]
            )
            seconds = give_up_at - time.monotonic()
            if len(in_flight) == stopped_count or seconds <= 0:
                return
            returned_batches = self.workers.wait_for_results(seconds)

    def _seconds_to_wait(self) -> float:
        """Return how long to wait for a batch before the run does other tasks."""
        poll_seconds = self.scheduler.seconds_to_poll()
        idle_seconds = min(self.hooks.idle_seconds(), MAX_IDLE_SECONDS)
        return idle_seconds if poll_seconds is None else min(poll_seconds, idle_seconds)

    def _start_batches(self, batches: Sequence[Batch]) -> None:
        """Hand the batches to the threads. Their frozen rows must be committed before that."""
        for batch in batches:
            journal = None if batch.job else self.journals.journal_for(batch.batch_key)
            in_flight_batch = InFlightBatch(batch, journal)
            self.scheduler.in_flight_batches[batch.id] = in_flight_batch
            self.workers.submit(in_flight_batch)

    def _push_or_poll(self, flight: InFlightBatch) -> None:
        """Push the batch or poll its job, in a thread, and set its result.

        The result stays None if the circuit breaker stopped the batch.
        """
        batch, journal, breaker = flight.batch, flight.journal, self.scheduler.circuit_breaker
        flight.started_at = flight.ended_at = batch.job.submitted_at if batch.job else self.hooks.clock()
        if has_crashed_too_often(batch):
            flight.result = reject_crashing_rows(batch)
            return
        if batch.job and "poll" not in self.settings.functions:
            flight.ended_at = self.hooks.clock()
            flight.result = unanswered_job_result(batch, MISSING_POLL)
            return
        try:
            push_batch = PushBatch.from_batch(batch, self.queue.layouts)
            if batch.job:
                result = self.push.poll(push_batch, batch.job.reference) if breaker.try_enter() else None
            elif journal and breaker.try_enter(lambda: journal.begin_batch(batch.batch_key, batch.id)):
                flight.is_in_push = True
                result = self.push(push_batch, journal)
                flight.is_in_push = False
                if batch.is_split:
                    # before the settlement: after a crash in between, the next part must not get this part's
                    # responses
                    journal.record_settled()
            else:
                result = None
        except BaseException:
            breaker.stop()  # batches that were claimed ahead aren't sent
            raise
        if result:
            breaker.record_result(result, is_poll=batch.job is not None)
            flight.ended_at = self.hooks.clock()
            flight.result = result

    def _settle_returned(self, returned_batches: Sequence[InFlightBatch]) -> None:
        """Settle the returned batches, and start as many others.

        All settlements and claims share one commit, because on a slow disk a commit takes longer than everything
        else here.
        """
        finished_batches = [in_flight_batch for in_flight_batch in returned_batches if not in_flight_batch.error]
        settled_batches: list[tuple[Batch, SettledBatch]] = []
        with self.scheduler.remove_returned(finished_batches), self.queue.store.write_transaction():
            for in_flight_batch in finished_batches:
                if settled_batch := self._settle_or_requeue(in_flight_batch):
                    settled_batches.append((in_flight_batch.batch, settled_batch))
            batches = self.scheduler.next_batches()
        for in_flight_batch in finished_batches:
            if (
                in_flight_batch.journal
                and in_flight_batch.result
                and not self.scheduler.has_other_split(in_flight_batch.batch.batch_key)
            ):
                self.journals.release_journal(in_flight_batch.batch.batch_key)
        self._start_batches(batches)
        for batch, settled_batch in settled_batches:
            self.result.batch_count += 1
            self.has_delivered = self.has_delivered or settled_batch.has_delivered_rows
            self.scheduler.open_jobs.extend_wait()
            self.hooks.on_settled(batch, settled_batch)
        for in_flight_batch in returned_batches:
            if in_flight_batch.error:  # only now: the other returned batches are settled
                raise in_flight_batch.error

    def _settle_or_requeue(self, flight: InFlightBatch) -> SettledBatch | None:
        """Settle the batch and return its outcomes.

        Return None if the batch wasn't sent, or if its job is still open: its rows stay in the queue.
        """
        if flight.result is None:
            self._release_unsent(flight.batch)
            return None
        if not flight.result.is_open:
            return self._settle(flight, flight.result)
        open_job = self._requeue_open_job(flight, flight.result)
        if open_job is None:
            return self._settle(flight, unanswered_job_result(flight.batch, "job timed out"))
        self.scheduler.open_jobs.add_job(open_job)
        return None

    def _requeue_open_job(self, flight: InFlightBatch, result: PushResult) -> Batch | None:
        """Store the batch as an open job and return it; return None when the job has timed out."""
        jobs, batch = self.scheduler.open_jobs, flight.batch
        if batch.job is None:
            jobs.extend_wait()
            job = jobs.new_job(result.job_reference or "{}", submitted_at=flight.ended_at)
            return store_job(self.queue, batch, job._replace(masked_reference=result.masked_job_reference))
        if jobs.is_timed_out(batch.job):
            return None
        now = self.hooks.clock()
        return postpone_poll(self.queue, batch, next_poll_at=jobs.next_poll_at(batch.job, now), set_at=now)

    def _settle(self, flight: InFlightBatch, result: PushResult) -> SettledBatch:
        attempt = PushAttempt(
            run_id=self.settings.run_id,
            started_at=flight.started_at,
            ended_at=flight.ended_at,
            max_attempts=self.settings.push.max_attempts,
        )
        wait = self.hooks.row_retry_seconds
        settled_batch = settle_batch(self.queue, flight.batch, result, attempt, wait_seconds=wait, counter=self.counter)
        if "finalize" in self.settings.functions:
            schedule_finalize(self.queue, settled_batch)
        return settled_batch

    def _release_unsent(self, batch: Batch) -> None:
        """Release a batch that isn't sent in this run, so that its units are pending again.

        Batches with a job and batches of an earlier run stay frozen.
        """
        if batch.job:
            self.scheduler.open_jobs.add_job(batch)
        elif self.scheduler.is_claimed_in_run(batch):
            release_batch(self.queue, batch)

    def _reset_push_starts(self, flights: Iterable[InFlightBatch]) -> None:
        """Store the push starts of these batches, so that this shutdown doesn't count as a crash of them."""
        with self.queue.store.write_transaction():
            for in_flight_batch in flights:
                if in_flight_batch.journal:
                    push_starts = in_flight_batch.journal.push_starts[in_flight_batch.batch.id]
                    reset_push_starts(self.queue, in_flight_batch.batch, push_starts=push_starts)
