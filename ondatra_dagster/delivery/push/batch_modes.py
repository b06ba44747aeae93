"""What push() made of a batch, as one outcome for each of its rows. A mode is a way to read that.

The queue decides what becomes of a row; here is only said what push said.
"""

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Protocol

from ondatra_dagster.delivery.outcome import DELIVERED, NO_ROW, Outcome, ResultKey, Strays
from ondatra_dagster.delivery.push.push_port import Pushed
from ondatra_dagster.errors import PushContractError
from ondatra_dagster.wording import count

_SHOWN = 5  # stray keys in one warning
_SYNC_RETURNS = 'push() returned {}; in batch_mode "sync" it returns {{"rowid:change_type": status}}'
_ATOMIC_RETURNS = 'push() returned {}; in batch_mode "atomic" it returns nothing, or calls fail()'
_ASYNC_RETURNS = 'push() returned {}; in batch_mode "async" it returns a job reference, which is a dict'
_POLL_RETURNS = (
    'poll() ended the job with {}; it ends it with {{"rowid:change_type": status}}, alone or as "per_row"'
)


class Mode(Protocol):
    """Reads what push() returned: the outcome of each of the batch's rows, which are named by `keys`."""

    def __call__(
        self, returned: object, keys: Sequence[ResultKey], *, redact: Callable[[str], str]
    ) -> Pushed: ...


def run_push(
    mode: str, push: Callable[[], object], keys: Sequence[ResultKey], *, redact: Callable[[str], str]
) -> Pushed:
    """One call of push(), and what it made of the batch."""
    try:
        returned = push()
    except PushContractError as error:
        return _raised(error, keys)
    return BATCH_MODES[mode](returned, keys, redact=redact)


def run_poll(
    poll: Callable[[], object],
    keys: Sequence[ResultKey],
    *,
    redact: Callable[[str], str],
    is_outage: Callable[[], bool],
) -> Pushed:
    """One call of poll(): the job is open, or the outcome of each row."""
    try:
        returned = poll()
    except PushContractError as error:
        if is_outage():  # then it couldn't know
            return Pushed(outcomes={}, is_open=True, warnings=(str(error),))
        return _raised(error, keys)
    if returned is None:
        return Pushed(outcomes={}, is_open=True)
    if isinstance(returned, Mapping) and "done" in returned:
        if not returned["done"]:
            return Pushed(outcomes={}, is_open=True)
        returned = returned.get("per_row")
    return _of_statuses(returned, keys, redact, _POLL_RETURNS)


def _raised(error: PushContractError, keys: Sequence[ResultKey]) -> Pushed:
    return Pushed(outcomes=of_all(keys, Outcome.unstated(str(error))), has_raised=True)


def _sync(returned: object, keys: Sequence[ResultKey], *, redact: Callable[[str], str]) -> Pushed:
    """Each row has a status of its own."""
    return _of_statuses(returned, keys, redact, _SYNC_RETURNS)


def _atomic(returned: object, keys: Sequence[ResultKey], *, redact: Callable[[str], str]) -> Pushed:
    """All rows have one outcome."""
    if returned is None:
        return Pushed(outcomes=of_all(keys, DELIVERED))
    return _of_none(returned, keys, redact, _ATOMIC_RETURNS)


def _async(returned: object, keys: Sequence[ResultKey], *, redact: Callable[[str], str]) -> Pushed:
    """The rows are a job now, which poll() is asked about."""
    if not isinstance(returned, Mapping):
        return _of_none(returned, keys, redact, _ASYNC_RETURNS)
    # poll() gets just this: a reference that a variable's value stands in by chance finds no job once masked
    job, masked = json.dumps(returned), json.dumps(_masked(returned, redact))
    return Pushed(outcomes={}, job=job, masked_job=None if masked == job else masked, is_open=True)


def _of_statuses(
    returned: object, keys: Sequence[ResultKey], redact: Callable[[str], str], expected: str
) -> Pushed:
    if not isinstance(returned, Mapping):
        return _of_none(returned, keys, redact, expected)
    strays = _strays(returned, frozenset(keys), redact)
    example = next((key for key in keys if key not in returned), NO_ROW)

    def outcome(key: ResultKey) -> Outcome:
        if key in returned:
            return _outcome(returned[key], redact)
        return Outcome.misnamed(strays, example) if strays else Outcome.missing(key)

    return Pushed(
        outcomes={key: outcome(key) for key in keys}, warnings=(_warning(strays),) if strays else ()
    )


def of_all(keys: Sequence[ResultKey], outcome: Outcome) -> Mapping[ResultKey, Outcome]:
    """The same outcome for every row of a batch, and for the batch itself where it has none."""
    return dict.fromkeys(keys or (NO_ROW,), outcome)


def _outcome(status: object, redact: Callable[[str], str]) -> Outcome:
    if status == "ok":
        return DELIVERED
    # an API may answer with what it was sent, and push() likes to put the answer into the message
    return Outcome.parse(redact(str(status)))


def _of_none(
    returned: object, keys: Sequence[ResultKey], redact: Callable[[str], str], expected: str
) -> Pushed:
    """The result when nothing can be told of any row."""
    # masked before it is cut: a part of a secret isn't found any more
    what = "nothing" if returned is None else redact(repr(returned))[:100]
    return Pushed(outcomes=of_all(keys, Outcome.unstated(expected.format(what))))


def _masked(value: object, redact: Callable[[str], str]) -> object:
    """The value without secrets."""
    if isinstance(value, str):
        return redact(value)
    if isinstance(value, Mapping):
        return {_masked(key, redact): _masked(each, redact) for key, each in value.items()}
    return [_masked(each, redact) for each in value] if isinstance(value, list | tuple) else value


def _strays(
    returned: Mapping[object, object], keys: Collection[object], redact: Callable[[str], str]
) -> Strays | None:
    """Return the keys that push() returned and the batch doesn't have; None when there are none."""
    strays = [key for key in returned if key not in keys]
    return Strays(len(strays), tuple(redact(repr(key))[:80] for key in strays[:_SHOWN])) if strays else None


def _warning(strays: Strays) -> str:
    rows = count(strays.number, "row")
    return f"push() returned a status for {rows} that the batch doesn't have: {', '.join(strays.shown)}"


BATCH_MODES: Mapping[str, Mode] = {"sync": _sync, "atomic": _atomic, "async": _async}
