"""The settlement of a batch: outcomes are applied to its units and recorded in one transaction."""

import dataclasses
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import NamedTuple

import orjson

from ondatra_dagster.delivery.acknowledged_to_desired_diff import (
    KeyState,
    RowSet,
    SendResult,
    SentRow,
    UnitKind,
    dump_row_set,
    load_row_set,
    state_after,
)
from ondatra_dagster.delivery.push.push_interface import PushResult
from ondatra_dagster.delivery.queue.change_and_outcome_counts import (
    NO_COUNTS,
    CountedUnit,
    Counts,
    UnitCounter,
    UnitOperation,
    UnitOutcome,
    add_counts,
)
from ondatra_dagster.delivery.queue.claimed_batches import Batch, BatchUnit, delete_batch
from ondatra_dagster.delivery.queue.enqueue_changes import DELETE_UNIT, send_phase
from ondatra_dagster.delivery.queue.queue_database import Queue
from ondatra_dagster.delivery.queue.removal_count import read_content_size, write_content_sizes
from ondatra_dagster.delivery.queue.unpublished_records import (
    RECORDS_DELETED,
    RECORDS_UPDATED,
    STATUS_REJECTED,
    STATUS_SUCCEEDED,
    PushAttempt,
    SettledRow,
    store_settled_rows,
    unrecorded_change_types,
)
from ondatra_dagster.delivery.row_outcome import DELIVERED_OUTCOME, NO_ROW_KEY, RowOutcome, Verdict
from ondatra_dagster.delivery.row_retry_delays import row_retry_seconds
from ondatra_dagster.row_changes import ChangeType

# delivered units are deleted, unless a newer change replaced their content meanwhile
DELETE_DELIVERED = "delete from unit where version = ? and id in (select value from json_each(?))"
READ_CURRENT_UNIT = "select version, desired, attempts, outages from unit where id = ?"
UPDATE_UNIT = """
update unit set acknowledged = :acknowledged, maybe_sent = :maybe_sent, rows = :rows, phase = :phase, state = :state,
    attempts = :attempts, outages = :outages, key_renewals = key_renewals + :is_answered, due_at = :due_at,
    set_at = :set_at, message = :message, died_at = :died_at, refused_at = :refused_at
where id = :id
"""

# A mirror gets the worst outcome of its rows: with one row missing it is incomplete.
_SEVERITY = {verdict: place for place, verdict in enumerate((Verdict.OK, Verdict.WARN, Verdict.REJECT, Verdict.ERROR))}


class UnitMessage(NamedTuple):
    """A message about a unit that ended."""

    key: str
    message: str
    unit_count: int  # how many units it counts as


@dataclasses.dataclass(slots=True)
class SettledBatch:
    """The outcomes of a batch's units. The run adds up those of all batches."""

    counts: Mapping[UnitOutcome, Counts] = dataclasses.field(
        default_factory=lambda: {end: Counts() for end in UnitOutcome}
    )
    errors: set[str] = dataclasses.field(default_factory=set)  # why units failed
    failures: list[UnitMessage] = dataclasses.field(default_factory=list)  # units that will be retried
    record_count: int = 0  # records that were stored
    has_delivered_rows: bool = False  # the API took some of its rows
    exhausted_units: int = 0  # units that ran out of attempts
    rejections: list[UnitMessage] = dataclasses.field(default_factory=list)
    warnings: list[UnitMessage] = dataclasses.field(default_factory=list)  # delivered, but push returned a warning


Outcomes = Mapping[str, RowOutcome]  # by result key


def settle_batch(
    queue: Queue,
    batch: Batch,
    result: PushResult,
    attempt: PushAttempt,
    *,
    wait_seconds: Callable[[int], float] = row_retry_seconds,
    counter: UnitCounter | None = None,
) -> SettledBatch:
    """Apply and record every outcome of a batch in one transaction.

    `counter` is the run's counter. Without it the batch is counted as if the run sent nothing else.
    """
    if queue.unit_kind is UnitKind.MIRROR:
        result = result._replace(outcomes=_worst_for_all(result.outcomes))
    settlement = _Settlement(queue, result, attempt, wait_seconds, counter or UnitCounter(queue))
    with queue.store.write_transaction():
        delivered_ids = settlement.settle_delivered_units(batch)
        for unit in batch.units:
            if unit.id not in delivered_ids:
                settlement.settle_unit(unit)
        settlement.store_records()
        add_counts(queue, attempt.run_id, settlement.result.counts)
        delete_batch(queue, batch)
    return settlement.result


