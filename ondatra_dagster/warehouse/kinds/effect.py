"""What a kind is given for a write, and what the write comes to."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, Protocol, TypeAlias

from pyspark.sql import DataFrame

from ondatra_dagster.arrivals import Misfit, WaitingEvents
from ondatra_dagster.planning.commit_note import CommitNote
from ondatra_dagster.warehouse.delta_tables import Target


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Effect:
    """What was written, in rows; nothing at all means that there was no commit."""

    inserted: int = 0
    updated: int = 0
    deleted: int = 0
    rows: int = 0  # in the table now
    misfits: int = 0  # events that were put aside
    some_misfits: Sequence[Misfit] = ()

    @property
    def changed(self) -> bool:
        return bool(self.inserted or self.updated or self.deleted)

    @property
    def is_of_all_rows(self) -> bool:
        """Whether every row that the table has now came with this write."""
        return self.changed and self.inserted == self.rows


# takes the invalid rows with their reasons, and how many there are of each; called before the table's commit
SetAside: TypeAlias = Callable[[DataFrame, Mapping[str, int]], None]


class Changes(NamedTuple):
    """What a query gives of its inputs' changes alone."""

    came: DataFrame
    went: DataFrame | None  # None: surely nothing


class Earlier(Protocol):
    """What the query, as it is now, gives of its inputs as they were at the table's newest commit."""

    def changes(self) -> Changes | None:
        """What it gives of what has changed since; None when it has to be asked for all."""

    def rows(self) -> DataFrame | None:
        """All that it gives of them; None when they can't be read any more."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """One write of a model."""

    rows: DataFrame  # what the query gave, in the columns of the table
    target: Target
    note: CommitNote
    set_aside: SetAside
    # hears of the table's rows as they would be, before anything is written, and may raise to prevent that
    before_commit: Callable[[Callable[[], DataFrame]], None]
    earlier: Earlier
    # hears of rows that come otherwise than by the query, as many times as there are some, and may raise too
    judge: Callable[[DataFrame], None] = lambda _: None
    warned: Callable[[], Mapping[str, int]] = dict  # the warnings to remember so far
    events: WaitingEvents | None = None  # of kind events: what is to be written, in place of `rows`
    is_full: bool = False  # a full refresh: what the query no longer gives goes, equal rows keep their rowids
    keeps_order: bool = False  # the query has an ORDER BY of its own

    def told(self, *, rows: int, fingerprint: str | None = None) -> CommitNote:
        """The note of the commit that leaves so many rows."""
        return dataclasses.replace(self.note, rows=rows, fingerprint=fingerprint, warned=self.warned())


Writer: TypeAlias = Callable[[Work], Effect]


def rows_before(target: Target) -> int:
    """How many rows the table has, from the note of its newest commit if that is ours."""
    if target.is_empty:
        return 0
    if target.state.note and target.state.note.rows is not None:
        return target.state.note.rows
    return target.rows.count()
