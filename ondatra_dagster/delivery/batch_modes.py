"""What push() returned, as one outcome for each row of its batch. A mode is a way to read that.

The queue decides what becomes of a row; here is only said what push said.
"""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from ondatra_dagster.delivery.outcome import DELIVERED, NO_ROW, Outcome, ResultKey
from ondatra_dagster.errors import PushContractError

_SHOWN = 5  # stray keys in one warning


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class BatchResult:
    """The outcome of every row of a batch, by its result key."""

    outcomes: Mapping[ResultKey, Outcome]
    warnings: tuple[str, ...] = ()
    has_raised: bool = False


class Mode(Protocol):
    """Calls push() through `push` and gives each of the batch's rows, named by `keys`, its outcome."""

    def __call__(
        self, push: Callable[[], object], keys: Sequence[ResultKey], *, redact: Callable[[str], str]
    ) -> BatchResult: ...


def run_sync(
    push: Callable[[], object], keys: Sequence[ResultKey], *, redact: Callable[[str], str]
) -> BatchResult:
    """Each row has a status of its own."""
    try:
        returned = push()
    except PushContractError as error:
        return BatchResult(outcomes=of_all(keys, Outcome.unstated(str(error))), has_raised=True)
    if not isinstance(returned, Mapping):
        return BatchResult(outcomes=of_all(keys, Outcome.unstated(_not_a_dict(returned, redact))))
    outcomes = {
        key: _outcome(returned[key], redact) if key in returned else Outcome.missing(key) for key in keys
    }
    return BatchResult(outcomes=outcomes, warnings=tuple(_strays(returned, outcomes, redact)))


def of_all(keys: Sequence[ResultKey], outcome: Outcome) -> Mapping[ResultKey, Outcome]:
    """The same outcome for every row of a batch, and for the batch itself where it has none."""
    return dict.fromkeys(keys or (NO_ROW,), outcome)


def _outcome(status: object, redact: Callable[[str], str]) -> Outcome:
    if status == "ok":
        return DELIVERED
    # an API may answer with what it was sent, and push() likes to put the answer into the message
    return Outcome.parse(redact(str(status)))


# what is shown of a value is cut when it is masked: a part of a secret isn't found any more


def _not_a_dict(returned: object, redact: Callable[[str], str]) -> str:
    what = "nothing" if returned is None else redact(repr(returned))[:100]
    return f'push() returned {what}; in batch_mode "sync" it returns {{"rowid:change_type": status}}'


def _strays(
    returned: Mapping[object, object], outcomes: Mapping[ResultKey, Outcome], redact: Callable[[str], str]
) -> Sequence[str]:
    strays = [key for key in returned if key not in outcomes]
    if not strays:
        return []
    shown = ", ".join(redact(repr(key))[:80] for key in strays[:_SHOWN])
    return [f"push() returned a status for {len(strays)} rows that the batch doesn't have: {shown}"]


BATCH_MODES: Mapping[str, Mode] = {"sync": run_sync}
