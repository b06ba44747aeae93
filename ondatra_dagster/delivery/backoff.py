"""How long a row waits after push called it an error, and when it has waited often enough."""

import random
from collections.abc import Callable

MINUTE = 60.0
HOUR = 60 * MINUTE
WAITS_SECONDS = (1 * MINUTE, 5 * MINUTE, 15 * MINUTE, 1 * HOUR, 3 * HOUR, 6 * HOUR, 12 * HOUR)
SPREAD = 0.2  # rows that failed together shouldn't all come back at one moment


def wait_seconds(attempts: int, *, uniform: Callable[[float, float], float] = random.uniform) -> float:
    """The wait after the attempt of that number; the last step is the longest there is."""
    step = WAITS_SECONDS[min(max(attempts, 1), len(WAITS_SECONDS)) - 1]
    return step * uniform(1 - SPREAD, 1 + SPREAD)
