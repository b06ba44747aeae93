"""The delays before a failed row is delivered again."""

import random
from collections.abc import Callable

MINUTE = 60.0
HOUR = 60 * MINUTE
RETRY_STEPS_SECONDS = (1 * MINUTE, 5 * MINUTE, 15 * MINUTE, 1 * HOUR, 3 * HOUR, 6 * HOUR, 12 * HOUR)
RANDOM_SPREAD = 0.2  # rows that failed together shouldn't be retried at the same moment


def row_retry_seconds(attempts: int, *, uniform: Callable[[float, float], float] = random.uniform) -> float:
    """Return the seconds to wait after this number of attempts. After the last step the wait stays the same."""
    step = RETRY_STEPS_SECONDS[min(max(attempts, 1), len(RETRY_STEPS_SECONDS)) - 1]
    return step * uniform(1 - RANDOM_SPREAD, 1 + RANDOM_SPREAD)
