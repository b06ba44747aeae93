"""The status of a sync and of its runs, as pages show it.

A sync has a queue, its newest runs, a run in progress, and its health in a word. A run has counts, a duration and
versions.
"""

import dataclasses
import enum
from datetime import datetime

from ondatra_dagster.app import ui_urls
from ondatra_dagster.app.workspace import Workspace
from ondatra_dagster.count_time_and_size_format import format_elapsed
from ondatra_dagster.delivery.queue.change_and_outcome_counts import UnitOperation
from ondatra_dagster.delivery.queue.queue_status import QueueStatus
from ondatra_dagster.records.record_query import RecordStage
from ondatra_dagster.sync.run_history_store import PastRun, RunResult
from ondatra_dagster.sync.run_summary import GridRow, load_expected_changes, load_grid
from ondatra_dagster.sync.running_progress_reader import LiveProgress, read_live_progress
from ondatra_dagster.sync.sync_definition import Sync
from ondatra_dagster.ui.html_builder import Content, element
from ondatra_dagster.ui.value_formatting import NO_VALUE, format_number

# counts of a run that link to records; the other counts include rows without a final result
RECORD_STAGES = {
    GridRow.SUCCEEDED: RecordStage.SUCCEEDED,
    GridRow.REJECTED: RecordStage.REJECTED,
    GridRow.INVALID: RecordStage.INVALID,
}


def count_link(
    run: PastRun, cell: GridRow, count: int | None, operation: UnitOperation | None = None, *, has_records: bool
) -> Content:
    """Return a count of a run's grid, as a link to its records if they are kept."""
    stage = RECORD_STAGES.get(cell)
    if not (stage and count and has_records):
        return format_number(count)
    return element(
        "a",
        format_number(count),
        href=ui_urls.records_url(run.sync_id, ui_urls.RecordFilter(run=run.run_id, status=stage, change=operation)),
    )


def describe_dry_run(run: PastRun) -> str:
    """Describe the changes that a dry run expected at the destination."""
    expected_changes = load_expected_changes(run)
    if expected_changes is None:
        return ""
    counts = (
        (expected_changes.creates, "to create"),
        (expected_changes.updates, "to update"),
        (expected_changes.deletes, "to delete"),
    )
    return ", ".join(f"{count:,} {word}" for count, word in counts if count) or "nothing would change"


def format_run_duration(run: PastRun, now: datetime) -> str:
    """Return how long the run took, or has taken until now; the end of a crashed run is unknown."""
    end_time = now if run.result is RunResult.RUNNING else run.ended_at
    return format_elapsed(max(0.0, (end_time - run.started_at).total_seconds())) if end_time else NO_VALUE


def format_versions(run: PastRun) -> str:
    """Format the version that was delivered before the run, and the one that the run delivered."""
    old, new = (
        NO_VALUE if version is None or version < 0 else str(version) for version in (run.version_from, run.version_to)
    )
    return f"{old} → {new}"


class Health(enum.StrEnum):
    """The health of a sync: the first of these that applies."""

    RUNNING = "running"
    PAUSED = "paused"
    NEVER_RAN = "never ran"
    FAILING = "failing"  # the newest run failed or crashed
    QUEUE_LOST = "queue lost"  # the next run finds out which rows wait
    REJECTS = "rejects"  # the newest run had rejected rows, or there are dead letters
    WAITING = "waiting"  # rows are still to be delivered
    OK = "ok"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class SyncStatus:
    sync: Sync
    queue: QueueStatus | None  # None: it never ran, or its queue is lost
    queue_lost_message: str | None  # that the queue is lost, and what the next run does about it
    runs: tuple[PastRun, ...]  # the newest first, without dry ones
    progress: LiveProgress | None
    is_paused: bool

    @property
    def last_run(self) -> PastRun | None:
        return next(iter(self.runs), None)

    @property
    def health(self) -> Health:
        last_run, queue = self.last_run, self.queue
        conditions = {
            Health.RUNNING: self.progress is not None,
            Health.PAUSED: self.is_paused,
            Health.NEVER_RAN: last_run is None and queue is None,
            Health.FAILING: last_run is not None and last_run.result in (RunResult.FAILED, RunResult.CRASHED),
            Health.QUEUE_LOST: self.queue_lost_message is not None,
            Health.REJECTS: bool(
                (queue and queue.dead_units) or (last_run and load_grid(last_run).total(GridRow.REJECTED))
            ),
            Health.WAITING: bool(queue and queue.depth),
        }
        return next((health for health, is_true in conditions.items() if is_true), Health.OK)


def read_sync_status(workspace: Workspace, sync: Sync, *, runs: int) -> SyncStatus:
    """Read the sync's status, with `runs` of its newest runs."""
    queue, loss_message = workspace.queue(sync.id), workspace.try_read_queue(sync.id).loss_message
    return SyncStatus(
        sync=sync,
        queue=None if loss_message else queue,
        queue_lost_message=loss_message,
        runs=workspace.history.list_runs(sync.id, limit=runs),
        progress=read_live_progress(sync, workspace.tracking, clock=workspace.clock),
        is_paused=sync.pause_file.exists(),
    )


def queue_lost_notice(workspace: Workspace, sync: Sync) -> Content:
    """Return a notice if the queue is lost: what waits is unknown."""
    loss_message = workspace.try_read_queue(sync.id).loss_message
    return element("p", f"The pending rows are unknown: {loss_message}.", class_="notice") if loss_message else None


def dead_letter_link(status: SyncStatus) -> Content:
    """Return the number of dead letters, as a link to them if there are any."""
    if not status.queue:
        return NO_VALUE
    dead_count = format_number(status.queue.dead_units)
    link = ui_urls.queue_url(status.sync.id)
    return element("a", dead_count, href=link, class_="bad") if status.queue.dead_units else dead_count
