"""The pending rows of a queue, one by one, for commands and pages that only read."""

import dataclasses
import itertools
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import orjson

from ondatra_dagster.delivery.acknowledged_to_desired_diff import (
    KeyState,
    SentRow,
    StoredRow,
    UnitKind,
    find_rows_to_send,
)
from ondatra_dagster.delivery.queue.change_and_outcome_counts import IS_DESIRED, IS_ON_API, UnitOperation, operation_of
from ondatra_dagster.delivery.queue.claimed_batches import parse_batch_rows
from ondatra_dagster.delivery.queue.damage_checksums import (
    BATCH_COLUMNS,
    UNIT_COLUMNS,
    check_row_digest,
    check_unit_digest,
)
from ondatra_dagster.delivery.queue.queue_database import UNIT_IDENTIFIER, read_layouts
from ondatra_dagster.delivery.queue.unpublished_records import unrecorded_change_types
from ondatra_dagster.row_changes import ChangeType
from ondatra_dagster.storage.sqlite_database import SqliteStore

STAGE_PENDING = "pending"  # for units that weren't tried yet, or are in flight
STAGE_WAITING = "waiting"  # for units that wait for their next attempt, or for a job
IN_JOB_MESSAGE = "the API works on it"
_SHOWN_COLUMNS = f"{UNIT_IDENTIFIER}, is_context, version, attempts, message"


# by id, which is the order of arrival: sorting a million rows would delay the first one
READ_UNCLAIMED_UNITS = f"""
select {_SHOWN_COLUMNS}, state, due_at, id, digest, {", ".join(UNIT_COLUMNS)} from unit not indexed
where state in (select value from json_each(:states))
    and version <= (select value from meta where name = 'watermark')
    and substr({UNIT_IDENTIFIER}, 1, :length) = :prefix
order by id desc
"""
READ_CLAIMED_BATCHES = f"""
select rows, job is not null, next_poll_at, id, digest, {", ".join(BATCH_COLUMNS)} from batch order by id desc
"""
READ_CLAIMED_UNITS = (
    f"select id, {_SHOWN_COLUMNS} from unit where id in (select value from json_each(?)) order by id desc"
)


class _PendingUnit(NamedTuple):
    """A unit as _SHOWN_COLUMNS selects it."""

    key: str
    is_context: int
    version: int
    attempts: int
    message: str | None


class PendingRow(NamedTuple):
    """A row that isn't settled yet. It ends as a record, unless a newer change replaces it."""

    stage: str  # STAGE_PENDING or STAGE_WAITING
    key: str
    change_type: ChangeType
    stored_row: StoredRow
    version: int
    attempts: int
    next_try_at: float | None  # time of the next attempt, or of the next poll of the job
    message: str | None  # why it hasn't arrived
    is_context: bool = False  # the row only makes room for the rows after it


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class PendingRowReader:
    """A reader of an open queue's pending rows. The caller gives it the format of the queue's units."""

    store: SqliteStore
    unit_kind: UnitKind
    replaces_rows: bool
    is_whole_table: bool

    def read_rows(self, *, stage: str | None = None, prefix: str = "") -> Iterator[PendingRow]:
        """Yield the pending rows of one stage, or of both, whose keys begin with `prefix`.

        Rows in flight come first, then the newest of the others.
        """
        for row in itertools.chain(self._claimed_rows(), self._unclaimed_rows(stage, prefix)):
            if stage in (None, row.stage) and row.key.startswith(prefix):
                yield row

    def _claimed_rows(self) -> Iterator[PendingRow]:
        for text, is_job, next_poll_at, batch, digest, *values in self.store.iterate_rows(READ_CLAIMED_BATCHES):
            check_row_digest(self.store, "batch", batch, values, digest)
            rows_by_unit = parse_batch_rows(str(text))
            stage = STAGE_WAITING if is_job else STAGE_PENDING
            for number, *unit_values in self.store.fetch_rows(
                READ_CLAIMED_UNITS, (orjson.dumps(list(rows_by_unit)).decode(),)
            ):
                version, sent_rows = rows_by_unit[int(number)]
                # the version that was sent: a newer one may wait
                unit = _PendingUnit(*unit_values)._replace(version=version)
                if is_job:
                    unit = unit._replace(message=unit.message or IN_JOB_MESSAGE)
                yield from self._pending_rows(stage, unit, sent_rows, next_poll_at)

    def _unclaimed_rows(self, stage: str | None, prefix: str) -> Iterator[PendingRow]:
        layouts = read_layouts(self.store)
        parameters: dict[str, str | int] = {
            "states": orjson.dumps([STAGE_PENDING, STAGE_WAITING] if stage is None else [stage]).decode(),
            # if a unit is the whole table, its rows are known by their rowids
            "prefix": "" if self.is_whole_table else prefix,
            "length": 0 if self.is_whole_table else len(prefix),
        }
        for row in self.store.iterate_rows(READ_UNCLAIMED_UNITS, parameters):
            field_count = len(_PendingUnit._fields)
            state, due_at, unit, digest, *values = row[field_count:]
            check_unit_digest(self.store, unit, values, digest)
            _, _, _, _, acknowledged, maybe_sent, desired, *_ = values
            sent_rows = find_rows_to_send(KeyState.load(acknowledged, desired, maybe_sent), self.unit_kind, layouts)
            yield from self._pending_rows(state, _PendingUnit(*row[:field_count]), sent_rows, due_at)

    def _pending_rows(
        self, stage: str, unit: _PendingUnit, sent_rows: Sequence[SentRow], next_try_at: float | None
    ) -> Iterator[PendingRow]:
        context = unrecorded_change_types(
            self.unit_kind,
            replaces_rows=self.replaces_rows,
            is_context=bool(unit.is_context),
            has_desired_rows=lambda: any(change_type is not ChangeType.DELETE for change_type, _ in sent_rows),
        )
        shown_rows = [row for row in sent_rows if row.change_type not in context]
        # rows that only make room are shown while they fail, because all rows after them wait
        for change_type, row in shown_rows or (sent_rows if stage == STAGE_WAITING else ()):
            key = str(row.rowid) if self.is_whole_table else unit.key
            is_context = change_type in context
            yield PendingRow(
                stage, key, change_type, row, unit.version, unit.attempts, next_try_at, unit.message, is_context
            )


READ_OLDEST_UNITS = f"""
select {UNIT_IDENTIFIER}, {IS_ON_API} or is_context, {IS_DESIRED} or is_context, attempts, message
from unit
where state in ('pending', 'claimed', 'waiting')
    and version <= (select value from meta where name = 'watermark')
    -- a new row is no unit of its own while the old one is there whose place it takes
    and not (phase = 1 and {IS_ON_API} = 0 and exists (
        select 1 from unit as old
        where old.phase = 0 and old.belongs_to = unit.belongs_to
            and old.state in ('pending', 'claimed', 'waiting')
    ))
order by since, id limit ?
"""


class PendingKey(NamedTuple):
    """A key that must still be delivered."""

    key: str
    operation: UnitOperation
    attempts: int
    error: str  # why it didn't arrive; empty when it wasn't tried


def read_oldest_pending(store: SqliteStore, *, limit: int) -> list[PendingKey]:
    """Return the keys that have waited longest."""
    return [
        PendingKey(
            str(key), operation_of(had_rows=bool(old_rows), has_rows=bool(new_rows)), int(attempts), str(message or "")
        )
        for key, old_rows, new_rows, attempts, message in store.fetch_rows(READ_OLDEST_UNITS, (limit,))
    ]
