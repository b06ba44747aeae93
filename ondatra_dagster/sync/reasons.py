"""What was said of a run's rows, counted as it is said: one message for a million rows is one reason."""

import collections

from ondatra_dagster.delivery.queue.reasons import SHOWN_KEYS, Reason

MOST = 1000  # different ones that are told apart: a message with a key in it is another one each time


class Reasons:
    """One run's."""

    def __init__(self) -> None:
        self._rows: collections.Counter[str] = collections.Counter()
        self._keys: dict[str, dict[str, None]] = {}  # the first of them, each once

    def add(self, key: str, message: str, *, rows: int = 1) -> None:
        """Count rows of a key of which this was said."""
        if message not in self._keys and len(self._keys) >= MOST:
            return
        self._rows[message] += rows
        keys = self._keys.setdefault(message, {})
        if len(keys) <= SHOWN_KEYS:
            keys[key] = None

    def listed(self, most: int) -> tuple[Reason, ...]:
        """The most frequent first; of equally frequent ones that which was said first."""
        counted = self._rows.most_common(most)
        return tuple(Reason(message, rows, tuple(self._keys[message])) for message, rows in counted)