def _worst_for_all(outcomes: Outcomes) -> Outcomes:
    """Return the worst of the outcomes for every row, because a mirror succeeds or fails as a whole."""
    worst_outcome = max(outcomes.values(), key=lambda outcome: _SEVERITY[outcome.verdict], default=DELIVERED_OUTCOME)
    return dict.fromkeys((*outcomes, NO_ROW_KEY), worst_outcome)


class _UnitStatus(NamedTuple):
    """The status of a unit that stays in the queue."""

    state: str  # pending, waiting or dead
    attempts: int = 0
    outages: int = 0
    message: str | None = None
    wait_seconds: float | None = None  # seconds until it is due again
    refused_at: int | None = None


class _Settlement:
    """The settlement of one batch."""

    def __init__(
        self,
        queue: Queue,
        push_result: PushResult,
        attempt: PushAttempt,
        wait_seconds: Callable[[int], float],
        counter: UnitCounter,
    ) -> None:
        self.result = SettledBatch()
        self._counter = counter
        self._has_warnings = any(outcome.verdict is Verdict.WARN for outcome in push_result.outcomes.values())
        self._queue = queue
        self._pushed = push_result
        self._outcomes = push_result.outcomes
        self._attempt = attempt
        self._wait_seconds = wait_seconds
        self._update_records: list[SettledRow] = []
        self._delete_records: list[SettledRow] = []

    def settle_delivered_units(self, batch: Batch) -> set[int]:
        """Delete the units whose rows all arrived, add their records, and return their ids."""
        units = self._delivered_units(batch)
        by_version: dict[int, list[int]] = {}
        for unit in units:
            by_version.setdefault(unit.version, []).append(unit.id)
        deleted_counts = [
            self._queue.store.execute(DELETE_DELIVERED, (version, orjson.dumps(ids).decode()))
            for version, ids in by_version.items()
        ]
        has_newer = sum(deleted_counts) < len(units)
        for unit in units:
            if has_newer:
                # some units have a newer change, which continues from what the API has now
                key_state = unit.key_state.if_delivered(self._queue.unit_kind)
                self._continue_with_newer_change(unit, key_state, UnitOutcome.SUCCEEDED)
            else:
                self._count_unit(unit, UnitOutcome.SUCCEEDED)
            self._add_records(unit)
        if self._queue.unit_kind is UnitKind.MIRROR:
            write_content_sizes(self._queue, [(unit.key, len(unit.sent_rows)) for unit in units])
        self.result.has_delivered_rows = bool(units)
        return {unit.id for unit in units}

    def _delivered_units(self, batch: Batch) -> Sequence[BatchUnit]:
        undelivered_keys = {
            key
            for key, outcome in self._outcomes.items()
            if outcome is not DELIVERED_OUTCOME and not outcome.is_delivered
        }
        if not undelivered_keys:
            return batch.units
        return [unit for unit in batch.units if undelivered_keys.isdisjoint(unit.result_keys)]

    def settle_unit(self, unit: BatchUnit) -> None:
        """Settle one unit whose rows didn't all arrive."""
        results = {row.result_key: self._send_result(self._outcomes[row.result_key]) for row in unit.sent_rows}
        key_state = state_after(unit.key_state, unit.sent_rows, results, self._queue.unit_kind)
        if any(self._outcomes[key].verdict is Verdict.ERROR for key in unit.result_keys):
            self._settle_failed_unit(unit, key_state)
            return
        end = UnitOutcome.REJECTED if self._is_rejected(unit) else UnitOutcome.SUCCEEDED
        counts = self._mark_dead(unit, key_state, end, attempts=0)
        self._add_records(unit, counts)

    def _is_rejected(self, unit: BatchUnit) -> bool:
        """Return whether a row was rejected; of an update's pair only the postimage counts."""
        return not unit.sent_rows or any(
            self._outcomes[row.result_key].verdict is Verdict.REJECT
            for row in unit.sent_rows
            if row.change_type is not ChangeType.UPDATE_PREIMAGE
        )

    def _send_result(self, outcome: RowOutcome) -> SendResult:
        if outcome.is_delivered:
            return SendResult.DELIVERED
        # a call got no answer, or push returned nothing about a row that it may have sent
        if self._pushed.unanswered_calls or (self._pushed.calls and not outcome.is_from_push):
            return SendResult.UNANSWERED
        return SendResult.REFUSED if outcome.verdict is Verdict.REJECT else SendResult.FAILED

    def _settle_failed_unit(self, unit: BatchUnit, known_state: KeyState) -> None:
        """Let a failed unit wait for a later run, or make it a dead letter after its last attempt.

        If its key has a newer change, continue with that one instead.
        """
        version, _, attempts, outages = self._read_current_unit(unit)
        message = self._message(unit, Verdict.ERROR)
        self.result.errors.add(message)
        if version != unit.version:
            self._continue_with_newer_change(unit, known_state, UnitOutcome.FAILED)
        elif self._pushed.is_outage:
            self._count_unit(unit, UnitOutcome.FAILED)
            self._update_unit(
                unit,
                known_state,
                _UnitStatus("waiting", attempts, outages + 1, message, wait_seconds=self._wait_seconds(1)),
            )
        elif attempts + 1 < self._attempt.max_attempts:
            self._count_unit(unit, UnitOutcome.FAILED)
            wait = self._wait_seconds(attempts + 1)
            self._update_unit(
                unit, known_state, _UnitStatus("waiting", attempts + 1, outages, message, wait_seconds=wait)
            )
        else:
            counts = self._mark_dead(unit, known_state, UnitOutcome.REJECTED, attempts=attempts + 1)
            self.result.exhausted_units += counts.total()
            self._add_records(unit, counts, gave_up_after=attempts + 1)

    def _mark_dead(self, unit: BatchUnit, known_state: KeyState, outcome: UnitOutcome, *, attempts: int) -> Counts:
        """Make the unit a dead letter, unless the key has a newer change or nothing to send.

        Return the unit's counts.
        """
        version, desired, attempts_before, _ = self._read_current_unit(unit)
        key_state = known_state._replace(desired=load_row_set(desired))
        if version != unit.version or not self._weight(key_state):
            return self._continue_with_newer_change(unit, known_state, outcome, gave_up_after=attempts)
        message = self._message(unit, Verdict.ERROR if attempts else Verdict.REJECT)
        refused_at = None if attempts else attempts_before + 1
        self._update_unit(unit, known_state, _UnitStatus("dead", attempts, message=message, refused_at=refused_at))
        return self._count_unit(unit, outcome, gave_up_after=attempts)

    def _continue_with_newer_change(
        self, unit: BatchUnit, known_state: KeyState, outcome: UnitOutcome, *, gave_up_after: int = 0
    ) -> Counts:
        """Continue with the key's newer change, from the rows that the API is known to have now, with fresh attempts.

        Return the unit's counts. They are empty while something is left to send, because the unit hasn't ended.
        """
        rows = self._queue.store.fetch_rows(READ_CURRENT_UNIT, (unit.id,))
        if not rows:  # it was delivered, and no newer change came
            return self._count_unit(unit, outcome)
        desired = load_row_set(str(rows[0][1]))
        new_state = known_state._replace(desired=desired)
        if not self._weight(new_state):
            self._queue.store.execute(DELETE_UNIT, (unit.id,))
            return self._count_unit(unit, outcome, desired=desired, gave_up_after=gave_up_after)
        self._counter.count_later(self._counted_unit(unit, desired), outcome)
        self._update_unit(unit, new_state, _UnitStatus("pending"))
        return NO_COUNTS

    def _counted_unit(self, unit: BatchUnit, desired: RowSet | None = None) -> CountedUnit:
        """Return the unit for the counter. `desired` has the newest rows if these differ from the sent rows."""
        if self._queue.unit_kind is UnitKind.MIRROR:
            row_count = len(unit.sent_rows if desired is None else desired)
            return CountedUnit(unit.id, unit.partition, read_content_size(self._queue.store, unit.key), row_count)
        has_desired_rows = unit.has_desired_rows if desired is None else bool(desired)
        return CountedUnit(unit.id, unit.partition, bool(unit.acknowledged) or not has_desired_rows, has_desired_rows)

    def _count_unit(
        self, unit: BatchUnit, outcome: UnitOutcome, *, desired: RowSet | None = None, gave_up_after: int = 0
    ) -> Counts:
        """Count the unit with this outcome, and add its message to the result."""
        counts = self._counter.count(self._counted_unit(unit, desired), outcome)
        self.result.counts[outcome].update(counts)
        if units := counts.total():
            if outcome is UnitOutcome.REJECTED:
                message = self._message(unit, Verdict.ERROR if gave_up_after else Verdict.REJECT)
                message = _format_gave_up(message, gave_up_after) if gave_up_after else message
                self.result.rejections.append(UnitMessage(self._unit_name(unit), message, units))
            elif outcome is UnitOutcome.FAILED:
                message = self._message(unit, Verdict.ERROR)
                self.result.failures.append(UnitMessage(self._unit_name(unit), message, units))
            elif (
                outcome is UnitOutcome.SUCCEEDED
                and self._has_warnings
                and (warning := self._message(unit, Verdict.WARN))
            ):
                self.result.warnings.append(UnitMessage(self._unit_name(unit), warning, units))
        return counts

    def _unit_name(self, unit: BatchUnit) -> str:
        return unit.key if unit.belongs_to is None else unit.belongs_to

    def _weight(self, key_state: KeyState) -> int:
        return key_state.count_rows(self._queue.unit_kind, self._queue.layouts)

    def _read_current_unit(self, unit: BatchUnit) -> tuple[int, str, int, int]:
        version, desired, attempts, outages = self._queue.store.fetch_rows(READ_CURRENT_UNIT, (unit.id,))[0]
        return int(version), str(desired), int(attempts), int(outages)

    def _update_unit(self, unit: BatchUnit, known_state: KeyState, status: _UnitStatus) -> None:
        desired = load_row_set(self._read_current_unit(unit)[1])
        key_state = known_state._replace(desired=desired)
        self._queue.store.execute(
            UPDATE_UNIT,
            {
                **status._asdict(),
                "id": unit.id,
                "acknowledged": dump_row_set(known_state.acknowledged),
                "maybe_sent": known_state.dump_maybe_sent(),
                "rows": self._weight(key_state),
                "phase": send_phase(self._queue, dump_row_set(desired)),
                "is_answered": self._pushed.is_answered,
                "due_at": None if status.wait_seconds is None else self._attempt.ended_at + status.wait_seconds,
                "set_at": None if status.wait_seconds is None else self._attempt.ended_at,
                "died_at": self._attempt.ended_at if status.state == "dead" else None,
            },
        )

    def _message(self, unit: BatchUnit, verdict: Verdict) -> str:
        outcomes = [self._outcomes[key] for key in unit.result_keys]
        return next((outcome.message for outcome in outcomes if outcome.verdict is verdict), "")

    def _add_records(self, unit: BatchUnit, counts: Counts = NO_COUNTS, *, gave_up_after: int = 0) -> None:
        context = unrecorded_change_types(
            self._queue.unit_kind,
            replaces_rows=self._queue.replaces_rows,
            is_context=unit.is_context,
            has_desired_rows=lambda: unit.has_desired_rows,
        )
        for sent_row in unit.sent_rows:
            outcome = self._outcomes[sent_row.result_key]
            change_type = sent_row.change_type
            if change_type is ChangeType.UPDATE_PREIMAGE:
                continue
            is_context = change_type in context
            if outcome.is_delivered:
                if not is_context:
                    self._add_record(STATUS_SUCCEEDED, unit, sent_row, outcome.message)
            elif not (is_context and self._has_undelivered_rows(unit, context)):
                has_given_up = gave_up_after and outcome.verdict is Verdict.ERROR
                message = _format_gave_up(outcome.message, gave_up_after) if has_given_up else outcome.message
                is_deleted = not is_context or bool(counts[UnitOperation.DELETE])
                self._add_record(STATUS_REJECTED, unit, sent_row, message, is_deleted=is_deleted)

    def _has_undelivered_rows(self, unit: BatchUnit, context: Collection[ChangeType]) -> bool:
        """Return whether a row that isn't context didn't arrive: the record of that row reports the unit's outcome."""
        return any(
            row.change_type not in context and not self._outcomes[row.result_key].is_delivered for row in unit.sent_rows
        )

    def _add_record(
        self, status: str, unit: BatchUnit, sent_row: SentRow, message: str, *, is_deleted: bool = True
    ) -> None:
        """Add the record of one row. With `is_deleted` false, even a delete is stored among the updated rows."""
        change_type, (rowid, layout, payload) = sent_row
        key = unit.belongs_to
        if key is None:
            key = str(rowid) if self._queue.is_whole_table else unit.key
        settled_row = SettledRow(key, rowid, change_type, unit.version, status, message or None, layout, payload)
        is_delete = is_deleted and change_type is ChangeType.DELETE
        (self._delete_records if is_delete else self._update_records).append(settled_row)

    def store_records(self) -> None:
        for kind, rows in ((RECORDS_UPDATED, self._update_records), (RECORDS_DELETED, self._delete_records)):
            self.result.record_count += len(rows)
            store_settled_rows(self._queue, kind, rows, self._attempt)


def _format_gave_up(message: str, attempts: int) -> str:
    return f"{message} (gave up after {attempts} attempts)"
