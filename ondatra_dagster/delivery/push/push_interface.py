"""The interface between the delivery and the user's push functions: the batch they get, and the values they return.

push_return_values.py parses the return values of push() and poll().
"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol, Self

import orjson

from ondatra_dagster.delivery.queue.claimed_batches import Batch, BatchUnit, group_by_key
from ondatra_dagster.delivery.response_journal import ResponseJournal
from ondatra_dagster.delivery.row_outcome import ResultKey, RowOutcome
from ondatra_dagster.row_changes import Column, Layout


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class PushBatch:
    """A batch, or a part of a batch, in the form that push() gets."""

    number: int  # the batch's number in its run
    layout: Layout  # the layout of all rows here
    rows_json: str  # the rows as columnar JSON
    result_keys: Sequence[ResultKey]  # the key of each row's status
    units: Sequence[BatchUnit]
    layouts: Mapping[int, Layout]

    @classmethod
    def from_batch(cls, batch: Batch, layouts: Mapping[int, Layout]) -> Self:
        """Return the whole batch in the form that push() gets.

        Rows of an older layout get the newest one, with null for missing columns.
        """
        newest_id = max([row.row.layout_id for unit in batch.units for row in unit.sent_rows], default=max(layouts))
        return cls._from_units(batch.units, batch.number, layouts[newest_id], layouts)

    def split_in_half(self) -> tuple[Self, Self]:
        """Return two batches, each with half of this batch's keys, in their order."""
        keys = group_by_key(self.units)
        halves = keys[: len(keys) // 2], keys[len(keys) // 2 :]
        first, second = (
            self._from_units([unit for units in half for unit in units], self.number, self.layout, self.layouts)
            for half in halves
        )
        return first, second

    @classmethod
    def _from_units(
        cls, units: Sequence[BatchUnit], number: int, layout: Layout, layouts: Mapping[int, Layout]
    ) -> Self:
        keys, rows = [], []
        for unit in units:
            for change_type, row in unit.sent_rows:
                rowid, number_of_layout, payload = row
                keys.append(f"{rowid}:{change_type}")
                if layouts[number_of_layout] is not layout:
                    content = layouts[number_of_layout].parse_row(payload)
                    payload = orjson.dumps([content.get(name) for name in layout.names]).decode()
                rows.append(f'{payload[:-1]},{rowid},"{change_type}"]')
        names = orjson.dumps([*layout.names, "__ondatra_rowid", "__ondatra_change_type"]).decode()
        text = f'{{"columns":{names},"rows":[{",".join(rows)}]}}'
        return cls(number=number, layout=layout, rows_json=text, result_keys=keys, units=units, layouts=layouts)


class PushResult(NamedTuple):
    """The result of pushing a batch or polling its job."""

    outcomes: Mapping[ResultKey, RowOutcome]
    calls: int = 0
    unanswered_calls: int = 0  # calls with an unanswered attempt
    is_outage: bool = False  # every call ended without an answer, or with 408, 429 or 5xx
    job_reference: str | None = None  # the reference that push() returned instead of outcomes, as JSON
    masked_job_reference: str | None = None  # the reference without secrets; None if it has no secrets
    is_open: bool = False  # there is a job that hasn't ended
    warnings: tuple[str, ...] = ()  # about what the function returned
    has_raised: bool = False  # the function raised an error
    is_answered: bool = True  # an attempt of a call was answered, if only by a failure


class BatchSink(Protocol):
    """A caller of the user's functions. Several threads may use it at once, each with its own journal."""

    def __call__(self, parcel: PushBatch, journal: ResponseJournal) -> PushResult:
        """Push a batch, and return an outcome for each of its rows, whatever happens.

        A call that was answered before a crash gets its response from the journal.
        """

    def poll(self, parcel: PushBatch, job: str) -> PushResult:
        """Poll the job that the API made of the batch; return its state, and the rows' outcomes if it has ended."""

    def finalize(self, succeeded: int, failed: int, *, columns: Sequence[Column], journal: ResponseJournal) -> None:
        """Call finalize() with the numbers of succeeded and failed units; raise PushContractError if it fails."""
