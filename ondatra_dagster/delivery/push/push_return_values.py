"""The parsing of the return values of push() and poll(), into one outcome for each row of the batch."""

import json
from collections.abc import Callable, Mapping, Sequence

from ondatra_dagster.count_time_and_size_format import format_count
from ondatra_dagster.delivery.push.push_interface import PushResult
from ondatra_dagster.delivery.row_outcome import DELIVERED_OUTCOME, NO_ROW_KEY, ResultKey, RowOutcome
from ondatra_dagster.errors import PushContractError

_MAX_KEYS_SHOWN = 5  # unknown keys in one warning
_SYNC_RETURNS = 'push() returned {}; in batch_mode "sync" it returns {{"rowid:change_type": status}}'
_ATOMIC_RETURNS = 'push() returned {}; in batch_mode "atomic" it returns nothing, or calls fail()'
_ASYNC_RETURNS = 'push() returned {}; in batch_mode "async" it returns a job reference, which is a dict'
_POLL_RETURNS = 'poll() ended the job with {}; it ends it with {{"rowid:change_type": status}}, alone or as "per_row"'


def parse_push_return(
    batch_mode: str, return_value: object, keys: Sequence[ResultKey], redact: Callable[[str], str]
) -> PushResult:
    """Return the result of push(): a status for each row, one outcome for all rows, or a job for poll()."""
    if batch_mode == "sync":
        return _parse_statuses(return_value, keys, redact, _SYNC_RETURNS)
    if batch_mode == "atomic":
        if return_value is None:
            return PushResult(outcomes=repeat_outcome(keys, DELIVERED_OUTCOME))
        return _unusable_result(return_value, keys, redact, _ATOMIC_RETURNS)
    if not isinstance(return_value, Mapping):
        return _unusable_result(return_value, keys, redact, _ASYNC_RETURNS)
    # poll() gets the unmasked reference. If a variable's value is in it by chance, the masked reference finds no
    # job.
    job, masked_job = json.dumps(return_value), json.dumps(_mask_secrets(return_value, redact))
    return PushResult(
        outcomes={}, job_reference=job, masked_job_reference=None if masked_job == job else masked_job, is_open=True
    )


def parse_poll_return(return_value: object, keys: Sequence[ResultKey], redact: Callable[[str], str]) -> PushResult:
    """Return the result of poll(): the job is still open, or it has ended with an outcome for each row."""
    if return_value is None:
        return PushResult(outcomes={}, is_open=True)
    if isinstance(return_value, Mapping) and "done" in return_value:
        if not return_value["done"]:
            return PushResult(outcomes={}, is_open=True)
        return_value = return_value.get("per_row")
    return _parse_statuses(return_value, keys, redact, _POLL_RETURNS)


def parse_error(error: PushContractError, keys: Sequence[ResultKey]) -> PushResult:
    """Return the result of a push() or poll() that raised an error."""
    return PushResult(outcomes=repeat_outcome(keys, RowOutcome.implicit_error(str(error))), has_raised=True)


def _parse_statuses(
    return_value: object, keys: Sequence[ResultKey], redact: Callable[[str], str], expected_text: str
) -> PushResult:
    if not isinstance(return_value, Mapping):
        return _unusable_result(return_value, keys, redact, expected_text)
    known_keys = frozenset(keys)
    unknown_keys = [key for key in return_value if key not in known_keys]
    examples = tuple(redact(repr(key))[:80] for key in unknown_keys[:_MAX_KEYS_SHOWN])
    example = next((key for key in keys if key not in return_value), NO_ROW_KEY)

    def parse_outcome(key: ResultKey) -> RowOutcome:
        if key in return_value:
            # an API may return what it was sent, and push() may put that answer into the message
            status = return_value[key]
            return DELIVERED_OUTCOME if status == "ok" else RowOutcome.parse_status(redact(str(status)))
        if unknown_keys:
            return RowOutcome.for_unknown_keys(len(unknown_keys), examples[0], example)
        return RowOutcome.for_missing_status(key)

    rows = format_count(len(unknown_keys), "row")
    warning = f"push() returned a status for {rows} that the batch doesn't have: {', '.join(examples)}"
    return PushResult(outcomes={key: parse_outcome(key) for key in keys}, warnings=(warning,) if unknown_keys else ())


def repeat_outcome(keys: Sequence[ResultKey], outcome: RowOutcome) -> Mapping[ResultKey, RowOutcome]:
    """Return the same outcome for every row of a batch; a batch without rows gets one outcome for itself."""
    return dict.fromkeys(keys or (NO_ROW_KEY,), outcome)


def _unusable_result(
    return_value: object, keys: Sequence[ResultKey], redact: Callable[[str], str], expected_text: str
) -> PushResult:
    """Return the result for a return value that says nothing about any row: an error for every row."""
    # masked before it is cut: a part of a secret isn't found
    returned_text = "nothing" if return_value is None else redact(repr(return_value))[:100]
    return PushResult(outcomes=repeat_outcome(keys, RowOutcome.implicit_error(expected_text.format(returned_text))))


def _mask_secrets(value: object, redact: Callable[[str], str]) -> object:
    """Return the value with the secrets masked in all its texts."""
    if isinstance(value, str):
        return redact(value)
    if isinstance(value, Mapping):
        return {_mask_secrets(key, redact): _mask_secrets(item, redact) for key, item in value.items()}
    return [_mask_secrets(item, redact) for item in value] if isinstance(value, list | tuple) else value
