"""A query for records of a sync, and the columns of its results: ended rows and pending rows."""

import dataclasses
import enum
from collections.abc import Mapping
from datetime import datetime
from typing import NamedTuple

import pyarrow as pa

from ondatra_dagster.errors import SelectionError
from ondatra_dagster.project.spelling_suggestions import suggest_correction
from ondatra_dagster.records.record_schema import INVALID_STATUSES, RECORD_SCHEMA, TIMESTAMP, RecordStatus


class RecordStage(enum.StrEnum):
    """The stage of a row on its way to the destination."""

    PENDING = "pending"  # not attempted yet, or being sent
    WAITING = "waiting"  # waits for its next attempt, or for a job at the API
    SUCCEEDED = "succeeded"
    REJECTED = "rejected"
    INVALID = "invalid"  # never sent; its status says why

    @property
    def has_ended(self) -> bool:
        return self not in (RecordStage.PENDING, RecordStage.WAITING)

    @classmethod
    def of_status(cls, status: str) -> "RecordStage":
        """Return the stage that a record's status belongs to."""
        return cls.INVALID if status in INVALID_STATUSES else cls(status)

    @classmethod
    def parse(cls, text: str) -> "RecordStage":
        """Return the stage with this name, or the stage of the status with this name.

        Raise SelectionError with the nearest name for any other text.
        """
        try:
            return cls.of_status(text) if text in INVALID_STATUSES else cls(text.casefold())
        except ValueError:
            suggestion = suggest_correction(text, [*map(str, cls)], plural="statuses")
            raise SelectionError(f"there is no status {text!r}; {suggestion}") from None


# the reasons of invalid rows by status: their records have no message
INVALID_REASONS: Mapping[str, str] = {
    RecordStatus.NULL: "its key has a null",
    RecordStatus.DUPLICATE: "its key isn't unique",
}


def explain_status(status: str, message: str | None) -> str | None:
    """Return an explanation for users why a record has this status; None if there is no reason."""
    return message or INVALID_REASONS.get(status)


# the result has the columns of a record, then these columns, which only a pending row fills
QUEUE_SCHEMA = pa.schema({"attempts": pa.int64(), "next_try_at": TIMESTAMP})
RESULT_SCHEMA = pa.schema([*RECORD_SCHEMA, *QUEUE_SCHEMA])


class ResultRecord(NamedTuple):
    """A record or a pending row in the result of a search."""

    identifier: str
    payload: str  # the source row, a JSON object
    operation: str
    status: str  # a RecordStatus, or the stage of a row that hasn't ended
    status_message: str | None
    batch_started_at: datetime | None
    batch_ended_at: datetime | None
    sync_id: str
    run_id: str | None  # the run in which the row ended; None: the row is pending
    rowid: int | None
    change_type: str
    table_version: int
    table_id: str
    attempts: int | None = None
    next_try_at: datetime | None = None

    @property
    def stage(self) -> RecordStage:
        return RecordStage.of_status(self.status)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class RecordQuery:
    """The conditions of a search for records of one sync; results are sorted newest first."""

    run_id: str | None = None  # None: all runs
    stage: RecordStage | None = None  # None: all stages
    prefix: str = ""  # the beginning of the identifier
    status: str | None = None  # only records with this status; invalid rows have NULL or DUPLICATE
    change_type: str | None = None  # only records with this change type
    message: str | None = None  # only records with this message; "": only records without a message
    with_payload: bool = True  # False: payloads are empty, and the search is quicker
    limit: int | None = None
    offset: int = 0

    @property
    def includes_ended(self) -> bool:
        return self.stage is None or self.stage.has_ended

    @property
    def includes_pending(self) -> bool:
        return self.stage is None or not self.stage.has_ended

    def matches(self, identifier: str, status: str, change_type: str, message: str | None) -> bool:
        return (
            identifier.startswith(self.prefix)
            and self.stage in (None, RecordStage.of_status(status))
            and self.status in (None, status)
            and self.change_type in (None, change_type)
            and self.message in (None, message or "")
        )
