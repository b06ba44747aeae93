"""What a kind's write comes to, and what it is given besides rows and a table."""

import dataclasses
from collections.abc import Callable, Mapping
from typing import TypeAlias

from pyspark.sql import DataFrame

from ondatra_dagster.planning.commit_note import CommitNote
from ondatra_dagster.warehouse.delta_tables import Target


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Effect:
    """What was written, in rows; nothing at all means that there was no commit."""

    inserted: int = 0
    updated: int = 0
    deleted: int = 0
    rows: int = 0  # in the table now

    @property
    def changed(self) -> bool:
        return bool(self.inserted or self.updated or self.deleted)


# takes the invalid rows with their reasons, and how many there are of each; called before the table's commit
SetAside: TypeAlias = Callable[[DataFrame, Mapping[str, int]], None]
Writer: TypeAlias = Callable[[DataFrame, Target, CommitNote, SetAside], Effect]


def rows_before(target: Target) -> int:
    """How many rows the table has, from the note of its newest commit if that is ours."""
    if target.is_empty:
        return 0
    if target.state.note and target.state.note.rows is not None:
        return target.state.note.rows
    return target.rows.count()
