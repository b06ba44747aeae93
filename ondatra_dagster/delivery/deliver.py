"""One sync's batches, from claim to settle, until nothing is left that may go.

Threads hand the batches to push, at most `max_concurrent` at once. The queue belongs to the thread that
called: it settles one batch and claims the next in one transaction while others are on their way. One is
claimed ahead, so that no thread waits for the disk. Those that a dead owner left frozen go first.
"""

import collections
import dataclasses
import threading
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from ondatra_dagster.delivery.backoff import wait_seconds
from ondatra_dagster.delivery.journal import Journal
from ondatra_dagster.delivery.journals import Journals
from ondatra_dagster.delivery.push_port import Parcel, Push, Pushed
from ondatra_dagster.delivery.queue.claim import Batch, claim, forgive, frozen_batches, make_due, release
from ondatra_dagster.delivery.queue.settle import Settled, settle
from ondatra_dagster.delivery.queue.settled import Attempt
from ondatra_dagster.delivery.queue.tables import Queue
from ondatra_dagster.delivery.revival import give_up, is_given_up, revive
from ondatra_dagster.delivery.workers import Done, Workers

OUTAGES_BEFORE_STOP = 3
AHEAD = 1  # batches that are claimed before a thread is free for them


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Course:
    """How batches are made and how often their rows are tried."""

    run_id: str
    batch_size: int
    max_attempts: int
    journal: Path
    max_concurrent: int = 1


@dataclasses.dataclass(slots=True)
class Delivery:
    """How far it went."""

    batches: int = 0
    is_outage: bool = False  # the API was given up on for this run


class Flight(NamedTuple):
    """A batch on its way, or about to be."""

    batch: Batch
    parcel: Parcel
    journal: Journal


class Landed(NamedTuple):
    """What push made of a batch, and when."""

    pushed: Pushed
    started_at: float
    ended_at: float


class Gate:
    """Lets batches through to push, until the API is down or somebody says stop. Threads share it."""

    def __init__(self, may_go_on: Callable[[], bool]) -> None:
        self._lock = threading.Lock()
        self._may_go_on = may_go_on
        self._is_open = True
        self.outages = 0  # in a row, in the order in which batches end

    @property
    def is_open(self) -> bool:
        with self._lock:
            self._is_open = self._is_open and self._may_go_on()
            return self._is_open

    def pass_through(self, flight: Flight) -> bool:
        """Whether the batch may go; from then on it counts as seen by push."""
        with self._lock:
            self._is_open = self._is_open and self._may_go_on()
            if self._is_open:
                flight.journal.begin_batch(flight.batch.seed, flight.batch.id)
            return self._is_open

    def close(self) -> None:
        with self._lock:
            self._is_open = False

    def note(self, pushed: Pushed) -> None:
        """A batch has ended."""
        with self._lock:
            self.outages = self.outages + 1 if pushed.is_outage else 0
            self._is_open = self._is_open and self.outages < OUTAGES_BEFORE_STOP


def deliver(
    queue: Queue,
    push: Push,
    course: Course,
    *,
    clock: Callable[[], float],
    on_settled: Callable[[Batch, Settled], None],
    may_go_on: Callable[[], bool] = lambda: True,
    wait: Callable[[int], float] = wait_seconds,
) -> Delivery:
    """Send all that may go now."""
    make_due(queue, clock())
    return _Delivering(queue, push, course, clock, on_settled, Gate(may_go_on), wait).go()


