"""The interface between the delivery and the user's push functions: the batch they get, and what they return.

What push() and poll() return is parsed by batch_mode, to one outcome for each row of the batch.
"""

import dataclasses
import json
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, Protocol, Self

import orjson

from ondatra_dagster.count_time_and_size_format import format_count
from ondatra_dagster.delivery.queue.claimed_batches import Batch, BatchUnit, group_by_key
from ondatra_dagster.delivery.response_journal import ResponseJournal
from ondatra_dagster.delivery.row_outcome import DELIVERED_OUTCOME, NO_ROW_KEY, ResultKey, RowOutcome
from ondatra_dagster.errors import PushContractError
from ondatra_dagster.row_changes import Column, Layout


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class PushBatch:
    """A batch, or a part of one, as push() gets it."""

    number: int  # of the batch in its run
    layout: Layout  # of the columns
    rows_json: str  # the rows as columnar JSON
    result_keys: Sequence[ResultKey]  # the name of each row's status
    units: Sequence[BatchUnit]
    layouts: Mapping[int, Layout]

    @classmethod
    def from_batch(cls, batch: Batch, layouts: Mapping[int, Layout]) -> Self:
        """Return the whole batch. Rows of an older layout get the newest one: a column that they lack is null."""
        newest = max([row.row.layout_id for unit in batch.units for row in unit.sent_rows], default=max(layouts))
        return cls._from_units(batch.units, batch.number, layouts[newest], layouts)

    def split_in_half(self) -> tuple[Self, Self]:
        """Return its keys in two parts, in their order."""
        keys = group_by_key(self.units)
        parts = keys[: len(keys) // 2], keys[len(keys) // 2 :]
        first, second = (
            self._from_units([unit for units in part for unit in units], self.number, self.layout, self.layouts)
            for part in parts
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
    unanswered_calls: int = 0  # calls of which at some try nobody answered
    is_outage: bool = False  # every call ended without an answer, or with 408, 429 or 5xx
    job_reference: str | None = None  # what push() made of the batch in place of outcomes: a reference, as JSON
    masked_job_reference: str | None = None  # the reference without secrets; None: there are none in it
    is_open: bool = False  # there is a job, which hasn't ended
    warnings: tuple[str, ...] = ()  # about what the function returned
    has_raised: bool = False  # the function ended without an answer
    is_answered: bool = True  # a try of a call was answered, if only by a failure


class BatchSink(Protocol):
    """A caller of the user's functions. Several threads may use it at once, each with its own journal."""

    def __call__(self, parcel: PushBatch, journal: ResponseJournal) -> PushResult:
        """Return the outcome of each of the batch's rows, whatever happens.

        A call that was answered before a crash gets its answer from the journal.
        """

    def poll(self, parcel: PushBatch, job: str) -> PushResult:
        """Return the state of the job that was made of the batch."""

    def finalize(self, succeeded: int, failed: int, *, columns: Sequence[Column], journal: ResponseJournal) -> None:
        """Call finalize() with these sums; PushContractError when it failed."""


_MAX_KEYS_SHOWN = 5  # stray keys in one warning
_SYNC_RETURNS = 'push() returned {}; in batch_mode "sync" it returns {{"rowid:change_type": status}}'
_ATOMIC_RETURNS = 'push() returned {}; in batch_mode "atomic" it returns nothing, or calls fail()'
_ASYNC_RETURNS = 'push() returned {}; in batch_mode "async" it returns a job reference, which is a dict'
_POLL_RETURNS = 'poll() ended the job with {}; it ends it with {{"rowid:change_type": status}}, alone or as "per_row"'


def parse_push_return(
    batch_mode: str, returned: object, keys: Sequence[ResultKey], redact: Callable[[str], str]
) -> PushResult:
    """Return each row's own status, one outcome for all rows, or a job of them, which poll() is called for."""
    if batch_mode == "sync":
        return _parse_statuses(returned, keys, redact, _SYNC_RETURNS)
    if batch_mode == "atomic":
        if returned is None:
            return PushResult(outcomes=repeat_outcome(keys, DELIVERED_OUTCOME))
        return _unusable_result(returned, keys, redact, _ATOMIC_RETURNS)
    if not isinstance(returned, Mapping):
        return _unusable_result(returned, keys, redact, _ASYNC_RETURNS)
    # poll() gets just this: a reference that a variable's value stands in by chance finds no job once masked
    job, masked = json.dumps(returned), json.dumps(_mask_secrets(returned, redact))
    return PushResult(
        outcomes={}, job_reference=job, masked_job_reference=None if masked == job else masked, is_open=True
    )


def parse_poll_return(returned: object, keys: Sequence[ResultKey], redact: Callable[[str], str]) -> PushResult:
    """Return an open job, or the outcome of each row."""
    if returned is None:
        return PushResult(outcomes={}, is_open=True)
    if isinstance(returned, Mapping) and "done" in returned:
        if not returned["done"]:
            return PushResult(outcomes={}, is_open=True)
        returned = returned.get("per_row")
    return _parse_statuses(returned, keys, redact, _POLL_RETURNS)


def parse_error(error: PushContractError, keys: Sequence[ResultKey]) -> PushResult:
    """Return the result of a push() or poll() that raised."""
    return PushResult(outcomes=repeat_outcome(keys, RowOutcome.implicit_error(str(error))), has_raised=True)


def _parse_statuses(
    returned: object, keys: Sequence[ResultKey], redact: Callable[[str], str], expected: str
) -> PushResult:
    if not isinstance(returned, Mapping):
        return _unusable_result(returned, keys, redact, expected)
    known = frozenset(keys)
    unknown = [key for key in returned if key not in known]
    examples = tuple(redact(repr(key))[:80] for key in unknown[:_MAX_KEYS_SHOWN])
    example = next((key for key in keys if key not in returned), NO_ROW_KEY)

    def outcome(key: ResultKey) -> RowOutcome:
        if key in returned:
            # an API may answer with what it was sent, and push() likes to put the answer into the message
            status = returned[key]
            return DELIVERED_OUTCOME if status == "ok" else RowOutcome.parse_status(redact(str(status)))
        if unknown:
            return RowOutcome.for_unknown_keys(len(unknown), examples[0], example)
        return RowOutcome.for_missing_status(key)

    rows = format_count(len(unknown), "row")
    warning = f"push() returned a status for {rows} that the batch doesn't have: {', '.join(examples)}"
    return PushResult(outcomes={key: outcome(key) for key in keys}, warnings=(warning,) if unknown else ())


def repeat_outcome(keys: Sequence[ResultKey], outcome: RowOutcome) -> Mapping[ResultKey, RowOutcome]:
    """Return the same outcome for every row of a batch, and for the batch itself where it has none."""
    return dict.fromkeys(keys or (NO_ROW_KEY,), outcome)


def _unusable_result(
    returned: object, keys: Sequence[ResultKey], redact: Callable[[str], str], expected: str
) -> PushResult:
    """Return the result of a value that tells nothing about any row."""
    # masked before it is cut: a part of a secret isn't found any more
    what = "nothing" if returned is None else redact(repr(returned))[:100]
    return PushResult(outcomes=repeat_outcome(keys, RowOutcome.implicit_error(expected.format(what))))


def _mask_secrets(value: object, redact: Callable[[str], str]) -> object:
    """Return the value without secrets."""
    if isinstance(value, str):
        return redact(value)
    if isinstance(value, Mapping):
        return {_mask_secrets(key, redact): _mask_secrets(each, redact) for key, each in value.items()}
    return [_mask_secrets(each, redact) for each in value] if isinstance(value, list | tuple) else value
