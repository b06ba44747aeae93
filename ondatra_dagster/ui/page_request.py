"""A UI request: its sync and query parameters. Invalid values raise SelectionError with a message for the user."""

import dataclasses
from collections.abc import Mapping
from datetime import UTC, datetime

from ondatra_dagster.app.ui_urls import RecordFilter
from ondatra_dagster.app.workspace import Workspace
from ondatra_dagster.delivery.queue.change_and_outcome_counts import UnitOperation
from ondatra_dagster.errors import SelectionError
from ondatra_dagster.project.spelling_suggestions import suggest_correction
from ondatra_dagster.records.record_query import RecordQuery, RecordStage
from ondatra_dagster.records.record_schema import INVALID_STATUSES
from ondatra_dagster.row_changes import ChangeType
from ondatra_dagster.sync.sync_definition import Sync

# the change types of records, by operation, for kinds whose rows are updated one by one
CHANGE_TYPES = {
    UnitOperation.INSERT: ChangeType.INSERT,
    UnitOperation.UPDATE: ChangeType.UPDATE_POSTIMAGE,
    UnitOperation.DELETE: ChangeType.DELETE,
}
MAX_PAGE = 1_000_000  # more than any user opens, and a number that SQLite accepts


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class PageRequest:
    """A request for a page of the UI."""

    workspace: Workspace
    path_params: Mapping[str, str]  # the values of the path's named parts
    query_params: Mapping[str, str]

    @property
    def now(self) -> datetime:
        return datetime.fromtimestamp(self.workspace.clock(), UTC)

    @property
    def sync(self) -> Sync:
        """Return the sync that the path names; raise SelectionError if the project has no sync with this id."""
        name = self.path_params["sync"]
        return self.workspace.syncs.get(name) or self.workspace.sync(name)

    @property
    def run_id(self) -> str | None:
        """Return the id of the run whose records are requested; None: the records of all runs."""
        return self.get_text("run")

    @property
    def stage(self) -> RecordStage | None:
        status = self.get_text("status")
        return RecordStage.parse(status) if status else None

    @property
    def status(self) -> str | None:
        """Return the requested status: NULL or DUPLICATE for an invalid row's status, otherwise the stage."""
        status = self.get_text("status")
        return status if status in INVALID_STATUSES else self.stage

    @property
    def change(self) -> UnitOperation | None:
        """Return the requested operation at the destination; None: all operations."""
        text = self.get_text("change")
        if text is None or text in set(UnitOperation):
            return UnitOperation(text) if text else None
        raise SelectionError(
            f"there is no change {text!r}; {suggest_correction(text, [*map(str, UnitOperation)], plural='changes')}"
        )

    @property
    def reason(self) -> str | None:
        """Return the requested reason; "": records without a reason; None: all records."""
        return self.query_params.get("reason")

    @property
    def prefix(self) -> str:
        return self.get_text("search") or ""

    @property
    def record_filter(self) -> RecordFilter:
        """Return the filters of the request, with which addresses of other pages are built."""
        return RecordFilter(
            run=self.run_id, status=self.status, change=self.change, search=self.prefix or None, reason=self.reason
        )

    @property
    def page(self) -> int:
        return self.get_number("page", maximum=MAX_PAGE) or 1

    def get_text(self, name: str) -> str | None:
        """Return the value of a query parameter; None if the parameter is missing or empty."""
        return self.query_params.get(name) or None

    def get_number(self, name: str, *, maximum: int) -> int | None:
        """Return a query parameter as a whole number from 1 to `maximum`; None if it is missing."""
        text = self.get_text(name)
        if text is None:
            return None
        has_few_digits = len(text) <= len(str(maximum))  # a text with many leading zeros is refused, too
        if not (has_few_digits and text.isascii() and text.isdecimal() and 0 < int(text) <= maximum):
            raise SelectionError(f"{name} can't be {text!r}; it is a number from 1 to {maximum:,}")
        return int(text)

    def build_search(self, *, limit: int | None, offset: int = 0) -> RecordQuery:
        """Return the query that searches for the requested records."""
        return RecordQuery(
            run_id=self.run_id,
            stage=self.stage,
            status=self.status if self.status in INVALID_STATUSES else None,
            change_type=CHANGE_TYPES[self.change] if self.change else None,
            prefix=self.prefix,
            message=self.reason,
            limit=limit,
            offset=offset,
        )
