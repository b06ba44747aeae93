"""Which answers are worth another try, and how long to wait before it. Pure: time and chance are given."""

import email.utils
from collections.abc import Callable
from datetime import UTC

RETRY_AFTER_CAP_SECONDS = 60.0
NO_ANSWER = 0
_MOST_DOUBLINGS = 1_000  # a float has no room for more


def is_retryable(status_code: int) -> bool:
    """No answer, 408, 429 and 5xx: the server may well take the same request later."""
    return status_code in {NO_ANSWER, 408, 429} or status_code >= 500


def wait_seconds(
    tries: int,
    *,
    backoff_seconds: float,
    retry_after: str | None,
    now: float,
    random: Callable[[], float],
) -> float:
    """How long to wait after so many tries: what the server asks for, else twice as long each time.

    Half to one and a half times the doubled back-off, so that many clients don't come back at one moment.
    """
    asked = retry_after_seconds(retry_after, now=now)
    if asked is not None:
        return asked
    doubled = backoff_seconds * 2.0 ** min(tries - 1, _MOST_DOUBLINGS)
    return min(doubled, RETRY_AFTER_CAP_SECONDS) * (0.5 + random())


def retry_after_seconds(header: str | None, *, now: float) -> float | None:
    """The seconds that a Retry-After header asks for, in either form, at most 60; None: it says nothing."""
    if header is None:
        return None
    text = header.strip()
    if text.isascii() and text.isdigit():
        return min(float(text), RETRY_AFTER_CAP_SECONDS)
    try:
        moment = email.utils.parsedate_to_datetime(text)
        if moment.tzinfo is None:
            moment = moment.replace(tzinfo=UTC)
        return min(max(moment.timestamp() - now, 0.0), RETRY_AFTER_CAP_SECONDS)
    except (ValueError, OverflowError):  # of an offset that no clock has
        return None
