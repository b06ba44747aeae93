"""The polling of an asynchronous API's jobs: which job to poll next, and how long one run waits for jobs."""

from collections.abc import Callable, Iterable, Sequence

from ondatra_dagster.delivery.push.push_interface import PushResult
from ondatra_dagster.delivery.queue.claimed_batches import Batch, Job
from ondatra_dagster.delivery.row_outcome import RowOutcome
from ondatra_dagster.future_time_correction import corrected_time

MAX_WAIT_FOR_NEWS_SECONDS = 120.0  # the longest wait of a run until another job is submitted or ends
MAX_TOTAL_WAIT_SECONDS = 900.0  # the longest wait of a run in total: other runs need its place


class OpenJobs:
    """The batches with open jobs that aren't being polled at the moment."""

    def __init__(
        self,
        batches: Iterable[Batch],
        *,
        interval_seconds: float,
        timeout_seconds: float,
        clock: Callable[[], float],
        sleep: Callable[[float], None],
    ) -> None:
        self._batches = {batch.id: batch for batch in batches}
        self._interval_seconds = interval_seconds
        self._timeout_seconds = timeout_seconds
        self._clock = clock
        self._sleep = sleep
        self._waited_seconds = 0.0
        self.extend_wait()

    def __len__(self) -> int:
        return len(self._batches)

    def extend_wait(self) -> None:
        """Start the run's wait for jobs again, because a job was submitted or has ended."""
        self._wait_until = self._clock() + MAX_WAIT_FOR_NEWS_SECONDS

    def add_job(self, batch: Batch) -> None:
        self._batches[batch.id] = batch

    def new_job(self, reference: str, *, submitted_at: float) -> Job:
        return Job(reference, submitted_at, self._next_poll_at(submitted_at, submitted_at))

    def next_poll_at(self, job: Job, now: float) -> float:
        """Return when to poll a job again that a poll at the time `now` found open."""
        return self._next_poll_at(_submitted_at(job, now), now)

    def _next_poll_at(self, submitted_at: float, now: float) -> float:
        return min(now + self._interval_seconds, max(submitted_at + self._timeout_seconds, now))

    def is_timed_out(self, job: Job) -> bool:
        """Return whether a job that is still open has timed out by now."""
        now = self._clock()
        return now >= _submitted_at(job, now) + self._timeout_seconds

    def pop_due_jobs(self) -> Sequence[Batch]:
        """Return the batches whose jobs must be polled now, and remove them from the open jobs."""
        now = self._clock()
        due_batches = [batch for batch in self._batches.values() if batch.job and batch.job.next_poll_time(now) <= now]
        for batch in due_batches:
            del self._batches[batch.id]
        return due_batches

    def seconds_to_next(self) -> float | None:
        """Return the seconds until the next poll; None if there is no job."""
        now = self._clock()
        times = [batch.job.next_poll_time(now) for batch in self._batches.values() if batch.job]
        return max(min(times) - now, 0.0) if times else None

    def wait_for_next(self) -> bool:
        """Wait until a job must be polled. Return False if there is none, or if this run doesn't wait that long."""
        seconds = self.seconds_to_next()
        if seconds is None or self._clock() + seconds > self._wait_until:
            return False
        self._waited_seconds += seconds
        if self._waited_seconds > MAX_TOTAL_WAIT_SECONDS:
            return False
        self._sleep(seconds)
        return True


def _submitted_at(job: Job, now: float) -> float:
    return corrected_time(job.submitted_at, set_at=job.submitted_at, now=now)


def unanswered_job_result(batch: Batch, reason: str) -> PushResult:
    """Return the result for a batch whose job isn't polled any more. Its rows are sent again when they are due."""
    # the job may still succeed later
    return PushResult(dict.fromkeys(batch.result_keys, RowOutcome.implicit_error(reason)), calls=1, unanswered_calls=1)
