"""The values that the collector gives to the warehouse: pending events as rows of their table.

This module knows no HTTP, SQLite or Spark.
"""

import datetime
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, Protocol, TypeAlias

EventRow: TypeAlias = Sequence[Any]  # the values in the order and types of the columns, then the JSON of _extra


class InvalidEvent(NamedTuple):
    """An event that was accepted but doesn't fit the columns of its model, which were changed later."""

    number: int  # the number of the request that brought it
    received_at: datetime.datetime
    event: str  # as JSON
    problem: str


class EventBatch(NamedTuple):
    """A batch of events that one commit adds to their table, in the order of their arrival."""

    last_number: int  # the number of the newest request
    rows: Sequence[EventRow]
    invalid_events: Sequence[InvalidEvent]


class EventBatchSource(Protocol):
    """The accepted events of one model that aren't in its table yet."""

    @property
    def sequence_id(self) -> str:
        """Return the id of the number sequence. In one sequence the numbers are unique and rise."""

    def read_batches(self, after: int | None) -> Iterator[EventBatch]:
        """Yield the batches with numbers above `after`, the oldest first. Each batch is read when it is requested."""
