"""The end of a batch: every row's outcome, what it means for its unit, and its record, in one transaction."""

import dataclasses
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import NamedTuple

import orjson

from ondatra_dagster.changes import ChangeType
from ondatra_dagster.delivery.backoff import wait_seconds
from ondatra_dagster.delivery.outcome import DELIVERED as DELIVERED_OUTCOME
from ondatra_dagster.delivery.outcome import NO_ROW, Outcome, Verdict
from ondatra_dagster.delivery.queue.claim import Batch, BatchUnit, melt
from ondatra_dagster.delivery.queue.context_rows import untold
from ondatra_dagster.delivery.queue.enqueue import phase
from ondatra_dagster.delivery.queue.removals import content_of, remember_contents
from ondatra_dagster.delivery.queue.run_counts import add_counts
from ondatra_dagster.delivery.queue.settled import (
    DELETED,
    REJECTED,
    SUCCEEDED,
    UPDATED,
    Attempt,
    SettledRow,
    keep_settled,
)
from ondatra_dagster.delivery.queue.tables import Queue
from ondatra_dagster.delivery.queue.unit_counts import (
    NONE,
    CountedUnit,
    Counts,
    End,
    Operation,
    UnitCounter,
)
from ondatra_dagster.delivery.target import (
    Fate,
    Image,
    SentRow,
    Shape,
    Standing,
    after,
    arrived,
    dump_image,
    dump_tried,
    load_image,
    weight,
)

# the units are gone, unless a newer change waits beside the batch
DELIVERED = "delete from unit where version = ? and id in (select value from json_each(?))"
NOW_OF = "select version, target, attempts, outages from unit where id = ?"
DROP = "delete from unit where id = ?"
MOVE = """
update unit set base = :base, tried = :tried, rows = :rows, phase = :phase, state = :state,
    attempts = :attempts, outages = :outages, key_renewals = key_renewals + :is_answered, due_at = :due_at,
    set_at = :set_at, message = :message, died_at = :died_at, refused_at = :refused_at
where id = :id
"""

# what a mirror ends as: any row that isn't there yet leaves it incomplete
_SEVERITY = {
    verdict: place for place, verdict in enumerate((Verdict.OK, Verdict.WARN, Verdict.REJECT, Verdict.ERROR))
}


class Said(NamedTuple):
    """What was said of a unit that ended."""

    key: str
    message: str
    units: int  # as how many it counts


@dataclasses.dataclass(slots=True)
class Settled:
    """What became of a batch's units; what the run's grid adds up."""

    succeeded: Counts = dataclasses.field(default_factory=Counts)
    rejected: Counts = dataclasses.field(default_factory=Counts)
    failed: Counts = dataclasses.field(default_factory=Counts)
    errors: set[str] = dataclasses.field(default_factory=set)  # why units failed
    failures: list[Said] = dataclasses.field(default_factory=list)  # units that will be tried again
    records: int = 0  # that were kept
    has_arrived: bool = False  # the API took some rows of it
    died: int = 0  # units that ran out of attempts
    rejects: list[Said] = dataclasses.field(default_factory=list)
    warned: list[Said] = dataclasses.field(default_factory=list)  # delivered, and push warned of them

    def counts(self, end: End) -> Counts:
        """How many of its units ended so."""
        return {End.SUCCEEDED: self.succeeded, End.REJECTED: self.rejected, End.FAILED: self.failed}[end]


Outcomes = Mapping[str, Outcome]  # by result key


def settle(
    queue: Queue,
    batch: Batch,
    outcomes: Outcomes,
    attempt: Attempt,
    *,
    wait: Callable[[int], float] = wait_seconds,
    counter: UnitCounter | None = None,
) -> Settled:
    """Apply every outcome of a batch and record it, or nothing.

    `counter` is the run's; without one the batch is counted as if it were all that the run sends.
    """
    settled_as = _as_one(outcomes) if queue.shape is Shape.MIRROR else outcomes
    settlement = _Settlement(queue, settled_as, attempt, wait, counter or UnitCounter(queue))
    with queue.store.immediate():
        delivered = settlement.deliver(batch)
        for unit in batch.units:
            if unit.id not in delivered:
                settlement.end(unit)
        settlement.keep_records()
        add_counts(queue, attempt.run_id, {end: settlement.settled.counts(end) for end in End})
        melt(queue, batch)
    return settlement.settled


