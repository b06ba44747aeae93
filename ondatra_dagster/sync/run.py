"""One sync run from end to end: feed → queue → cross-check → deliver → records → summary.

Each step can be cut off at any instant; the next run goes on from what is on disk.
What is counted on the way: tally. What is kept of the run: run_account. How rows go out: sending.
"""

import contextlib
import logging
from datetime import UTC, datetime

from ondatra_dagster import interruption
from ondatra_dagster.delivery.queue.backlog import oldest
from ondatra_dagster.delivery.queue.claim import make_due
from ondatra_dagster.delivery.queue.jobs import count_in_jobs
from ondatra_dagster.delivery.queue.recovered import Recovered
from ondatra_dagster.delivery.queue.removals import Removals
from ondatra_dagster.delivery.queue.settled import Attempt
from ondatra_dagster.delivery.queue.states import look
from ondatra_dagster.delivery.queue.tables import Queue
from ondatra_dagster.delivery.queue.time_correction import correct_times
from ondatra_dagster.delivery.queue.unit_counts import UnitCounter, count_units
from ondatra_dagster.errors import BusyError, OndatraError, OtherStateError
from ondatra_dagster.interruption import InterruptedRunError
from ondatra_dagster.sync.cross_check import cross_check, take_in
from ondatra_dagster.sync.guard import look_at_removals, unit_noun
from ondatra_dagster.sync.other_states import OtherStates
from ondatra_dagster.sync.ports import Ports
from ondatra_dagster.sync.records import keep_invalid, newly_set_aside
from ondatra_dagster.sync.run_account import RunAccount, close_crashed_runs, mode_of, note_refusal
from ondatra_dagster.sync.sending import Sending
from ondatra_dagster.sync.start import Occasion, Start, version_of
from ondatra_dagster.sync.summary import SAMPLES, RunOccasion, RunSummary, describe_counts
from ondatra_dagster.sync.sync import Sync
from ondatra_dagster.sync.tally import Tally
from ondatra_dagster.sync.verdicts import Severity, judge
from ondatra_dagster.tracking.history import Result

log = logging.getLogger(__name__)

INTERRUPTED = "it was interrupted; the next run goes on from there"


def run_sync(sync: Sync, ports: Ports, occasion: Occasion) -> RunSummary:
    """Bring the destination as far as it goes now, and say what became of each row.

    When another process delivers this sync, or nothing is to be done, the summary says so and has no run id.
    """
    at, others = ports.now(), OtherStates(sync, ports)
    source = ports.source()
    if source is None:
        return of_no_table(sync, at)
    with contextlib.ExitStack() as stack:
        try:
            queue = stack.enter_context(sync.open_queue())
        except BusyError as busy:
            return RunSummary.of_nothing(sync.id, str(busy), at=at)
        source = ports.source() or source  # until the queue was ours, others may have gone on with it
        start = Start.of(sync, ports, occasion, queue, source)
        try:
            others.look_before_run()
            recovered = cross_check(queue, sync, ports, source, is_new_state=occasion.allows_new_state)
        except OndatraError as error:
            note_refusal(start, error)
            raise
        close_crashed_runs(queue, sync, ports)
        note_corrected_times(queue, sync, ports.clock())
        make_due(queue, ports.clock())
        return SyncRun(start.looked_again()).go(recovered, others)


def note_corrected_times(queue: Queue, sync: Sync, now: float) -> None:
    """Correct times that a clock ahead has left, and say so."""
    latest = correct_times(queue, now)
    if latest is not None:
        noted, clock = (datetime.fromtimestamp(time, UTC).isoformat(" ", "seconds") for time in (latest, now))
        log.warning(
            "%s: its queue has times up to %s, and the clock says %s. What waited counts as due now."
            " If the clock is wrong now, set it right",
            *(sync.id, noted, clock),
        )


def of_no_table(sync: Sync, at: datetime) -> RunSummary:
    """A run of a sync whose model has never run."""
    message = f"{sync.model.name} has no table yet; it is made when the model runs"
    return RunSummary.of_nothing(sync.id, message, at=at)


