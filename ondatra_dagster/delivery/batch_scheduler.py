"""The scheduling of a run's batches: the next batches, the batches in flight, and the threads that push them.

The circuit breaker lets batches through until the API is down or the run must stop. Batches that a crashed process
left frozen are sent first. Rows that crash the process each time are rejected.
"""

import collections
import contextlib
import dataclasses
import logging
import queue
import threading
from collections.abc import Callable, Iterator, Sequence

from ondatra_dagster import interruption
from ondatra_dagster.delivery.job_poll_schedule import OpenJobs
from ondatra_dagster.delivery.push.push_interface import PushResult
from ondatra_dagster.delivery.queue.claimed_batches import Batch, claim_batch, group_by_key, record_crash, split_batch
from ondatra_dagster.delivery.queue.queue_database import Queue
from ondatra_dagster.delivery.response_journal import JournalPool, ResponseJournal
from ondatra_dagster.delivery.row_outcome import RowOutcome, Verdict

log = logging.getLogger(__name__)

OUTAGES_BEFORE_STOP = 3
CRASHES_BEFORE_SPLIT = 3


class CircuitBreaker:
    """A circuit breaker. It lets calls through until it trips, and isn't reset after that. Threads share it."""

    def __init__(self, may_continue: Callable[[], bool]) -> None:
        self._lock = threading.Lock()
        self._may_continue = may_continue
        self._allows_calls = True
        self._outages_by_poll = {False: 0, True: 0}  # consecutive outages: False of pushes, True of polls

    def try_enter(self, on_enter: Callable[[], None] = lambda: None) -> bool:
        """Return whether one more batch may start.

        If so, `on_enter` is called before another thread can trip the circuit breaker.
        """
        with self._lock:
            self._allows_calls = self._allows_calls and interruption.received_signal() is None and self._may_continue()
            if self._allows_calls:
                on_enter()
            return self._allows_calls

    def stop(self) -> None:
        with self._lock:
            self._allows_calls = False

    @property
    def is_api_down(self) -> bool:
        """Return whether the run treats the API as down."""
        return self.consecutive_outages >= OUTAGES_BEFORE_STOP

    @property
    def consecutive_outages(self) -> int:
        """Return how many pushes, or how many polls, were outages in a row: the higher of the two numbers."""
        return max(self._outages_by_poll.values())

    def record_result(self, push_result: PushResult, *, is_poll: bool = False) -> None:
        """Count the result of a batch or a poll; trip after too many outages in a row."""
        with self._lock:
            self._outages_by_poll[is_poll] = self._outages_by_poll[is_poll] + 1 if push_result.is_outage else 0
            self._allows_calls = self._allows_calls and not self.is_api_down


@dataclasses.dataclass(slots=True, eq=False)
class InFlightBatch:
    """A batch that is pushed or polled. A thread gets it with a journal, and returns it with a result or an error."""

    batch: Batch
    journal: ResponseJournal | None  # None for a job, which is polled
    started_at: float = 0.0
    ended_at: float = 0.0
    result: PushResult | None = None  # None if the batch wasn't sent
    error: BaseException | None = None  # raised instead of a result
    is_in_push: bool = False  # push() was called and hasn't returned: it still runs, or has raised an error


class WorkerThreads:
    """A pool of at most `count` threads. A thread is started only when there is a batch for it.

    The threads don't keep the process alive. The caller handles the batches that are left then.
    """

    def __init__(self, work: Callable[[InFlightBatch], None], count: int) -> None:
        self._work = work
        self._count = count
        self._threads: list[threading.Thread] = []
        self._tasks: queue.SimpleQueue[InFlightBatch | None] = queue.SimpleQueue()
        self._returned: queue.SimpleQueue[InFlightBatch | None] = queue.SimpleQueue()  # None wakes wait_for_results()

    def submit(self, task: InFlightBatch) -> None:
        """Submit a batch to the next free thread. Threads take the batches in the order of submission."""
        if len(self._threads) < self._count:
            thread = threading.Thread(target=self._run_tasks, name=f"push-{len(self._threads) + 1}", daemon=True)
            self._threads.append(thread)
            thread.start()
        self._tasks.put(task)

    def wait_for_results(self, timeout_seconds: float | None = None) -> list[InFlightBatch]:
        """Wait until a batch ends; return it with all others that have ended by then, in the order of their ends.

        The list is empty after the timeout. A call of wake_waiter() ends the wait early.
        """
        returned_batches = []
        with contextlib.suppress(queue.Empty):
            returned_batches.append(self._returned.get(timeout=timeout_seconds))
            while True:
                returned_batches.append(self._returned.get_nowait())
        return [in_flight_batch for in_flight_batch in returned_batches if in_flight_batch]

    def wake_waiter(self) -> None:
        """Make a waiting wait_for_results() return at once."""
        self._returned.put(None)

    def shut_down(self) -> None:
        """Wait until all submitted batches have ended, then until the threads have ended."""
        for _ in self._threads:
            self._tasks.put(None)
        for thread in self._threads:
            thread.join()

    def _run_tasks(self) -> None:
        while (task := self._tasks.get()) is not None:
            try:
                self._work(task)
            except BaseException as error:  # raised again by the delivery loop
                task.error = error
            self._returned.put(task)


