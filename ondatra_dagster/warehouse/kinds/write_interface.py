"""The interface of a kind's write: the request, the result, and the query's earlier results."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, Protocol, TypeAlias

from pyspark.sql import DataFrame

from ondatra_dagster.deltalog.commit_user_metadata import CommitMetadata
from ondatra_dagster.event_batches import EventBatchSource, InvalidEvent
from ondatra_dagster.warehouse.create_and_write_target_table import TargetTable


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class WriteResult:
    """What was written, in rows; nothing at all means that there was no commit."""

    inserted: int = 0
    updated: int = 0
    deleted: int = 0
    rows: int = 0  # in the table now
    invalid_event_count: int = 0  # events that were put aside
    invalid_event_samples: Sequence[InvalidEvent] = ()

    @property
    def has_changes(self) -> bool:
        return bool(self.inserted or self.updated or self.deleted)

    @property
    def rewrites_all_rows(self) -> bool:
        """Whether every row that the table has now came with this write."""
        return self.has_changes and self.inserted == self.rows


# takes the invalid rows with their reasons, and how many there are of each; called before the table's commit
WriteInvalidRows: TypeAlias = Callable[[DataFrame, Mapping[str, int]], None]


class ResultChanges(NamedTuple):
    """What a query gives of its inputs' changes alone."""

    added_rows: DataFrame
    removed_rows: DataFrame | None  # None: surely nothing


class PreviousResults(Protocol):
    """What the query, as it is now, gives of its inputs as they were at the table's newest commit."""

    def changes(self) -> ResultChanges | None:
        """What it gives of what has changed since; None when it has to be asked for all."""

    def rows(self) -> DataFrame | None:
        """All that it gives of them; None when they can't be read any more."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class WriteRequest:
    """One write of a model."""

    rows: DataFrame  # what the query gave, in the columns of the table
    target: TargetTable
    note: CommitMetadata
    write_invalid_rows: WriteInvalidRows
    # hears of the table's rows as they would be, before anything is written, and may raise to prevent that
    check_before_commit: Callable[[Callable[[], DataFrame]], None]
    previous_results: PreviousResults
    # hears of rows that come otherwise than by the query, as many times as there are some, and may raise too
    check_rows: Callable[[DataFrame], None] = lambda _: None
    warning_counts: Callable[[], Mapping[str, int]] = dict  # the warnings to remember so far
    events: EventBatchSource | None = None  # of kind events: what is to be written, in place of `rows`
    is_full: bool = False  # a full refresh: what the query no longer gives goes, equal rows keep their rowids
    has_order_by: bool = False  # the query has an ORDER BY of its own

    def commit_note(self, *, rows: int, fingerprint: str | None = None) -> CommitMetadata:
        """The note of the commit that leaves so many rows."""
        return dataclasses.replace(self.note, rows=rows, fingerprint=fingerprint, warned=self.warning_counts())


Writer: TypeAlias = Callable[[WriteRequest], WriteResult]


def count_existing_rows(target: TargetTable) -> int:
    """How many rows the table has, from the note of its newest commit if that is ours."""
    if target.is_empty:
        return 0
    if target.state.commit_metadata and target.state.commit_metadata.rows is not None:
        return target.state.commit_metadata.rows
    return target.rows.count()
