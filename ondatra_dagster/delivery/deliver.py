"""One sync's batches, from claim to settle, until nothing is left that may go.

Threads hand the batches to push, at most `max_concurrent` at once. The queue belongs to the thread that
called: it settles all that have come back and claims as many in one transaction while others are on their
way. Some are claimed ahead, so that no thread waits for the disk. Those that a dead owner left frozen go
first.

Where push makes jobs of batches, an open job is a batch on its way: it is asked about until it has ended, or
until this run has waited long enough.
"""

import dataclasses
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import NamedTuple, Self

from ondatra_dagster import interruption
from ondatra_dagster.delivery.backoff import wait_seconds
from ondatra_dagster.delivery.finalizing import owe
from ondatra_dagster.delivery.gate import Gate
from ondatra_dagster.delivery.journals import Journals
from ondatra_dagster.delivery.open_jobs import OpenJobs, timed_out, unasked
from ondatra_dagster.delivery.push.push_config import WHOLE, PushConfig
from ondatra_dagster.delivery.push.push_port import Parcel, Push, Pushed
from ondatra_dagster.delivery.queue.claim import Batch, forgive, frozen_batches, release
from ondatra_dagster.delivery.queue.jobs import keep_job, postpone
from ondatra_dagster.delivery.queue.settle import Settled, settle
from ondatra_dagster.delivery.queue.settled import Attempt
from ondatra_dagster.delivery.queue.tables import Queue
from ondatra_dagster.delivery.queue.unit_counts import UnitCounter
from ondatra_dagster.delivery.rare_collections import rare_collections
from ondatra_dagster.delivery.revival import give_up, is_given_up, revive
from ondatra_dagster.delivery.runway import Flight, Runway
from ondatra_dagster.delivery.workers import Done, Workers

