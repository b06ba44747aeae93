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
    """The numbers of rows that a write changed. If there is no row and no invalid event, the write made no commit."""

    inserted: int = 0
    updated: int = 0
    deleted: int = 0
    rows: int = 0  # rows in the table after the write
    invalid_event_count: int = 0  # the number of invalid events
    invalid_event_samples: Sequence[InvalidEvent] = ()

    @property
    def has_changes(self) -> bool:
        return bool(self.inserted or self.updated or self.deleted)

    @property
    def rewrites_all_rows(self) -> bool:
        """Return whether this write inserted every row that the table has after it."""
        return self.has_changes and self.inserted == self.rows


# gets the invalid rows with their reasons, and the number of rows by reason; called before the table's commit
WriteInvalidRows: TypeAlias = Callable[[DataFrame, Mapping[str, int]], None]


class ResultChanges(NamedTuple):
    """The rows that the query returns for added rows of its inputs, and for removed ones."""

    added_rows: DataFrame
    removed_rows: DataFrame | None  # None: certainly no row was removed


class PreviousResults(Protocol):
    """The results of the current query on the input versions of the table's newest commit."""

    def changes(self) -> ResultChanges | None:
        """Return the query's rows for input rows that were added or removed since the table's newest commit.

        Return None if all rows have to be compared.
        """

    def rows(self) -> DataFrame | None:
        """Return the query's whole result on the inputs of the table's newest commit; None if they can't be read."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class WriteRequest:
    """A request to write a model's rows."""

    rows: DataFrame  # the query's rows, with the columns of the table
    target: TargetTable
    note: CommitMetadata
    write_invalid_rows: WriteInvalidRows
    # gets the table's rows as they will be after the write; called before the write, and may raise to prevent it
    check_before_commit: Callable[[Callable[[], DataFrame]], None]
    previous_results: PreviousResults
    # gets each batch of rows that doesn't come from the query, and may raise to prevent the write
    check_rows: Callable[[DataFrame], None] = lambda _: None
    # returns the warnings to remember so far: check → number of failed rows
    warning_counts: Callable[[], Mapping[str, int]] = dict
    events: EventBatchSource | None = None  # only for kind events: the events to write instead of `rows`
    is_full: bool = False  # a full refresh: delete rows that the query no longer gives; equal rows keep their rowids
    has_order_by: bool = False  # whether the query has an ORDER BY

    def commit_note(self, *, rows: int, fingerprint: str | None = None) -> CommitMetadata:
        """Return the note of a commit after which the table has `rows` rows."""
        return dataclasses.replace(self.note, rows=rows, fingerprint=fingerprint, warned=self.warning_counts())


Writer: TypeAlias = Callable[[WriteRequest], WriteResult]


def count_existing_rows(target: TargetTable) -> int:
    """Return the number of rows in the table, from the note of its newest commit if that has the number."""
    if target.is_empty:
        return 0
    if target.state.commit_metadata and target.state.commit_metadata.rows is not None:
        return target.state.commit_metadata.rows
    return target.rows.count()
