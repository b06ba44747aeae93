"""The rows that a queue has still to bring to an end, one by one, for those who only look."""

import dataclasses
import itertools
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import orjson

from ondatra_dagster.changes import ChangeType, Layout
from ondatra_dagster.delivery.queue.claim import frozen_rows
from ondatra_dagster.delivery.queue.context_rows import untold
from ondatra_dagster.delivery.queue.digests import BATCH_COLUMNS, UNIT_COLUMNS, check_row, check_unit
from ondatra_dagster.delivery.queue.tables import IDENTIFIER, read_layouts
from ondatra_dagster.delivery.target import ImageRow, SentRow, Shape, Standing, to_send
from ondatra_dagster.store.database import Store

PENDING = "pending"  # not tried yet, or on its way
WAITING = "waiting"  # for its next try, or for a job
IN_A_JOB = "the API works on it"

_TOLD = f"{IDENTIFIER}, is_context, version, attempts, message"
# by id, which is by the time of coming: to sort a million rows would keep the first one waiting
FREE = f"""
select {_TOLD}, state, due_at, id, digest, {", ".join(UNIT_COLUMNS)} from unit not indexed
where state in (select value from json_each(:states))
    and version <= (select value from meta where name = 'watermark')
    and substr({IDENTIFIER}, 1, :length) = :prefix
order by id desc
"""
BATCHES = f"""
select rows, job is not null, next_poll_at, id, digest, {", ".join(BATCH_COLUMNS)} from batch order by id desc
"""
CLAIMED = f"select id, {_TOLD} from unit where id in (select value from json_each(?)) order by id desc"


class _Unit(NamedTuple):
    """What _TOLD selects."""

    key: str
    is_context: int
    version: int
    attempts: int
    message: str | None


class UnsettledRow(NamedTuple):
    """One row that will end as a record, unless a newer change takes its place."""

    stage: str  # PENDING or WAITING
    key: str
    change_type: ChangeType
    row: ImageRow
    version: int
    attempts: int
    next_try_at: float | None  # or when a job is asked about
    message: str | None  # why it hasn't arrived
    is_context: bool = False  # it only makes room for what comes after it


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class QueueLook:
    """An open queue with what its file doesn't say of its units."""

    store: Store
    shape: Shape
    replaces_rows: bool
    is_whole_table: bool

    def unsettled(self, *, stage: str | None = None, prefix: str = "") -> Iterator[UnsettledRow]:
        """The rows of a stage, or of both: those on their way first, then what came last."""
        for row in itertools.chain(self._claimed(), self._free(stage, prefix)):
            if stage in (None, row.stage) and row.key.startswith(prefix):
                yield row

    def _claimed(self) -> Iterator[UnsettledRow]:
        for text, is_job, next_poll_at, batch, digest, *values in self.store.each(BATCHES):
            check_row(self.store, "batch", batch, values, digest)
            frozen = frozen_rows(str(text))
            stage = WAITING if is_job else PENDING
            for number, *told in self.store.rows(CLAIMED, (orjson.dumps(list(frozen)).decode(),)):
                version, sent = frozen[int(number)]
                unit = _Unit(*told)._replace(version=version)  # as it was sent: a newer one may wait beside
                if is_job:
                    unit = unit._replace(message=unit.message or IN_A_JOB)
                yield from self._told(stage, unit, sent, next_poll_at)

    def _free(self, stage: str | None, prefix: str) -> Iterator[UnsettledRow]:
        layouts = read_layouts(self.store)
        wanted: dict[str, str | int] = {
            "states": orjson.dumps([PENDING, WAITING] if stage is None else [stage]).decode(),
            # where a unit is the whole table, its rows are known by their rowids
            "prefix": "" if self.is_whole_table else prefix,
            "length": 0 if self.is_whole_table else len(prefix),
        }
        for row in self.store.each(FREE, wanted):
            told, (state, due_at, unit, digest, *values) = (
                row[: len(_Unit._fields)],
                row[len(_Unit._fields) :],
            )
            check_unit(self.store, unit, values, digest)
            _, _, _, _, base, tried, target, *_ = values
            yield from self._told(state, _Unit(*told), self._to_send(base, tried, target, layouts), due_at)

    def _to_send(
        self, base: str, tried: str | None, target: str, layouts: dict[int, Layout]
    ) -> Sequence[SentRow]:
        return to_send(Standing.load(base, target, tried), self.shape, layouts)

    def _told(
        self, stage: str, unit: _Unit, sent: Sequence[SentRow], next_try_at: float | None
    ) -> Iterator[UnsettledRow]:
        context = untold(
            self.shape,
            replaces_rows=self.replaces_rows,
            is_context=bool(unit.is_context),
            has_target=lambda: any(change_type is not ChangeType.DELETE for change_type, _ in sent),
        )
        shown = [row for row in sent if row.change_type not in context]
        # what only makes room is shown while it fails to: all that comes after it is kept waiting
        for change_type, row in shown or (sent if stage == WAITING else ()):
            key = str(row.rowid) if self.is_whole_table else unit.key
            is_context = change_type in context
            yield UnsettledRow(
                stage,
                key,
                change_type,
                row,
                unit.version,
                unit.attempts,
                next_try_at,
                unit.message,
                is_context,
            )
