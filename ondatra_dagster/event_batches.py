"""The values that cross from the collector to the warehouse: events that wait, as the rows of their table.

Nothing here knows HTTP, SQLite or Spark.
"""

import datetime
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, Protocol, TypeAlias

EventRow: TypeAlias = Sequence[Any]  # values of the columns' own types in their order, then the JSON of _extra


class InvalidEvent(NamedTuple):
    """An event that was taken, and that the columns have no place for since they were changed."""

    number: int  # of what it came in
    received_at: datetime.datetime
    event: str  # as JSON
    problem: str


class EventBatch(NamedTuple):
    """Events that go into their table in one commit, in the order in which they came."""

    last_number: int  # the number of the newest
    rows: Sequence[EventRow]
    invalid_events: Sequence[InvalidEvent]


class EventBatchSource(Protocol):
    """The events of one model that were taken, and aren't in its table yet."""

    @property
    def sequence_id(self) -> str:
        """What the numbers belong to: of one numbering each comes once, and they rise."""

    def read_batches(self, after: int | None) -> Iterator[EventBatch]:
        """Those with a number above that, the oldest first; each portion is read when it is asked for."""
