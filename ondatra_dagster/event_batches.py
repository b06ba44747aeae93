"""The values that the collector gives to the warehouse: pending events as rows of their table.

This module doesn't know HTTP, SQLite or Spark.
"""

import datetime
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, Protocol, TypeAlias

# the values in the order and with the types of the columns, and at the end the JSON of _extra
EventRow: TypeAlias = Sequence[Any]


class InvalidEvent(NamedTuple):
    """An event that was accepted, but doesn't fit its model's columns because they were changed later."""

    number: int  # the number of the request that contained the event
    received_at: datetime.datetime
    event: str  # the event as JSON
    problem: str


class EventBatch(NamedTuple):
    """A batch of events that one commit adds to their table. The events are in the order of their arrival."""

    last_number: int  # the number of the newest request in the batch
    rows: Sequence[EventRow]
    invalid_events: Sequence[InvalidEvent]


class EventBatchSource(Protocol):
    """The accepted events of one model that aren't in the model's table yet."""

    @property
    def sequence_id(self) -> str:
        """Return the id of the sequence from which the requests get their numbers.

        In one sequence the numbers are unique and increase.
        """

    def read_batches(self, after: int | None) -> Iterator[EventBatch]:
        """Yield the batches whose numbers are above `after`, the oldest first.

        A batch is read when the caller requests it.
        """