QUIET_SECONDS = 10.0  # without anything that came back
# Batches that are claimed before a thread is free for them, or wait for their commit: half of them share one.
# Of large ones fewer, as their rows are held in memory, and a crash keeps them from newer values.
AHEAD = 7
AHEAD_ROWS = 2_000
LANDING_SECONDS = 3.0  # that a batch on its way has to come back after Ctrl-C


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Course:
    """How batches are made and how often their rows are tried."""

    run_id: str
    batch_size: int
    max_attempts: int
    journal: Path
    max_concurrent: int = 1
    makes_jobs: bool = False
    asks_about_jobs: bool = True  # the file has a poll()
    owes_finalize: bool = False  # the file has one
    poll_interval_seconds: float = 30.0
    poll_timeout_seconds: float = 3600.0

    @classmethod
    def of(cls, config: PushConfig, *, run_id: str, journal: Path) -> Self:
        """What a push function's file says."""
        push = config.push
        return cls(
            run_id=run_id,
            batch_size=push.batch_size,
            max_attempts=push.max_attempts,
            journal=journal,
            max_concurrent=push.max_concurrent,
            makes_jobs=push.batch_mode == "async",
            asks_about_jobs="poll" in config.functions,
            owes_finalize="finalize" in config.functions,
            poll_interval_seconds=push.poll_interval_seconds,
            poll_timeout_seconds=push.poll_timeout_seconds,
        )

    @property
    def places(self) -> int:
        """How many batches may be claimed at once; neither jobs nor whole contents are claimed ahead."""
        if self.makes_jobs or self.batch_size == WHOLE:
            return self.max_concurrent
        return self.max_concurrent + min(max(AHEAD_ROWS // self.batch_size, 1), AHEAD)


@dataclasses.dataclass(slots=True)
class Delivery:
    """How far it went."""

    batches: int = 0
    is_outage: bool = False  # the API was given up on for this run


class Quiet(NamedTuple):
    """What is done while nothing comes back."""

    then: Callable[[], None]
    seconds: Callable[[], float]


class Landed(NamedTuple):
    """What push made of a batch, and when."""

    pushed: Pushed
    started_at: float
    ended_at: float


@rare_collections()
def deliver(
    queue: Queue,
    push: Push,
    course: Course,
    *,
    clock: Callable[[], float],
    on_settled: Callable[[Batch, Settled], None],
    may_go_on: Callable[[], bool] = lambda: True,
    wait: Callable[[int], float] = wait_seconds,
    sleep: Callable[[float], None] = interruption.sleep,
    on_quiet: Callable[[], None] = lambda: None,
    quiet_seconds: Callable[[], float] = lambda: QUIET_SECONDS,
    only_asks: bool = False,
    counter: UnitCounter | None = None,
) -> Delivery:
    """Send all that is pending; with `only_asks` none of it, but ask about jobs that are open.

    `on_quiet` is called when nothing came back for `quiet_seconds()`, which is asked again each time.
    `counter` counts the run's units; without one they are counted from now on.
    """
    frozen = frozen_batches(queue)
    jobs = OpenJobs(
        (batch for batch in frozen if batch.job),
        interval_seconds=course.poll_interval_seconds,
        timeout_seconds=course.poll_timeout_seconds,
        clock=clock,
        sleep=sleep,
    )
    journals = Journals(course.journal, {batch.seed for batch in frozen})
    revived = revive(queue, [batch for batch in frozen if not batch.job], journals)
    places = 0 if only_asks else course.places
    runway = Runway(queue, Gate(may_go_on), jobs, revived, places=places, batch_size=course.batch_size)
    quiet = Quiet(on_quiet, quiet_seconds)
    delivering = _Delivering(queue, push, course, clock, on_settled, quiet, runway, journals, wait)
    return delivering.go(counter or UnitCounter(queue))


class _Delivering:
    """One run of deliver()."""

    def __init__(
        self,
        queue: Queue,
        push: Push,
        course: Course,
        clock: Callable[[], float],
        on_settled: Callable[[Batch, Settled], None],
        quiet: Quiet,
        runway: Runway,
        journals: Journals,
        wait: Callable[[int], float],
    ) -> None:
        self._queue = queue
        self._push = push
        self._course = course
        self._clock = clock
        self._on_settled = on_settled
        self._quiet = quiet
        self._runway = runway
        self._journals = journals
        self._wait = wait
        self._workers = Workers(self._fly, course.max_concurrent)
        self._delivery = Delivery()
        self._has_delivered = False
        self._raised: list[Flight] = []  # their push did, in place of saying what came of it
        self._counter: UnitCounter | None = None

    def go(self, counter: UnitCounter) -> Delivery:
        self._counter = counter
        with interruption.on_interruption(self._workers.wake):
            return self._go()

    def _go(self) -> Delivery:
        runway = self._runway
        try:
            self._send_off(runway.next_batches())
            self._send_off(runway.next_polls())
            while runway.in_flight or runway.wait_for_jobs():
                landings = self._workers.next_done(self._patience()) if runway.in_flight else []
                if interruption.received():
                    self._land_the_last(landings)
                    interruption.check()
                if landings:
                    self._land(landings)
                else:
                    self._quiet.then()
                self._send_off(runway.next_polls())
        except Exception as error:
            # what is on its way comes to its end, and stays frozen
            runway.gate.close()
            self._workers.end()
            self._journals.close()
            try:  # a disk that is full, say, is no fault of the rows: of those alone whose own push raised
                self._forgive(flight for flight in runway.in_flight.values() if flight not in self._raised)
            finally:
                raise error
        except BaseException:
            # nobody waits for an API when a person wants the process to end; the journals know what came back
            runway.gate.close()
            self._forgive(runway.in_flight.values())
            raise
        self._workers.end()
        self._journals.close()
        interruption.check()  # which lets nothing go: then it isn't all that was to be sent
        # one batch of many that met one is only unlucky
        gate = runway.gate
        self._delivery.is_outage = gate.is_down or (gate.outages > 0 and not self._has_delivered)
        return self._delivery

    def _land_the_last(self, landings: Sequence[Done[Flight, Landed | None]]) -> None:
        """Settle what comes back in the next seconds, too; the gate lets nothing more go."""
        in_flight = self._runway.in_flight
        unsent = 0  # their push was to make another call
        give_up_at = time.monotonic() + LANDING_SECONDS
        while True:
            unsent += sum(done.error is not None for done in landings)
            self._land([done for done in landings if not done.error])
            seconds = give_up_at - time.monotonic()
            if len(in_flight) == unsent or seconds <= 0:
                return
            landings = self._workers.next_done(seconds)

    def _patience(self) -> float:
        """How long to wait for a batch before one looks at other things."""
        to_poll = self._runway.seconds_to_poll()
        quiet = min(self._quiet.seconds(), QUIET_SECONDS)
        return quiet if to_poll is None else min(to_poll, quiet)

    def _send_off(self, batches: Sequence[Batch]) -> None:
        """Let threads take them; by now they are frozen for good."""
        for batch in batches:
            journal = None if batch.job else self._journals.of(batch.seed)
            flight = Flight(batch, journal)
            self._runway.in_flight[batch.id] = flight
            self._workers.give(flight)

    def _fly(self, flight: Flight) -> Landed | None:
        """In a thread: what push makes of the batch; None when it wasn't given it."""
        batch = flight.batch
        started_at = batch.job.submitted_at if batch.job else self._clock()
        if is_given_up(batch):
            return Landed(give_up(batch), started_at, started_at)
        if batch.job and not self._course.asks_about_jobs:
            return Landed(unasked(batch), started_at, self._clock())
        try:
            pushed = self._hand_over(flight)
        except BaseException:
            self._runway.gate.close()  # what was claimed ahead stays here
            raise
        if pushed is None:
            return None
        self._runway.gate.note(pushed, is_poll=batch.job is not None)
        return Landed(pushed, started_at, self._clock())

    def _hand_over(self, flight: Flight) -> Pushed | None:
        batch, journal = flight
        gate = self._runway.gate
        parcel = Parcel.of(batch, self._queue.layouts)
        if batch.job:
            return self._push.poll(parcel, batch.job.reference) if gate.pass_through() else None
        if journal is None or not gate.pass_through(lambda: journal.begin_batch(batch.seed, batch.id)):
            return None
        try:
            pushed = self._push(parcel, journal)
        except BaseException:
            self._raised.append(flight)
            raise
        if batch.is_part:
            # before it is settled: after a crash in between, the next part must not take its answers
            journal.note_settled()
        return pushed

    def _land(self, landings: Sequence[Done[Flight, Landed | None]]) -> None:
        """End what has come back, and let as many go.

        One commit for all: on a slow disk it costs more than all else that is done here.
        """
        landed = [(done.task, done.result) for done in landings if not done.error]
        ended: list[tuple[Batch, Settled]] = []
        with self._runway.landing([flight for flight, _ in landed]), self._queue.store.immediate():
            for flight, result in landed:
                if settled := self._take(flight, result):
                    ended.append((flight.batch, settled))
            batches = self._runway.next_batches()
        self._free_journals(flight for flight, result in landed if result)
        self._send_off(batches)
        for batch, settled in ended:
            self._delivery.batches += 1
            self._has_delivered = self._has_delivered or settled.has_arrived
            self._runway.jobs.note_news()
            self._on_settled(batch, settled)
        for done in landings:
            if done.error:  # only now: what came back beside it is settled
                raise done.error

    def _take(self, flight: Flight, landed: Landed | None) -> Settled | None:
        """What became of the rows of a batch that came back; None when they stay in the queue as they are."""
        if landed is None:
            self._let_go(flight.batch)
            return None
        if not landed.pushed.is_open:
            return self._settle(flight.batch, landed)
        still_open = self._keep_open(flight, landed)
        if still_open is None:
            return self._settle(flight.batch, landed._replace(pushed=timed_out(flight.batch)))
        self._runway.jobs.add(still_open)
        return None

    def _free_journals(self, flights: Iterable[Flight]) -> None:
        for batch, journal in flights:
            if journal and not self._runway.has_part_of(batch.seed):
                self._journals.free(batch.seed)

    def _keep_open(self, flight: Flight, landed: Landed) -> Batch | None:
        """The batch as an open job; None when that has had its time."""
        jobs, batch = self._runway.jobs, flight.batch
        if batch.job is None:
            jobs.note_news()
            job = jobs.begun(landed.pushed.job or "{}", submitted_at=landed.ended_at)
            return keep_job(self._queue, batch, job._replace(masked=landed.pushed.masked_job))
        if jobs.is_over(batch.job):
            return None
        now = self._clock()
        return postpone(self._queue, batch, next_poll_at=jobs.next_poll_at(batch.job, now), set_at=now)

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
            is_answered=pushed.is_answered,
        )
        settled = settle(self._queue, batch, pushed.outcomes, attempt, wait=self._wait, counter=self._counter)
        if self._course.owes_finalize:
            owe(self._queue, settled)
        return settled

    def _let_go(self, batch: Batch) -> None:
        """A batch that isn't sent in this run; what was frozen before it stays so, and so do jobs."""
        if batch.job:
            self._runway.jobs.add(batch)
        elif self._runway.is_new(batch):
            release(self._queue, batch)

    def _forgive(self, flights: Iterable[Flight]) -> None:
        """That the process ends now is held against none of these."""
        with self._queue.store.immediate():
            for batch, journal in flights:
                if journal:
                    forgive(self._queue, batch, begun=journal.begun[batch.id])