class SyncRun:
    """The state of one run, from its begin to its end."""

    def __init__(self, start: Start) -> None:
        self._start = start
        self._sync = start.sync
        self._ports = start.ports
        self._queue = start.queue
        self._source = start.source
        self._tally = Tally()
        self._removals: Removals | None = None

    def go(self, recovered: Recovered, others: OtherStates) -> RunSummary:
        if not self._has_work():
            self._take_in(recovered)
            self._look_at_removals()
            return self._summary(None, message=self._held() or "nothing is new, and nothing is due")
        account = self._begin(others)
        try:
            self._enqueue(recovered, account.run_id)
            self._look_at_removals()
            delivery = Sending(self._start, account, self._tally).go(self._removals)
            summary = self._summary(account.run_id, is_outage=delivery.is_outage, message=self._held())
            failed = any(verdict.severity is Severity.ERROR for verdict in judge(summary, self._sync.limits))
            account.end(summary, Result.FAILED if failed else Result.SUCCEEDED)
        except (OndatraError, InterruptedRunError) as error:
            self._cut_off(account, error)
            raise
        return summary

    def _begin(self, others: OtherStates) -> RunAccount:
        try:
            return RunAccount.begin(self._start, others)
        except OtherStateError as error:
            note_refusal(self._start, error)
            raise

    def _cut_off(self, account: RunAccount, error: BaseException) -> None:
        """Note that the run failed. When it was interrupted, its error is most likely what that broke."""
        if interruption.received():
            account.cut_off(self._summary(account.run_id, message=INTERRUPTED), Result.INTERRUPTED)
            raise InterruptedRunError from None
        self._tally.add_error(str(error))
        account.cut_off(self._summary(account.run_id, message=str(error)), Result.FAILED)

    def go_dry(self, recovered: Recovered, run_id: str) -> RunSummary:
        """As far as a run goes before it sends the first row; the queue is left as it is then."""
        self._enqueue(recovered, run_id)
        self._look_at_removals()
        self._tally.add_planned(count_units(self._queue))
        self._tally.close(count_in_jobs(self._queue, UnitCounter(self._queue)))
        return self._summary(run_id, message=self._ports.hold() or "")

    def _has_work(self) -> bool:
        return (
            self._source.version > self._queue.watermark
            or self._source.invalid_version > self._queue.invalid_watermark
            or self._can_go()
        )

    def _can_go(self) -> bool:
        """Whether something of the queue may be sent now, or a job asked about."""
        standing = look(self._queue.store, now=self._ports.clock())
        return (standing.can_send and self._ports.may_send()) or (
            standing.polls_due > 0 and self._ports.may_ask
        )

    def _enqueue(self, recovered: Recovered, run_id: str) -> None:
        self._take_in(recovered)
        now, upto = self._ports.clock(), self._source.invalid_version
        if upto > self._queue.invalid_watermark:
            found = self._ports.feed.invalid(self._queue.invalid_watermark, upto)
            rows = newly_set_aside(self._queue, self._ports.tracking, self._sync.id, found)
            attempt = Attempt(run_id=run_id, started_at=now, ended_at=now, max_attempts=0)
            self._tally.add_invalid(keep_invalid(self._queue, self._tally.watched(rows), attempt, upto=upto))

    def _take_in(self, recovered: Recovered) -> None:
        take_in(self._queue, self._sync, self._ports, self._source, recovered)

    def _look_at_removals(self) -> None:
        self._removals = look_at_removals(
            self._queue,
            self._sync,
            self._source,
            self._ports.feed,
            # while nothing is sent, nothing is let go: what comes until then would go with it
            is_allowed=self._start.occasion.allows_deletes and self._ports.may_send(),
        )

    def _held(self) -> str:
        """Why rows were left in the queue that might have gone."""
        hold = self._ports.hold()
        planned = describe_counts(count_units(self._queue)) if hold else ""
        return f"{hold}: {planned} pending" if planned else hold or ""

    def _summary(self, run_id: str | None, *, is_outage: bool = False, message: str) -> RunSummary:
        return RunSummary(
            sync_id=self._sync.id,
            run_id=run_id,
            occasion=RunOccasion(self._start.occasion.trigger, *mode_of(self._start)),
            started_at=self._start.at,
            ended_at=self._ports.now(),
            version_from=self._start.version_from,
            version_to=version_of(self._queue.watermark),
            grid=self._tally.grid,
            queue=look(self._queue.store, now=self._ports.clock()),
            set_aside=self._source.set_aside,
            removals=self._removals,
            waiting=tuple(oldest(self._queue.store, limit=SAMPLES)),
            noun=unit_noun(self._sync),
            rejects=self._tally.rejects,
            warned=self._tally.warned,
            warnings=self._tally.warnings,
            invalid=self._tally.set_aside(self._start),
            failures=self._tally.failures,
            errors=self._tally.errors,
            died=self._tally.died,
            is_outage=is_outage,
            message=message,
        )
