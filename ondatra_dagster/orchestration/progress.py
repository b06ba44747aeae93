"""What a run tells while it goes on, as values, and who listens. How it is shown belongs to cli."""

import dataclasses
from collections.abc import Callable
from typing import Protocol

from ondatra_dagster.changes import Column
from ondatra_dagster.project.model import Model
from ondatra_dagster.sync.forecast import Forecast
from ondatra_dagster.sync.summary import RunSummary
from ondatra_dagster.sync.sync import Sync
from ondatra_dagster.sync.verdicts import CheckVerdict, Severity


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ModelResult:
    """How one model's turn ended."""

    model: Model
    changed: bool
    reason: str  # why it was computed, or why not
    run_type: str  # backfill (the first time), incremental, full, skip
    table_version: str  # as planning.versions spells it
    version: int
    rows: int | None  # in the table now; None when nobody counted
    columns: tuple[Column, ...]
    inserted: int = 0
    updated: int = 0
    deleted: int = 0
    set_aside: int = 0  # rows that are not in the table, for their key
    verdicts: tuple[CheckVerdict, ...] = ()  # of the checks in its header
    seconds: float = 0.0


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class SyncResult:
    """How one sync's turn ended, and what its checks say of it."""

    sync: Sync
    summary: RunSummary
    verdicts: tuple[CheckVerdict, ...]
    forecast: Forecast | None = None  # of a dry run, which sent nothing
    warnings: tuple[str, ...] = ()  # sentences on what went wrong beside, for which no run fails

    @property
    def errors(self) -> tuple[CheckVerdict, ...]:
        """The verdicts for which the run fails."""
        return tuple(verdict for verdict in self.verdicts if verdict.severity is Severity.ERROR)


Activity = Callable[[], str]  # what is being done just now; "" where nobody knows


class Progress(Protocol):
    """Hears of each model and sync as it begins and ends."""

    def model_began(self, model: Model, activity: Activity) -> None: ...
    def sync_began(self, sync: Sync, activity: Activity) -> None: ...
    def model_ended(self, result: ModelResult) -> None: ...
    def sync_ended(self, result: SyncResult) -> None: ...
    def waits(self, message: str) -> None: ...
    def notice(self, message: str) -> None: ...
    def failed(self, name: str, message: str) -> None: ...


class Silence:
    """Nobody listens: Dagster's own page tells all."""

    def model_began(self, model: Model, activity: Activity) -> None: ...
    def sync_began(self, sync: Sync, activity: Activity) -> None: ...
    def model_ended(self, result: ModelResult) -> None: ...
    def sync_ended(self, result: SyncResult) -> None: ...
    def waits(self, message: str) -> None: ...
    def notice(self, message: str) -> None: ...
    def failed(self, name: str, message: str) -> None: ...
