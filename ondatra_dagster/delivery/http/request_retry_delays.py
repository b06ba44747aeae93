"""The delays before an HTTP request is retried, with Retry-After headers."""

import email.utils
from collections.abc import Callable
from datetime import UTC

RETRY_AFTER_CAP_SECONDS = 60.0
_MAX_DOUBLINGS = 1_000  # a float can't hold more


def request_retry_seconds(
    tries: int, *, backoff_seconds: float, retry_after: str | None, now: float, random: Callable[[], float]
) -> float:
    """Return the seconds to wait after attempt number `tries`.

    A Retry-After header of the server decides. Without one, the wait doubles with each attempt. It is multiplied by
    a random factor from 0.5 to 1.5, so that many clients don't retry at the same moment.
    """
    requested_seconds = parse_retry_after(retry_after, now=now)
    if requested_seconds is not None:
        return requested_seconds
    delay_seconds = backoff_seconds * 2.0 ** min(tries - 1, _MAX_DOUBLINGS)
    return min(delay_seconds, RETRY_AFTER_CAP_SECONDS) * (0.5 + random())


def parse_retry_after(header: str | None, *, now: float) -> float | None:
    """Return the seconds that a Retry-After header asks for, at most 60; None if it asks for none.

    The header has a number of seconds or a date.
    """
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
    except (ValueError, OverflowError):  # an offset that no clock has
        return None
