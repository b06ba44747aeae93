"""Finds the rows for which an API refuses a whole batch: halves are sent until the bad ones stand alone."""

from collections.abc import Callable, Mapping

from ondatra_dagster.delivery.outcome import Outcome, ResultKey, Verdict
from ondatra_dagster.delivery.push.push_port import Parcel, Pushed

# of these the rows are no cause: who calls, where to, and when
NOT_THE_ROWS = frozenset({401, 403, 404, 408, 429})


def is_refusal(status_code: int | None) -> bool:
    """Whether an answer of this status says that what was sent can't be taken as it is."""
    return status_code is not None and 400 <= status_code < 500 and status_code not in NOT_THE_ROWS


def bisect(
    parcel: Parcel, push: Callable[[Parcel], Pushed], *, last_status: Callable[[], int | None]
) -> Pushed:
    """What became of each row, once no refused part can be halved any more.

    Units aren't split: one that is refused alone is rejected. After a crash the same halves are made again,
    from the same answers.
    """
    result = push(parcel)
    if not result.has_raised or not is_refusal(last_status()):
        return result
    if parcel.is_one_key:
        return result._replace(outcomes=_rejected(result.outcomes))
    first, second = (bisect(half, push, last_status=last_status) for half in parcel.halves())
    return Pushed(
        outcomes={**first.outcomes, **second.outcomes},
        warnings=(*first.warnings, *second.warnings),
        has_raised=first.has_raised or second.has_raised,
    )


def _rejected(outcomes: Mapping[ResultKey, Outcome]) -> dict[ResultKey, Outcome]:
    return {key: Outcome(Verdict.REJECT, outcome.message) for key, outcome in outcomes.items()}
