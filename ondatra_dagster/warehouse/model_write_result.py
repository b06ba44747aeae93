"""The result of one write to a model's table. Needs no Spark, so what runs a project can import it."""

import dataclasses
from collections.abc import Mapping, Sequence

from ondatra_dagster.project.row_check_result import RowCheckResult
from ondatra_dagster.row_changes import Column


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class InvalidRowSample:
    """One row that the write kept out of the table."""

    key: tuple[str | None, ...]
    reason: str


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ModelWriteResult:
    """The counts of one write, the table's state after it, and what the model's checks found."""

    has_changes: bool  # False: there was no commit
    table_id: str
    version: int  # the last commit that changed rows
    rows: int  # in the table now
    inputs: Mapping[str, str]  # the versions that were read: when another run came first, newer than planned
    inserted: int = 0
    updated: int = 0
    deleted: int = 0
    invalid_counts: Mapping[str, int] = dataclasses.field(default_factory=dict)  # reason → rows kept out by this write
    invalid_samples: Sequence[InvalidRowSample] = ()
    columns: tuple[Column, ...] = ()
    findings: tuple[RowCheckResult, ...] = ()  # one for each of the model's checks
