"""Whose turn it is: batches of a dead owner first, then new ones, as many at once as there is room for.

What is done with a batch whose turn has come is in deliver.
"""

import collections
import contextlib
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from ondatra_dagster.delivery.gate import Gate
from ondatra_dagster.delivery.journal import Journal
from ondatra_dagster.delivery.open_jobs import OpenJobs
from ondatra_dagster.delivery.queue.claim import Batch, claim
from ondatra_dagster.delivery.queue.tables import Queue


class Flight(NamedTuple):
    """A batch on its way, or about to be."""

    batch: Batch
    journal: Journal | None  # None: it is a job, which is asked about


class Runway:
    """The batches that are on their way in one run, and those that are next."""

    def __init__(
        self,
        queue: Queue,
        gate: Gate,
        jobs: OpenJobs,
        revived: Sequence[Batch],
        *,
        places: int,
        batch_size: int,
    ) -> None:
        self.gate = gate
        self.jobs = jobs
        self.in_flight: dict[int, Flight] = {}  # by the batch's id
        self._queue = queue
        self._places = places
        self._batch_size = batch_size
        self._revived = collections.deque(revived)
        self._last_frozen = max((batch.number for batch in revived), default=0)
        self._number = self._last_frozen

    def next_batches(self) -> list[Batch]:
        """Those whose turn has come; the caller may have a transaction."""
        batches: list[Batch] = []
        while self.gate.pass_through() and (batch := self._next_batch(batches)):
            batches.append(batch)
        return batches

    def _next_batch(self, beside: list[Batch]) -> Batch | None:
        away = [*(flight.batch for flight in self.in_flight.values()), *beside]
        if len(away) + len(self.jobs) >= self._places or any(batch.goes_alone for batch in away):
            return None
        if self._revived:
            return None if away and self._revived[0].goes_alone else self._revived.popleft()
        batch = claim(self._queue, size=self._batch_size, number=self._number + 1)
        if batch:
            self._number = batch.number
        return batch

    @contextlib.contextmanager
    def landing(self, flights: Sequence[Flight]) -> Iterator[None]:
        """They are on their way no more, unless what is done with them fails: then nothing of it happened."""
        for flight in flights:
            del self.in_flight[flight.batch.id]
        try:
            yield
        except BaseException:
            self.in_flight |= {flight.batch.id: flight for flight in flights}
            raise

    def next_polls(self) -> Sequence[Batch]:
        """The jobs to be asked about now."""
        return self.jobs.take_due() if self._may_poll() else ()

    def seconds_to_poll(self) -> float | None:
        """Until a job is to be asked about while others are on their way; None: not before one has landed."""
        return self.jobs.seconds_to_next() if self._may_poll() else None

    def _may_poll(self) -> bool:
        is_one_alone = any(flight.batch.goes_alone for flight in self.in_flight.values())
        return not is_one_alone and self.gate.pass_through()

    def wait_for_jobs(self) -> bool:
        """Whether there is more to do after a while in which nothing is on its way."""
        return self.gate.pass_through() and self.jobs.wait()

    def is_new(self, batch: Batch) -> bool:
        """Whether it was claimed in this run."""
        return batch.number > self._last_frozen

    def has_part_of(self, seed: str) -> bool:
        """Whether another part of the batch with this seed waits for its turn."""
        return any(batch.seed == seed for batch in self._revived)
