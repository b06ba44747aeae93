"""The status of a sync, and facts about its runs, as several pages show them.

A sync's status has its queue, its newest runs, a run in progress, and its health in one word. The facts of a
run are its counts, its duration and its versions.
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

# the counts of a run that link to records; other counts include rows without a final outcome
RECORD_STAGES = {
    GridRow.SUCCEEDED: RecordStage.SUCCEEDED,
    GridRow.REJECTED: RecordStage.REJECTED,
    GridRow.INVALID: RecordStage.INVALID,
}


def count_link(
    run: PastRun, cell: GridRow, count: int | None, operation: UnitOperation | None = None, *, has_records: bool
) -> Content:
    """Return a count of a run; it is a link to the records that it counts, if they are kept."""
    stage = RECORD_STAGES.get(cell)
    if not (stage and count and has_records):
        return format_number(count)
    return element(
        "a",
        format_number(count),
        href=ui_urls.records_url(run.sync_id, ui_urls.RecordFilter(run=run.run_id, status=stage, change=operation)),
    )


def describe_dry_run(run: PastRun) -> str:
    """Return in words how a dry run expected the destination's rows to change."""
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
    """Return how long the run took, or has taken so far; a dash for a crashed run, whose end is unknown."""
    end_time = now if run.result is RunResult.RUNNING else run.ended_at
    return format_elapsed(max(0.0, (end_time - run.started_at).total_seconds())) if end_time else NO_VALUE


def format_versions(run: PastRun) -> str:
    """Return the table version before the run and the version that the run delivered, as "old → new"."""
    old, new = (
        NO_VALUE if version is None or version < 0 else str(version) for version in (run.version_from, run.version_to)
    )
    return f"{old} → {new}"


class Health(enum.StrEnum):
    """The health of a sync in one word. If several apply, the first in this order is shown."""

    RUNNING = "running"
    PAUSED = "paused"
    NEVER_RAN = "never ran"
    FAILING = "failing"  # the newest run failed or crashed
    QUEUE_LOST = "queue lost"  # the next run finds out which rows are pending
    REJECTS = "rejects"  # the newest run had rejected rows, or there are dead letters
    WAITING = "waiting"  # rows are still to be delivered
    OK = "ok"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class SyncStatus:
    sync: Sync
    queue: QueueStatus | None  # None: the sync has never run, or its queue is lost
    queue_lost_message: str | None  # says that the queue is lost, and what the next run does; None: it isn't lost
    runs: tuple[PastRun, ...]  # newest first, without dry runs
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
    """Read the sync's status, with up to `runs` of its newest runs."""
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
    """Return a notice that the pending rows are unknown, if the queue is lost; None otherwise."""
    loss_message = workspace.try_read_queue(sync.id).loss_message
    return element("p", f"The pending rows are unknown: {loss_message}.", class_="notice") if loss_message else None


def dead_letter_link(status: SyncStatus) -> Content:
    """Return the number of the sync's dead letters; it links to the dead letters if there are any."""
    if not status.queue:
        return NO_VALUE
    dead_count = format_number(status.queue.dead_units)
    link = ui_urls.queue_url(status.sync.id)
    return element("a", dead_count, href=link, class_="bad") if status.queue.dead_units else dead_count