class _Delivering:
    """One run of deliver()."""

    def __init__(
        self,
        queue: Queue,
        push: Push,
        course: Course,
        clock: Callable[[], float],
        on_settled: Callable[[Batch, Settled], None],
        gate: Gate,
        wait: Callable[[int], float],
    ) -> None:
        self._queue = queue
        self._push = push
        self._course = course
        self._clock = clock
        self._on_settled = on_settled
        self._gate = gate
        self._wait = wait
        self._workers = Workers(self._fly, course.max_concurrent)
        frozen = frozen_batches(queue)
        self._journals = Journals(course.journal, {batch.seed for batch in frozen})
        self._revived = collections.deque(revive(queue, frozen, self._journals))
        self._last_frozen = max((batch.number for batch in frozen), default=0)
        self._number = self._last_frozen
        self._in_flight: dict[int, Flight] = {}  # by the batch's id
        self._delivery = Delivery()

    def go(self) -> Delivery:
        try:
            self._send_off(self._next_batches())
            while self._in_flight:
                self._land(self._workers.next_done())
        except Exception:
            # what is on its way comes to its end, and stays frozen
            self._gate.close()
            self._workers.end()
            self._journals.close()
            raise
        except BaseException:
            # nobody waits for an API when a person wants the process to end; the journals know what came back
            self._forgive_all()
            raise
        self._workers.end()
        self._journals.close()
        self._delivery.is_outage = self._gate.outages > 0
        return self._delivery

    def _next_batches(self) -> list[Batch]:
        """Those whose turn has come; the caller may have a transaction."""
        batches: list[Batch] = []
        while self._gate.is_open and (batch := self._next_batch(batches)):
            batches.append(batch)
        return batches

    def _next_batch(self, beside: list[Batch]) -> Batch | None:
        away = [*(flight.batch for flight in self._in_flight.values()), *beside]
        if len(away) >= self._course.max_concurrent + AHEAD or any(batch.goes_alone for batch in away):
            return None
        if self._revived:
            return None if away and self._revived[0].goes_alone else self._revived.popleft()
        batch = claim(self._queue, size=self._course.batch_size, number=self._number + 1)
        if batch:
            self._number = batch.number
        return batch

    def _send_off(self, batches: list[Batch]) -> None:
        """Let threads take them; by now they are frozen for good."""
        for batch in batches:
            parcel = Parcel.of(batch, self._queue.layouts)
            flight = Flight(batch, parcel, self._journals.of(batch.seed))
            self._in_flight[batch.id] = flight
            self._workers.give(flight)

    def _fly(self, flight: Flight) -> Landed | None:
        """In a thread: what push makes of the batch; None when it wasn't given it."""
        batch, parcel, journal = flight
        started_at = self._clock()
        if is_given_up(batch):
            return Landed(give_up(batch, parcel), started_at, started_at)
        if not self._gate.pass_through(flight):
            return None
        pushed = self._push(parcel, journal)
        self._gate.note(pushed)
        if batch.is_part:
            # before it is settled: after a crash in between, the next part must not take its answers
            journal.note_settled()
        return Landed(pushed, started_at, self._clock())

    def _land(self, done: Done[Flight, Landed | None]) -> None:
        if done.error:
            raise done.error
        flight = done.task
        del self._in_flight[flight.batch.id]
        if done.result is None:
            self._let_go(flight)
            return
        self._delivery.batches += 1
        # one commit for both: on a slow disk it costs more than all else that is done here
        with self._queue.store.immediate():
            settled = self._settle(flight.batch, done.result)
            batches = self._next_batches()
        self._free_journal(flight.batch)
        self._send_off(batches)
        self._on_settled(flight.batch, settled)

    def _settle(self, batch: Batch, landed: Landed) -> Settled:
        pushed = landed.pushed
        attempt = Attempt(
            run_id=self._course.run_id,
            started_at=landed.started_at,
            ended_at=landed.ended_at,
            max_attempts=self._course.max_attempts,
            calls=pushed.calls,
            unanswered=pushed.unanswered,
            is_outage=pushed.is_outage,
        )
        return settle(self._queue, batch, pushed.outcomes, attempt, wait=self._wait)

    def _let_go(self, flight: Flight) -> None:
        """A batch that isn't sent in this run; what was frozen before it stays so."""
        if flight.batch.number > self._last_frozen:
            with self._queue.store.immediate():
                release(self._queue, flight.batch)

    def _free_journal(self, batch: Batch) -> None:
        if all(other.seed != batch.seed for other in self._revived):  # parts of one batch share theirs
            self._journals.free(batch.seed)

    def _forgive_all(self) -> None:
        self._gate.close()
        with self._queue.store.immediate():
            for batch, _, journal in self._in_flight.values():
                forgive(self._queue, batch, begun=journal.begun[batch.id])
