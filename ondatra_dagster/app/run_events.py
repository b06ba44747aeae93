"""The results of a run's models and syncs, and the listener that receives them during the run."""

import dataclasses
from collections.abc import Callable

from ondatra_dagster.project.model import Model
from ondatra_dagster.row_changes import Column
from ondatra_dagster.sync.run_summary import DryRunResult, RunSummary
from ondatra_dagster.sync.sync_checks import Severity, SyncCheckResult
from ondatra_dagster.sync.sync_definition import Sync


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ModelResult:
    """The result of one model in a run."""

    model: Model
    has_changes: bool
    reason: str  # why the model was computed, or why not
    run_type: str  # backfill (the first time), incremental, full, skip
    table_version: str  # as planning.input_versions formats it
    version: int
    rows: int | None  # rows in the table now; None: not counted
    columns: tuple[Column, ...]
    inserted: int = 0
    updated: int = 0
    deleted: int = 0
    invalid_rows: int = 0  # rows that were kept out of the table
    verdicts: tuple[SyncCheckResult, ...] = ()  # results of the checks in the model's header
    seconds: float = 0.0


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class SyncResult:
    """The result of one sync in a run, with the results of its checks."""

    sync: Sync
    summary: RunSummary
    verdicts: tuple[SyncCheckResult, ...]
    forecast: DryRunResult | None = None  # the result of a dry run, which sent nothing; None: a real run
    warnings: tuple[str, ...] = ()  # problems for which the run doesn't fail

    @property
    def errors(self) -> tuple[SyncCheckResult, ...]:
        """Return the check results with severity ERROR, for which the run fails."""
        return tuple(verdict for verdict in self.verdicts if verdict.severity is Severity.ERROR)


DescribeActivity = Callable[[], str]  # returns the current activity; "" if it is unknown


class RunProgress:
    """A listener that is called when each model and sync of a run begins and ends. This one does nothing.

    A run that Dagster started needs no other listener, because Dagster's page shows the run.
    """

    def on_model_start(self, model: Model, activity: DescribeActivity) -> None: ...
    def on_sync_start(self, sync: Sync, activity: DescribeActivity) -> None: ...
    def on_model_end(self, result: ModelResult) -> None: ...
    def on_sync_end(self, result: SyncResult) -> None: ...
    def on_wait(self, message: str) -> None: ...
    def on_notice(self, message: str) -> None: ...
    def on_failure(self, name: str, message: str) -> None: ...
