"""The parsing of what push() and poll() return, by batch_mode: one outcome for each row of the batch.

What an outcome means for a row is up to the queue.
"""

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Protocol

from ondatra_dagster.delivery.push.push_interface import PushResult
from ondatra_dagster.delivery.row_outcome import DELIVERED_OUTCOME, NO_ROW_KEY, ResultKey, RowOutcome, UnknownResultKeys
from ondatra_dagster.errors import PushContractError
from ondatra_dagster.text_format import format_count

_MAX_KEYS_SHOWN = 5  # stray keys in one warning
_SYNC_RETURNS = 'push() returned {}; in batch_mode "sync" it returns {{"rowid:change_type": status}}'
_ATOMIC_RETURNS = 'push() returned {}; in batch_mode "atomic" it returns nothing, or calls fail()'
_ASYNC_RETURNS = 'push() returned {}; in batch_mode "async" it returns a job reference, which is a dict'
_POLL_RETURNS = 'poll() ended the job with {}; it ends it with {{"rowid:change_type": status}}, alone or as "per_row"'


class ReturnValueParser(Protocol):
    """A parser of what push() returned, for the batch's rows, whose names are in `keys`."""

    def __call__(self, returned: object, keys: Sequence[ResultKey], *, redact: Callable[[str], str]) -> PushResult: ...


def parse_poll_return(returned: object, keys: Sequence[ResultKey], *, redact: Callable[[str], str]) -> PushResult:
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


def _parse_sync(returned: object, keys: Sequence[ResultKey], *, redact: Callable[[str], str]) -> PushResult:
    """Return each row's own status."""
    return _parse_statuses(returned, keys, redact, _SYNC_RETURNS)


def _parse_atomic(returned: object, keys: Sequence[ResultKey], *, redact: Callable[[str], str]) -> PushResult:
    """Return one outcome for all rows."""
    if returned is None:
        return PushResult(outcomes=repeat_outcome(keys, DELIVERED_OUTCOME))
    return _unusable_result(returned, keys, redact, _ATOMIC_RETURNS)


def _parse_async(returned: object, keys: Sequence[ResultKey], *, redact: Callable[[str], str]) -> PushResult:
    """Return a job of the rows, which poll() is called for."""
    if not isinstance(returned, Mapping):
        return _unusable_result(returned, keys, redact, _ASYNC_RETURNS)
    # poll() gets just this: a reference that a variable's value stands in by chance finds no job once masked
    job, masked = json.dumps(returned), json.dumps(_mask_secrets(returned, redact))
    return PushResult(
        outcomes={}, job_reference=job, masked_job_reference=None if masked == job else masked, is_open=True
    )


def _parse_statuses(
    returned: object, keys: Sequence[ResultKey], redact: Callable[[str], str], expected: str
) -> PushResult:
    if not isinstance(returned, Mapping):
        return _unusable_result(returned, keys, redact, expected)
    strays = _find_unknown_keys(returned, frozenset(keys), redact)
    example = next((key for key in keys if key not in returned), NO_ROW_KEY)

    def outcome(key: ResultKey) -> RowOutcome:
        if key in returned:
            return _parse_status(returned[key], redact)
        return RowOutcome.for_unknown_keys(strays, example) if strays else RowOutcome.for_missing_status(key)

    return PushResult(
        outcomes={key: outcome(key) for key in keys}, warnings=(_unknown_keys_warning(strays),) if strays else ()
    )


def repeat_outcome(keys: Sequence[ResultKey], outcome: RowOutcome) -> Mapping[ResultKey, RowOutcome]:
    """Return the same outcome for every row of a batch, and for the batch itself where it has none."""
    return dict.fromkeys(keys or (NO_ROW_KEY,), outcome)


def _parse_status(status: object, redact: Callable[[str], str]) -> RowOutcome:
    if status == "ok":
        return DELIVERED_OUTCOME
    # an API may answer with what it was sent, and push() likes to put the answer into the message
    return RowOutcome.parse_status(redact(str(status)))


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


def _find_unknown_keys(
    returned: Mapping[object, object], keys: Collection[object], redact: Callable[[str], str]
) -> UnknownResultKeys | None:
    """Return the keys that push() returned and the batch doesn't have; None when there are none."""
    strays = [key for key in returned if key not in keys]
    return (
        UnknownResultKeys(len(strays), tuple(redact(repr(key))[:80] for key in strays[:_MAX_KEYS_SHOWN]))
        if strays
        else None
    )


def _unknown_keys_warning(strays: UnknownResultKeys) -> str:
    rows = format_count(strays.number, "row")
    return f"push() returned a status for {rows} that the batch doesn't have: {', '.join(strays.examples)}"


PARSERS_BY_BATCH_MODE: Mapping[str, ReturnValueParser] = {
    "sync": _parse_sync,
    "atomic": _parse_atomic,
    "async": _parse_async,
}
