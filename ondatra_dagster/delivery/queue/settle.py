"""The end of a batch: every row's outcome, what it means for its unit, and its record, in one transaction."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import orjson

from ondatra_dagster.changes import ChangeType
from ondatra_dagster.delivery.backoff import wait_seconds
from ondatra_dagster.delivery.outcome import DELIVERED as DELIVERED_OUTCOME
from ondatra_dagster.delivery.outcome import NO_ROW, Outcome, Verdict
from ondatra_dagster.delivery.queue.claim import Batch, BatchUnit, melt
from ondatra_dagster.delivery.queue.context_rows import context_of, untold
from ondatra_dagster.delivery.queue.enqueue import phase
from ondatra_dagster.delivery.queue.removals import remember_contents
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
from ondatra_dagster.delivery.target import (
    Fate,
    ImageRow,
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
    attempts = :attempts, outages = :outages, due_at = :due_at, message = :message, died_at = :died_at,
    refused_at = :refused_at
where id = :id
"""

WHOLE_TABLE = "the whole table"  # which has no key

# what a mirror ends as: any row that isn't there yet leaves it incomplete
_SEVERITY = {
    verdict: place for place, verdict in enumerate((Verdict.OK, Verdict.WARN, Verdict.REJECT, Verdict.ERROR))
}


class FailedUnit(NamedTuple):
    """A unit that will be tried again, and why."""

    key: str
    message: str
    rows: int


@dataclasses.dataclass(slots=True)
class Settled:
    """What became of a batch's rows, by change type; what the run's grid adds up."""

    succeeded: dict[str, int] = dataclasses.field(default_factory=dict)
    rejected: dict[str, int] = dataclasses.field(default_factory=dict)
    failed: dict[str, int] = dataclasses.field(default_factory=dict)
    errors: set[str] = dataclasses.field(default_factory=set)  # why rows failed
    failures: list[FailedUnit] = dataclasses.field(default_factory=list)  # those that are tried again
    records: int = 0  # that were kept
    died: int = 0  # units that ran out of attempts
    rejects: list[SettledRow] = dataclasses.field(default_factory=list)
    warned: list[SettledRow] = dataclasses.field(default_factory=list)  # delivered, and push warned of them


Outcomes = Mapping[str, Outcome]  # by result key


def settle(
    queue: Queue,
    batch: Batch,
    outcomes: Outcomes,
    attempt: Attempt,
    *,
    wait: Callable[[int], float] = wait_seconds,
) -> Settled:
    """Apply every outcome of a batch and record it, or nothing."""
    settled_as = _as_one(outcomes) if queue.shape is Shape.MIRROR else outcomes
    settlement = _Settlement(queue, settled_as, attempt, wait)
    with queue.store.immediate():
        delivered = settlement.deliver(batch)
        for unit in batch.units:
            if unit.id not in delivered:
                settlement.end(unit)
        settlement.keep_records()
        melt(queue, batch)
    return settlement.settled


def _as_one(outcomes: Outcomes) -> Outcomes:
    """What came whole ends whole: by the worst that was said of any of its rows."""
    worst = max(outcomes.values(), key=lambda outcome: _SEVERITY[outcome.verdict], default=DELIVERED_OUTCOME)
    return dict.fromkeys((*outcomes, NO_ROW), worst)


