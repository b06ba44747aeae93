"""How a sync stands: its queue, its newest runs, whether one goes on, and what that comes to in a word."""

import dataclasses
import enum
from datetime import datetime

from ondatra_dagster.browser.told import NOTHING
from ondatra_dagster.delivery.queue.states import QueueState
from ondatra_dagster.orchestration.workspace import Workspace
from ondatra_dagster.sync.forecast import expected_of
from ondatra_dagster.sync.progress import Progress, progress
from ondatra_dagster.sync.summary import Cell, Grid, grid_of
from ondatra_dagster.sync.sync import Sync
from ondatra_dagster.tracking.history import PastRun, Result
from ondatra_dagster.wording import took


class Health(enum.StrEnum):
    """A sync in a word: the first of these that is true."""

    RUNNING = "running"
    PAUSED = "paused"
    NEVER_RAN = "never ran"
    FAILING = "failing"  # its newest run did
    LOST = "queue lost"  # its next run finds out what waits
    REJECTS = "rejects"  # rows were refused in it, or are dead letters
    WAITING = "waiting"  # rows are still to be delivered
    OK = "ok"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    sync: Sync
    queue: QueueState | None  # None: it never ran, or its queue is lost
    lost: str | None  # what becomes of that
    runs: tuple[PastRun, ...]  # the newest first, without dry ones
    going_on: Progress | None
    is_paused: bool

    @property
    def last(self) -> PastRun | None:
        return next(iter(self.runs), None)

    @property
    def health(self) -> Health:
        last, queue = self.last, self.queue
        asked = {
            Health.RUNNING: self.going_on is not None,
            Health.PAUSED: self.is_paused,
            Health.NEVER_RAN: last is None and queue is None,
            Health.FAILING: last is not None and last.result in (Result.FAILED, Result.CRASHED),
            Health.LOST: self.lost is not None,
            Health.REJECTS: bool((queue and queue.dead) or (last and counted(last).count(Cell.REJECTED))),
            Health.WAITING: bool(queue and queue.depth),
        }
        return next((health for health, is_true in asked.items() if is_true), Health.OK)


def standing(workspace: Workspace, sync: Sync, *, runs: int) -> Standing:
    """The sync as it is now, with so many of its newest runs."""
    queue, lost = workspace.queue(sync.id), workspace.queue_seen(sync.id).lost
    return Standing(
        sync=sync,
        queue=None if lost else queue,
        lost=lost,
        runs=workspace.history.runs(sync.id, limit=runs),
        going_on=progress(sync, workspace.tracking, clock=workspace.clock),
        is_paused=sync.pause.exists(),
    )


def counted(run: PastRun) -> Grid:
    """The run's counts; of a dry one, what it would have planned."""
    return grid_of(run.counts.get("grid", {}))  # type: ignore[arg-type]  # as RunSummary.to_json() wrote it


def forecast_told(run: PastRun) -> str:
    """What a dry run said would become of the destination's rows."""
    expected = expected_of(run)
    if expected is None:
        return ""
    moves = (
        (expected.creates, "to create"),
        (expected.updates, "to update"),
        (expected.deletes, "to delete"),
    )
    return ", ".join(f"{count:,} {word}" for count, word in moves if count) or "nothing would change"


def time_taken(run: PastRun, now: datetime) -> str:
    """How long it took, or takes by now; when a run that crashed did so nobody knows."""
    until = now if run.result is Result.RUNNING else run.ended_at
    return took(max(0.0, (until - run.started_at).total_seconds())) if until else NOTHING
