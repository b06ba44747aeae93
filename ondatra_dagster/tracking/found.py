"""What a search for records asks for, and what it finds: rows that ended, and rows that have still to."""

import dataclasses
import enum
from collections.abc import Mapping
from datetime import datetime
from typing import NamedTuple

import pyarrow as pa

from ondatra_dagster.errors import SelectionError
from ondatra_dagster.project.suggestions import correction
from ondatra_dagster.tracking.record import INVALID, MOMENT, SCHEMA, RecordStatus


class Stage(enum.StrEnum):
    """How far a row has come that was to be sent."""

    PENDING = "pending"  # not tried yet, or on its way
    WAITING = "waiting"  # for its next try, or for a job at the API
    SUCCEEDED = "succeeded"
    REJECTED = "rejected"
    INVALID = "invalid"  # set aside: its status says why

    @property
    def has_ended(self) -> bool:
        return self not in (Stage.PENDING, Stage.WAITING)

    @classmethod
    def of(cls, status: str) -> "Stage":
        """The stage that a status stands for."""
        return cls.INVALID if status in INVALID else cls(status)

    @classmethod
    def named(cls, text: str) -> "Stage":
        """The stage that somebody asks for, or whose status; raises SelectionError with the nearest one."""
        try:
            return cls.of(text) if text in INVALID else cls(text.casefold())
        except ValueError:
            nearest = correction(text, [*map(str, cls)], plural="statuses")
            raise SelectionError(f"there is no status {text!r}; {nearest}") from None


# what a row's status says that was set aside: there is nobody else who says why
SET_ASIDE: Mapping[str, str] = {
    RecordStatus.NULL: "there is a null in its key",
    RecordStatus.DUPLICATE: "its key comes more than once",
}


def why(status: str, message: str | None) -> str | None:
    """Why a record ended so, as people are told it."""
    return message or SET_ASIDE.get(status)


# the columns of a record, then what is known of a row that hasn't ended
OF_THE_QUEUE = pa.schema({"attempts": pa.int64(), "next_try_at": MOMENT})
FOUND = pa.schema([*SCHEMA, *OF_THE_QUEUE])


class FoundRecord(NamedTuple):
    """One row of FOUND."""

    identifier: str
    payload: str  # the source row, a JSON object
    operation: str
    status: str  # a RecordStatus, or the stage of a row that hasn't ended
    status_message: str | None
    batch_started_at: datetime | None
    batch_ended_at: datetime | None
    sync_id: str
    run_id: str | None  # in which it ended
    rowid: int | None
    change_type: str
    table_version: int
    table_id: str
    attempts: int | None = None
    next_try_at: datetime | None = None

    @property
    def stage(self) -> Stage:
        return Stage.of(self.status)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Search:
    """Which records of a sync to find, the newest first."""

    run_id: str | None = None  # None: all runs
    stage: Stage | None = None  # None: all of them
    prefix: str = ""  # of the identifier
    status: str | None = None  # just those with this one: of what was set aside, NULL or DUPLICATE
    change_type: str | None = None  # just those with this one
    message: str | None = None  # just those with this one; an empty one: of which nothing was said
    with_payload: bool = True  # else payloads are empty, which is quicker
    limit: int | None = None
    offset: int = 0

    @property
    def asks_for_ended(self) -> bool:
        return self.stage is None or self.stage.has_ended

    @property
    def asks_for_unsettled(self) -> bool:
        return self.stage is None or not self.stage.has_ended

    def takes(self, identifier: str, status: str, change_type: str, message: str | None) -> bool:
        return (
            identifier.startswith(self.prefix)
            and self.stage in (None, Stage.of(status))
            and self.status in (None, status)
            and self.change_type in (None, change_type)
            and self.message in (None, message or "")
        )
