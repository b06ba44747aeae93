"""The jobs that an asynchronous API works on, as one run sees them: which to ask about, and for how long."""

from collections.abc import Callable, Iterable, Sequence

from ondatra_dagster.clock_jumps import time_that_counts
from ondatra_dagster.delivery.outcome import Outcome
from ondatra_dagster.delivery.push.push_port import Pushed
from ondatra_dagster.delivery.queue.claim import Batch, Job

PATIENCE_SECONDS = 120.0  # a run doesn't wait longer for its next piece of news
LONGEST_WAIT_SECONDS = 900.0  # nor in all, however often there is some: others want its place


class OpenJobs:
    """Batches that are jobs, between two polls."""

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
        self.note_news()

    def __len__(self) -> int:
        return len(self._batches)

    def note_news(self) -> None:
        """A job was submitted, or has ended: waiting is worth its time again."""
        self._patient_until = self._clock() + PATIENCE_SECONDS

    def add(self, batch: Batch) -> None:
        self._batches[batch.id] = batch

    def begun(self, reference: str, *, submitted_at: float) -> Job:
        return Job(reference, submitted_at, self._next_poll_at(submitted_at, submitted_at))

    def next_poll_at(self, job: Job, now: float) -> float:
        """When to ask again about a job that is still open now."""
        return self._next_poll_at(_submitted_at(job, now), now)

    def _next_poll_at(self, submitted_at: float, now: float) -> float:
        return min(now + self._interval_seconds, max(submitted_at + self._timeout_seconds, now))

    def is_over(self, job: Job) -> bool:
        """Whether a job that is still open now has had its time."""
        now = self._clock()
        return now >= _submitted_at(job, now) + self._timeout_seconds

    def take_due(self) -> Sequence[Batch]:
        """Those to be asked about now, which the caller has from here on."""
        now = self._clock()
        due = [batch for batch in self._batches.values() if batch.job and batch.job.next_poll_by(now) <= now]
        for batch in due:
            del self._batches[batch.id]
        return due

    def seconds_to_next(self) -> float | None:
        """Until one is to be asked about; None when there is none."""
        now = self._clock()
        times = [batch.job.next_poll_by(now) for batch in self._batches.values() if batch.job]
        return max(min(times) - now, 0.0) if times else None

    def wait(self) -> bool:
        """Until one is to be asked about; False when this run doesn't wait that long."""
        seconds = self.seconds_to_next()
        if seconds is None or self._clock() + seconds > self._patient_until:
            return False
        self._waited_seconds += seconds
        if self._waited_seconds > LONGEST_WAIT_SECONDS:
            return False
        self._sleep(seconds)
        return True


def _submitted_at(job: Job, now: float) -> float:
    return time_that_counts(job.submitted_at, set_at=job.submitted_at, now=now)


def timed_out(batch: Batch) -> Pushed:
    """The end of a job that took too long: its rows are handed over anew when they are due."""
    return _ended(batch, "job timed out")


def unasked(batch: Batch) -> Pushed:
    """The end of a job that nobody can be asked about: its rows are handed over anew when they are due."""
    return _ended(
        batch, "the push function has no poll() any more to ask about their job: the rows are sent anew"
    )


def _ended(batch: Batch, why: str) -> Pushed:
    # it may be done all the same, some time
    return Pushed(dict.fromkeys(batch.result_keys, Outcome.unstated(why)), calls=1, unanswered=1)
