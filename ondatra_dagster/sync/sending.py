"""Sends what the queue holds, as far as guard, hold and API let it; what of it is counted and kept."""

import logging

from ondatra_dagster.delivery.deliver import Course, Delivery, deliver
from ondatra_dagster.delivery.finalizing import finalize, forget_debt
from ondatra_dagster.delivery.push.push_port import Push
from ondatra_dagster.delivery.queue.claim import Batch
from ondatra_dagster.delivery.queue.jobs import count_in_jobs
from ondatra_dagster.delivery.queue.removals import Removals, let_through
from ondatra_dagster.delivery.queue.run_counts import PLANNED, add_counts
from ondatra_dagster.delivery.queue.settle import Settled
from ondatra_dagster.delivery.queue.states import QueueState, look
from ondatra_dagster.delivery.queue.unit_counts import UnitCounter, count_units
from ondatra_dagster.errors import OtherStateError
from ondatra_dagster.sync.run_account import RunAccount
from ondatra_dagster.sync.start import Start
from ondatra_dagster.sync.summary import SAMPLES, describe_counts
from ondatra_dagster.sync.tally import Tally

log = logging.getLogger(__name__)


class Sending:
    """One run's."""

    def __init__(self, start: Start, account: RunAccount, tally: Tally) -> None:
        self._sync = start.sync
        self._ports = start.ports
        self._queue = start.queue
        self._account = account
        self._tally = tally
        self._counter = UnitCounter(self._queue)
        self._is_first = start.version_from is None
        # when to look for other state folders, and to tell them of this run
        self._look_at = self._ports.clock() + self._ports.publish_seconds
        self._met: OtherStateError | None = None  # another state folder has begun a run since

    def go(self, removals: Removals | None) -> Delivery:
        """Deliver until nothing more can go now, and tell finalize(); `removals` is what the guard found.

        Where nothing may be sent, jobs are asked about all the same: their time passes meanwhile.
        """
        self._plan()
        try:
            return self._send(removals)
        finally:
            self._tally.close(count_in_jobs(self._queue, self._counter))

    def _plan(self) -> None:
        self._planned = planned = count_units(self._queue)
        with self._queue.store.immediate():
            add_counts(self._queue, self._account.run_id, {PLANNED: planned})
        self._tally.add_planned(planned)

    def _send(self, removals: Removals | None) -> Delivery:
        standing = self._look()
        if not self._ports.may_send() or (removals and self._sync.limits.are_too_many(removals)):
            return self._ask() if standing.polls_due and self._ports.may_ask else Delivery()
        if not (standing.can_deliver or standing.can_finalize):
            return Delivery()
        if removals:
            let_through(self._queue)
        self._account.others.check()
        if self._is_first:
            self._announce_first_run()
        with self._ports.push() as push:
            delivery = self._deliver(push)
            self._finalize(push)
        return delivery

    def _announce_first_run(self) -> None:
        rows = describe_counts(self._planned) or "nothing"
        address = self._sync.config.base_url or f"the addresses in {self._sync.config.file}"
        self._ports.notify(f"{self._sync.id} runs for the first time: {rows} to send to {address}")

    def _ask(self) -> Delivery:
        with self._ports.push() as push:
            return self._deliver(push, only_asks=True)

    def _deliver(self, push: Push, *, only_asks: bool = False) -> Delivery:
        delivery = deliver(
            self._queue,
            push,
            Course.of(self._sync.config, run_id=self._account.run_id, journal=self._sync.journal),
            clock=self._ports.clock,
            on_settled=self._note,
            may_go_on=lambda: not self._met and (only_asks or self._ports.may_send()),
            sleep=self._ports.sleep,
            on_quiet=self._look_around,
            quiet_seconds=self._quiet_seconds,
            only_asks=only_asks,
            counter=self._counter,
        )
        if self._met:
            raise self._met
        return delivery

    def _look_around(self) -> None:
        """Publish records that are due, and every few seconds look for other state folders."""
        now = self._ports.clock()
        self._account.publisher.look(now=now)
        if now >= self._look_at and not self._met:
            self._look_at = now + self._ports.publish_seconds
            try:
                self._account.others.check()
            except OtherStateError as met:
                self._met = met  # what is on its way comes to its end first

    def _quiet_seconds(self) -> float:
        now = self._ports.clock()
        return min(self._account.publisher.seconds_to_next(now=now), max(self._look_at - now, 0.0))

    def _note(self, batch: Batch, settled: Settled) -> None:
        self._log_warnings(batch, settled)
        self._tally.add_settled(settled)
        self._account.publisher.note(settled.records, now=self._ports.clock())
        self._look_around()

    def _log_warnings(self, batch: Batch, settled: Settled) -> None:
        """What push() said of rows that were delivered all the same, each message once a batch."""
        keys: dict[str, list[str]] = {}
        for said in settled.warned:
            keys.setdefault(said.message, []).append(said.key)
        for message, of in list(keys.items())[:SAMPLES]:
            told = "sync=%s batch=%d rows=%d first=%s delivered with a warning: %s"
            log.warning(told, self._sync.id, batch.number, len(of), of[0], message)
        if len(keys) > SAMPLES:
            told = "sync=%s batch=%d %d more messages of rows that were delivered with a warning"
            log.warning(told, self._sync.id, batch.number, len(keys) - SAMPLES)

    def _finalize(self, push: Push) -> None:
        """Tell the API's side that all has come to its end, if it has."""
        if "finalize" not in self._sync.config.functions:
            forget_debt(self._queue)
            return
        is_due = self._look().can_finalize and self._ports.may_send()
        problem = finalize(self._queue, push, journal=self._sync.journal) if is_due else None
        if problem:
            self._tally.add_error(problem)

    def _look(self) -> QueueState:
        return look(self._queue.store, now=self._ports.clock())
