"""The counters of a run: how many units had which outcome, and which messages they got.

Equal messages count as one reason.
"""

import collections
from collections.abc import Iterable, Iterator

from ondatra_dagster.delivery.queue.dead_letter_reading_and_replay import SHOWN_KEYS, FailureReason
from ondatra_dagster.delivery.queue.settle_batch import SettledBatch
from ondatra_dagster.row_changes import ChangeType, InvalidRow
from ondatra_dagster.sync.run_context import RunContext
from ondatra_dagster.sync.run_summary import MAX_SAMPLES, CountGrid, InvalidRecordSample, load_invalid_samples

MAX_MESSAGES = 1000  # different messages that are counted: messages that contain a key all differ


class MessageCounter:
    """The counter of the messages that a run's units got."""

    def __init__(self) -> None:
        self._units_by_message: collections.Counter[str] = collections.Counter()
        self._keys_by_message: dict[str, dict[str, None]] = {}  # the first keys of each message, each once

    def add_message(self, key: str, message: str, *, units: int = 1) -> None:
        """Count `units` more units for the message, and keep the message's first keys as examples."""
        if message not in self._keys_by_message and len(self._keys_by_message) >= MAX_MESSAGES:
            return
        self._units_by_message[message] += units
        keys = self._keys_by_message.setdefault(message, {})
        if len(keys) <= SHOWN_KEYS:
            keys[key] = None

    def most_common(self, limit: int = MAX_SAMPLES) -> tuple[FailureReason, ...]:
        """Return the most frequent messages first. Equally frequent messages keep the order in which they occurred."""
        common_messages = self._units_by_message.most_common(limit)
        return tuple(
            FailureReason(message, rows, tuple(self._keys_by_message[message])) for message, rows in common_messages
        )


MAX_ERRORS = 5  # different messages that are kept


class RunCounters:
    """The counters of one run's outcomes, messages and invalid rows."""

    def __init__(self) -> None:
        self.grid = CountGrid()
        self.dead_units = 0  # units that ran out of attempts
        self.warned_units = 0  # units that were delivered with a warning
        # why units were rejected, delivered with a warning, or failed and are retried
        self.reject_messages = MessageCounter()
        self.warning_messages = MessageCounter()
        self.failure_messages = MessageCounter()
        self._new_invalid_samples: list[InvalidRecordSample] = []
        self._error_messages: dict[str, None] = {}  # in order, each once

    @property
    def first_errors(self) -> tuple[str, ...]:
        return tuple(self._error_messages)[:MAX_ERRORS]

    def add_settled(self, settled_batch: SettledBatch) -> None:
        """Count the outcomes and messages of a settled batch."""
        self.grid.add_attempts(settled_batch.counts)
        self.dead_units += settled_batch.exhausted_units
        self.warned_units += sum(message_units.unit_count for message_units in settled_batch.warnings)
        for reasons, message_groups in (
            (self.reject_messages, settled_batch.rejections),
            (self.warning_messages, settled_batch.warnings),
            (self.failure_messages, settled_batch.failures),
        ):
            for message_units in message_groups:
                reasons.add_message(message_units.key, message_units.message, units=message_units.unit_count)
        for error in sorted(settled_batch.errors):
            self.add_error(error)

    def add_error(self, message: str) -> None:
        self._error_messages.setdefault(message)

    def sample_invalid_rows(self, rows: Iterable[InvalidRow]) -> Iterator[InvalidRow]:
        """Yield all given invalid rows, and keep the first of them as samples."""
        for row in rows:
            if len(self._new_invalid_samples) < MAX_SAMPLES:
                self._new_invalid_samples.append(InvalidRecordSample(row.key, ChangeType.INSERT, row.reason))
            yield row

    def collect_invalid_samples(self, context: RunContext) -> tuple[InvalidRecordSample, ...]:
        """Return samples of the invalid rows: new ones first, then those of earlier runs."""
        if not context.source.invalid_count:
            return ()
        recent_runs = context.ports.history.list_runs(context.sync.id, limit=2)
        earlier_samples = [sample for run in recent_runs for sample in load_invalid_samples(run)]
        return tuple(dict.fromkeys([*self._new_invalid_samples, *earlier_samples]))[:MAX_SAMPLES]