class BatchScheduler:
    """A scheduler of one run's batches: it knows the batches in flight and chooses the next ones."""

    def __init__(
        self,
        queue: Queue,
        circuit_breaker: CircuitBreaker,
        open_jobs: OpenJobs,
        restored_batches: Sequence[Batch],
        *,
        max_claimed: int,
        batch_size: int,
    ) -> None:
        self.circuit_breaker = circuit_breaker
        self.open_jobs = open_jobs
        self.in_flight_batches: dict[int, InFlightBatch] = {}  # by the batch's id
        self._queue = queue
        self._max_claimed = max_claimed
        self._batch_size = batch_size
        self._restored_batches = collections.deque(restored_batches)
        self._last_restored_number = max((batch.number for batch in restored_batches), default=0)
        self._last_number = self._last_restored_number

    def next_batches(self) -> list[Batch]:
        """Return the batches to start now. A transaction of the caller may be open."""
        batches: list[Batch] = []
        while self.circuit_breaker.try_enter() and (batch := self._next_batch(batches)):
            batches.append(batch)
        return batches

    def _next_batch(self, new_batches: list[Batch]) -> Batch | None:
        other_batches = [*(in_flight_batch.batch for in_flight_batch in self.in_flight_batches.values()), *new_batches]
        if len(other_batches) + len(self.open_jobs) >= self._max_claimed or any(
            batch.must_run_alone for batch in other_batches
        ):
            return None
        if self._restored_batches:
            return (
                None if other_batches and self._restored_batches[0].must_run_alone else self._restored_batches.popleft()
            )
        batch = claim_batch(self._queue, size=self._batch_size, number=self._last_number + 1)
        if batch:
            self._last_number = batch.number
        return batch

    @contextlib.contextmanager
    def remove_returned(self, flights: Sequence[InFlightBatch]) -> Iterator[None]:
        """Remove these batches from those in flight during the `with` block.

        If the block fails, its transaction is rolled back. Then these batches are in flight again.
        """
        for in_flight_batch in flights:
            del self.in_flight_batches[in_flight_batch.batch.id]
        try:
            yield
        except BaseException:
            self.in_flight_batches |= {in_flight_batch.batch.id: in_flight_batch for in_flight_batch in flights}
            raise

    def next_polls(self) -> Sequence[Batch]:
        """Return the batches whose jobs must be polled now, and remove them from the open jobs."""
        return self.open_jobs.pop_due_jobs() if self._may_poll() else ()

    def seconds_to_poll(self) -> float | None:
        """Return the seconds until the next poll while batches are in flight.

        Return None if there is nothing to poll before one of these batches returns.
        """
        return self.open_jobs.seconds_to_next() if self._may_poll() else None

    def _may_poll(self) -> bool:
        is_one_alone = any(in_flight_batch.batch.must_run_alone for in_flight_batch in self.in_flight_batches.values())
        return not is_one_alone and self.circuit_breaker.try_enter()

    def wait_for_next_job(self) -> bool:
        """Wait until an open job must be polled, while no batch is in flight.

        Return False if there is no such job, or if this run doesn't wait that long.
        """
        return self.circuit_breaker.try_enter() and self.open_jobs.wait_for_next()

    def is_claimed_in_run(self, batch: Batch) -> bool:
        """Return whether the batch was claimed in this run."""
        return batch.number > self._last_restored_number

    def has_other_split(self, batch_key: str) -> bool:
        """Return whether another part of the split batch with this key waits to be sent."""
        return any(batch.batch_key == batch_key for batch in self._restored_batches)


def restore_crashed_batches(queue: Queue, frozen: Sequence[Batch], journals: JournalPool) -> list[Batch]:
    """Return the frozen batches, with their crashes counted.

    A batch is split after its third crash, so that the failing unit is alone.
    """
    restored_batches = []
    for batch in frozen:
        journal = journals.find_journal(batch.batch_key)
        # a batch is claimed before it is sent: only its journal shows whether push got it
        push_starts = journal.push_starts[batch.id] if journal else 0
        if not journal or push_starts <= batch.push_starts:
            restored_batches.append(batch)
            continue
        crashed_batch = record_crash(queue, batch, answered_calls=journal.response_count, push_starts=push_starts)
        if has_crashed_too_often(crashed_batch) and len(group_by_key(crashed_batch.units)) > 1:
            message = "batch=%d ended its process %d times; its keys go out one by one"
            log.warning(message, crashed_batch.number, crashed_batch.crash_count)
            restored_batches += split_batch(queue, crashed_batch)
        else:
            restored_batches.append(crashed_batch)
    return restored_batches


def has_crashed_too_often(batch: Batch) -> bool:
    return batch.crash_count >= CRASHES_BEFORE_SPLIT


def reject_crashing_rows(batch: Batch) -> PushResult:
    """Return a result that rejects the batch's unit, which alone crashed the process too often.

    Push doesn't get this unit again.
    """
    message = f"this row alone ended the process {batch.crash_count} times; correct the push function and replay it"
    # the API may have taken the row before the process ended
    return PushResult(dict.fromkeys(batch.result_keys, RowOutcome(Verdict.REJECT, message)), unanswered_calls=1)