class _Settlement:
    """The work of one settle()."""

    def __init__(
        self, queue: Queue, outcomes: Outcomes, attempt: Attempt, wait: Callable[[int], float]
    ) -> None:
        self.settled = Settled()
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
        if sum(gone) < len(units):
            # some have a newer change: they go on from what the API has now
            for unit in units:
                self._go_on(unit, arrived(unit.standing, self._queue.shape))
        if self._queue.shape is Shape.MIRROR:
            remember_contents(self._queue, [(unit.key, len(unit.sent)) for unit in units])
        for unit in units:
            self._record(unit)
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
        else:
            self._record(unit)
            self._bury(unit, known, attempts=0)

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
        if (
            version == unit.version
            and attempts + 1 >= self._attempt.max_attempts
            and not self._attempt.is_outage
        ):
            self.settled.died += 1
            self._record(unit, gave_up_after=attempts + 1)
            self._bury(unit, known, attempts=attempts + 1)
            return
        self._add_failed(unit, message)
        if version != unit.version:
            self._go_on(unit, known)
        elif self._attempt.is_outage:
            self._move(unit, known, "waiting", attempts, outages + 1, message, wait=self._wait(1))
        else:
            self._move(unit, known, "waiting", attempts + 1, outages, message, wait=self._wait(attempts + 1))

    def _add_failed(self, unit: BatchUnit, message: str) -> None:
        context = context_of(self._queue.shape, has_target=bool(unit.target))
        failed = [row.change_type for row in unit.sent if row.change_type not in context]
        for change_type in failed:
            _count(self.settled.failed, change_type)
        key = WHOLE_TABLE if self._queue.is_whole_table else unit.belongs_to or unit.key
        self.settled.failures.append(FailedUnit(key, message, len(failed)))

    def _bury(self, unit: BatchUnit, known: Standing, *, attempts: int) -> None:
        """Never again by itself: a dead letter, unless the key has a newer change or is as it should be."""
        version, target, tried, _ = self._now_of(unit)
        standing = known._replace(target=load_image(target))
        if version != unit.version or not self._weight(standing):
            self._go_on(unit, known)
        else:
            message = self._message(unit, Verdict.ERROR if attempts else Verdict.REJECT)
            refused_at = None if attempts else tried + 1
            self._move(unit, known, "dead", attempts, 0, message, died=True, refused_at=refused_at)

    def _go_on(self, unit: BatchUnit, known: Standing) -> None:
        """The key's newer change takes over from what is known now, with fresh attempts."""
        found = self._queue.store.rows(NOW_OF, (unit.id,))
        if not found:
            return  # it was delivered, and nothing came after
        newest = known._replace(target=load_image(str(found[0][1])))
        if self._weight(newest):
            self._move(unit, newest, "pending", 0, 0, None)
        else:
            self._queue.store.run(DROP, (unit.id,))

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
                "due_at": None if wait is None else self._attempt.ended_at + wait,
                "message": message,
                "died_at": self._attempt.ended_at if died else None,
                "refused_at": refused_at,
            },
        )

    def _message(self, unit: BatchUnit, verdict: Verdict) -> str:
        outcomes = [self._outcomes[key] for key in unit.result_keys]
        return next((outcome.message for outcome in outcomes if outcome.verdict is verdict), "")

    def _record(self, unit: BatchUnit, *, gave_up_after: int = 0) -> None:
        context = untold(
            self._queue.shape,
            replaces_rows=self._queue.replaces_rows,
            is_context=unit.is_context,
            has_target=lambda: bool(unit.target),
        )
        for sent in unit.sent:
            outcome = self._outcomes[sent.result_key]
            change_type, row = sent
            if change_type is ChangeType.UPDATE_PREIMAGE:
                continue
            if outcome.is_delivered:
                if change_type not in context:
                    self._add_delivered(unit, change_type, row, outcome)
            else:
                self._add_rejected(unit, change_type, row, outcome, gave_up_after)

    def _add_delivered(
        self, unit: BatchUnit, change_type: ChangeType, row: ImageRow, outcome: Outcome
    ) -> None:
        settled = self._ended_as(SUCCEEDED, unit, change_type, row, outcome.message or None)
        _count(self.settled.succeeded, change_type)
        if outcome.verdict is Verdict.WARN:
            self.settled.warned.append(settled)

    def _add_rejected(
        self, unit: BatchUnit, change_type: ChangeType, row: ImageRow, outcome: Outcome, gave_up_after: int
    ) -> None:
        message = outcome.message or None
        if outcome.verdict is Verdict.ERROR:
            message = f"{outcome.message} (gave up after {gave_up_after} attempts)"
        settled = self._ended_as(REJECTED, unit, change_type, row, message)
        _count(self.settled.rejected, change_type)
        self.settled.rejects.append(settled)

    def _ended_as(
        self, status: str, unit: BatchUnit, change_type: ChangeType, row: ImageRow, message: str | None
    ) -> SettledRow:
        rowid, layout, payload = row
        key = unit.belongs_to
        if key is None:
            key = str(rowid) if self._queue.is_whole_table else unit.key
        settled = SettledRow(key, rowid, change_type, unit.version, status, message, layout, payload)
        (self._deleted if change_type is ChangeType.DELETE else self._updated).append(settled)
        return settled

    def keep_records(self) -> None:
        for kind, rows in ((UPDATED, self._updated), (DELETED, self._deleted)):
            self.settled.records += len(rows)
            keep_settled(self._queue, kind, rows, self._attempt)


def _count(cells: dict[str, int], change_type: ChangeType) -> None:
    cells[change_type] = cells.get(change_type, 0) + 1