def _as_one(outcomes: Outcomes) -> Outcomes:
    """What came whole ends whole: by the worst that was said of any of its rows."""
    worst = max(outcomes.values(), key=lambda outcome: _SEVERITY[outcome.verdict], default=DELIVERED_OUTCOME)
    return dict.fromkeys((*outcomes, NO_ROW), worst)


class _Settlement:
    """The work of one settle()."""

    def __init__(
        self,
        queue: Queue,
        outcomes: Outcomes,
        attempt: Attempt,
        wait: Callable[[int], float],
        counter: UnitCounter,
    ) -> None:
        self.settled = Settled()
        self._counter = counter
        self._has_warnings = any(outcome.verdict is Verdict.WARN for outcome in outcomes.values())
        self._queue = queue
        self._outcomes = outcomes
        self._attempt = attempt
        self._wait = wait
        self._updated: list[SettledRow] = []
        self._deleted: list[SettledRow] = []

    def deliver(self, batch: Batch) -> set[int]:
        """The units whose every row arrived: nothing is left of them but their records."""
        units = self._arrived(batch)
        by_version: dict[int, list[int]] = {}
        for unit in units:
            by_version.setdefault(unit.version, []).append(unit.id)
        gone = [
            self._queue.store.run(DELIVERED, (version, orjson.dumps(ids).decode()))
            for version, ids in by_version.items()
        ]
        has_newer = sum(gone) < len(units)
        for unit in units:
            if has_newer:
                # some have a newer change: they go on from what the API has now
                self._go_on(unit, arrived(unit.standing, self._queue.shape), End.SUCCEEDED)
            else:
                self._count(unit, End.SUCCEEDED)
            self._record(unit)
        if self._queue.shape is Shape.MIRROR:
            remember_contents(self._queue, [(unit.key, len(unit.sent)) for unit in units])
        self.settled.has_arrived = bool(units)
        return {unit.id for unit in units}

    def _arrived(self, batch: Batch) -> Sequence[BatchUnit]:
        missed = {
            key
            for key, outcome in self._outcomes.items()
            if outcome is not DELIVERED_OUTCOME and not outcome.is_delivered
        }
        if not missed:
            return batch.units
        return [unit for unit in batch.units if missed.isdisjoint(unit.result_keys)]

    def end(self, unit: BatchUnit) -> None:
        """Move one unit on whose rows didn't all arrive."""
        fates = {row.result_key: self._fate(self._outcomes[row.result_key]) for row in unit.sent}
        known = after(unit.standing, unit.sent, fates, self._queue.shape)
        if any(self._outcomes[key].verdict is Verdict.ERROR for key in unit.result_keys):
            self._return(unit, known)
            return
        end = End.REJECTED if self._is_refused(unit) else End.SUCCEEDED
        counted = self._bury(unit, known, end, attempts=0)
        self._record(unit, counted)

    def _is_refused(self, unit: BatchUnit) -> bool:
        """Whether a row was rejected: of an update's pair, the image after it."""
        return not unit.sent or any(
            self._outcomes[row.result_key].verdict is Verdict.REJECT
            for row in unit.sent
            if row.change_type is not ChangeType.UPDATE_PREIMAGE
        )

    def _fate(self, outcome: Outcome) -> Fate:
        if outcome.is_delivered:
            return Fate.DELIVERED
        # a call has got no answer, or push said nothing of a row that it may well have sent
        if self._attempt.unanswered or (self._attempt.calls and not outcome.stated):
            return Fate.UNANSWERED
        return Fate.REFUSED if outcome.verdict is Verdict.REJECT else Fate.FAILED

    def _return(self, unit: BatchUnit, known: Standing) -> None:
        """Not now: the unit waits for a later run, or has been tried often enough."""
        version, _, attempts, outages = self._now_of(unit)
        message = self._message(unit, Verdict.ERROR)
        self.settled.errors.add(message)
        if version != unit.version:
            self._go_on(unit, known, End.FAILED)
        elif self._attempt.is_outage:
            self._count(unit, End.FAILED)
            self._move(unit, known, "waiting", attempts, outages + 1, message, wait=self._wait(1))
        elif attempts + 1 < self._attempt.max_attempts:
            self._count(unit, End.FAILED)
            self._move(unit, known, "waiting", attempts + 1, outages, message, wait=self._wait(attempts + 1))
        else:
            counted = self._bury(unit, known, End.REJECTED, attempts=attempts + 1)
            self.settled.died += counted.total()
            self._record(unit, counted, gave_up_after=attempts + 1)

    def _bury(self, unit: BatchUnit, known: Standing, end: End, *, attempts: int) -> Counts:
        """Never again by itself: a dead letter, unless the key has a newer change or is as it should be.

        Returns as what it counts.
        """
        version, target, tried, _ = self._now_of(unit)
        standing = known._replace(target=load_image(target))
        if version != unit.version or not self._weight(standing):
            return self._go_on(unit, known, end, gave_up_after=attempts)
        message = self._message(unit, Verdict.ERROR if attempts else Verdict.REJECT)
        refused_at = None if attempts else tried + 1
        self._move(unit, known, "dead", attempts, 0, message, died=True, refused_at=refused_at)
        return self._count(unit, end, gave_up_after=attempts)

    def _go_on(self, unit: BatchUnit, known: Standing, end: End, *, gave_up_after: int = 0) -> Counts:
        """The key's newer change takes over from what is known now, with fresh attempts.

        Returns as what the unit counts, which has ended only where nothing is left to send.
        """
        found = self._queue.store.rows(NOW_OF, (unit.id,))
        if not found:  # it was delivered, and nothing came after
            return self._count(unit, end)
        target = load_image(str(found[0][1]))
        newest = known._replace(target=target)
        if not self._weight(newest):
            self._queue.store.run(DROP, (unit.id,))
            return self._count(unit, end, target=target, gave_up_after=gave_up_after)
        self._counter.postpone(self._counted(unit, target), end)
        self._move(unit, newest, "pending", 0, 0, None)
        return NONE

    def _counted(self, unit: BatchUnit, target: Image | None = None) -> CountedUnit:
        """The unit for the counter; `target` is the newest where that isn't what was sent."""
        if self._queue.shape is Shape.MIRROR:
            has = len(unit.sent if target is None else target)
            return CountedUnit(unit.id, unit.part, content_of(self._queue.store, unit.key), has)
        has_target = unit.has_target if target is None else bool(target)
        return CountedUnit(unit.id, unit.part, bool(unit.base) or not has_target, has_target)

    def _count(
        self, unit: BatchUnit, end: End, *, target: Image | None = None, gave_up_after: int = 0
    ) -> Counts:
        """Count the unit, which has ended, and keep what was said of it."""
        counts = self._counter.count(self._counted(unit, target), end)
        self.settled.counts(end).update(counts)
        if units := counts.total():
            if end is End.REJECTED:
                message = self._rejected_for(unit, gave_up_after)
                self.settled.rejects.append(Said(self._name(unit), message, units))
            elif end is End.FAILED:
                message = self._message(unit, Verdict.ERROR)
                self.settled.failures.append(Said(self._name(unit), message, units))
            elif end is End.SUCCEEDED and self._has_warnings and (said := self._message(unit, Verdict.WARN)):
                self.settled.warned.append(Said(self._name(unit), said, units))
        return counts

    def _rejected_for(self, unit: BatchUnit, gave_up_after: int) -> str:
        if gave_up_after:
            return _gave_up(self._message(unit, Verdict.ERROR), gave_up_after)
        return self._message(unit, Verdict.REJECT)

    def _name(self, unit: BatchUnit) -> str:
        return unit.key if unit.belongs_to is None else unit.belongs_to

    def _weight(self, standing: Standing) -> int:
        return weight(standing, self._queue.shape, self._queue.layouts)

    def _now_of(self, unit: BatchUnit) -> tuple[int, str, int, int]:
        version, target, attempts, outages = self._queue.store.rows(NOW_OF, (unit.id,))[0]
        return int(version), str(target), int(attempts), int(outages)

    def _move(
        self,
        unit: BatchUnit,
        known: Standing,
        state: str,
        attempts: int,
        outages: int,
        message: str | None,
        *,
        wait: float | None = None,
        died: bool = False,
        refused_at: int | None = None,
    ) -> None:
        target = load_image(self._now_of(unit)[1])
        standing = known._replace(target=target)
        self._queue.store.run(
            MOVE,
            {
                "id": unit.id,
                "base": dump_image(known.base),
                "tried": dump_tried(known),
                "rows": self._weight(standing),
                "phase": phase(self._queue, dump_image(target)),
                "state": state,
                "attempts": attempts,
                "outages": outages,
                "is_answered": self._attempt.is_answered,
                "due_at": None if wait is None else self._attempt.ended_at + wait,
                "set_at": None if wait is None else self._attempt.ended_at,
                "message": message,
                "died_at": self._attempt.ended_at if died else None,
                "refused_at": refused_at,
            },
        )

    def _message(self, unit: BatchUnit, verdict: Verdict) -> str:
        outcomes = [self._outcomes[key] for key in unit.result_keys]
        return next((outcome.message for outcome in outcomes if outcome.verdict is verdict), "")

    def _record(self, unit: BatchUnit, counted: Counts = NONE, *, gave_up_after: int = 0) -> None:
        context = untold(
            self._queue.shape,
            replaces_rows=self._queue.replaces_rows,
            is_context=unit.is_context,
            has_target=lambda: unit.has_target,
        )
        for sent in unit.sent:
            outcome = self._outcomes[sent.result_key]
            change_type = sent.change_type
            if change_type is ChangeType.UPDATE_PREIMAGE:
                continue
            is_context = change_type in context
            if outcome.is_delivered:
                if not is_context:
                    self._keep(SUCCEEDED, unit, sent, outcome.message)
            elif not (is_context and self._has_missed(unit, context)):
                gave_up = gave_up_after and outcome.verdict is Verdict.ERROR
                message = _gave_up(outcome.message, gave_up_after) if gave_up else outcome.message
                is_deleted = not is_context or bool(counted[Operation.DELETE])
                self._keep(REJECTED, unit, sent, message, is_deleted=is_deleted)

    def _has_missed(self, unit: BatchUnit, context: Collection[ChangeType]) -> bool:
        """Whether a row that isn't context didn't arrive: its record tells of the unit's end."""
        return any(
            row.change_type not in context and not self._outcomes[row.result_key].is_delivered
            for row in unit.sent
        )

    def _keep(
        self, status: str, unit: BatchUnit, sent: SentRow, message: str, *, is_deleted: bool = True
    ) -> None:
        """Keep the record of one row; a delete that only makes room for another row isn't one."""
        change_type, (rowid, layout, payload) = sent
        key = unit.belongs_to
        if key is None:
            key = str(rowid) if self._queue.is_whole_table else unit.key
        settled = SettledRow(key, rowid, change_type, unit.version, status, message or None, layout, payload)
        is_delete = is_deleted and change_type is ChangeType.DELETE
        (self._deleted if is_delete else self._updated).append(settled)

    def keep_records(self) -> None:
        for kind, rows in ((UPDATED, self._updated), (DELETED, self._deleted)):
            self.settled.records += len(rows)
            keep_settled(self._queue, kind, rows, self._attempt)


def _gave_up(message: str, attempts: int) -> str:
    return f"{message} (gave up after {attempts} attempts)"
