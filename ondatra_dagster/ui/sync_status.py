"""The status of a sync: its queue, its newest runs, a run in progress, and its health in a word."""

import dataclasses
import enum

from ondatra_dagster.app.workspace import Workspace
from ondatra_dagster.delivery.queue.queue_status import QueueStatus
from ondatra_dagster.sync.live_progress import LiveProgress, read_live_progress
from ondatra_dagster.sync.run_history import PastRun, RunResult
from ondatra_dagster.sync.run_summary import GridRow
from ondatra_dagster.sync.sync_definition import Sync
from ondatra_dagster.ui import page_urls
from ondatra_dagster.ui.html_builder import Content, element
from ondatra_dagster.ui.run_display import read_run_counts
from ondatra_dagster.ui.value_formatting import NO_VALUE, format_number


class Health(enum.StrEnum):
    """The health of a sync: the first of these that is true."""

    RUNNING = "running"
    PAUSED = "paused"
    NEVER_RAN = "never ran"
    FAILING = "failing"  # its newest run did
    QUEUE_LOST = "queue lost"  # its next run finds out what waits
    REJECTS = "rejects"  # rows were refused in it, or are dead letters
    WAITING = "waiting"  # rows are still to be delivered
    OK = "ok"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class SyncStatus:
    sync: Sync
    queue: QueueStatus | None  # None: it never ran, or its queue is lost
    queue_lost_message: str | None  # what becomes of that
    runs: tuple[PastRun, ...]  # the newest first, without dry ones
    progress: LiveProgress | None
    is_paused: bool

    @property
    def last_run(self) -> PastRun | None:
        return next(iter(self.runs), None)

    @property
    def health(self) -> Health:
        last, queue = self.last_run, self.queue
        asked = {
            Health.RUNNING: self.progress is not None,
            Health.PAUSED: self.is_paused,
            Health.NEVER_RAN: last is None and queue is None,
            Health.FAILING: last is not None and last.result in (RunResult.FAILED, RunResult.CRASHED),
            Health.QUEUE_LOST: self.queue_lost_message is not None,
            Health.REJECTS: bool(
                (queue and queue.dead_units) or (last and read_run_counts(last).total(GridRow.REJECTED))
            ),
            Health.WAITING: bool(queue and queue.depth),
        }
        return next((health for health, is_true in asked.items() if is_true), Health.OK)


def read_sync_status(workspace: Workspace, sync: Sync, *, runs: int) -> SyncStatus:
    """Read the sync's status, with `runs` of its newest runs."""
    queue, lost = workspace.queue(sync.id), workspace.try_read_queue(sync.id).loss_message
    return SyncStatus(
        sync=sync,
        queue=None if lost else queue,
        queue_lost_message=lost,
        runs=workspace.history.list_runs(sync.id, limit=runs),
        progress=read_live_progress(sync, workspace.tracking, clock=workspace.clock),
        is_paused=sync.pause_file.exists(),
    )


def queue_lost_notice(workspace: Workspace, sync: Sync) -> Content:
    """Return a notice if the queue is lost: what waits is unknown."""
    lost = workspace.try_read_queue(sync.id).loss_message
    return element("p", f"Nobody knows what waits: {lost}.", class_="notice") if lost else None


def dead_letter_link(status: SyncStatus) -> Content:
    """Return the number of dead letters, as a link to them if there are any."""
    if not status.queue:
        return NO_VALUE
    dead = format_number(status.queue.dead_units)
    link = page_urls.queue_url(status.sync.id)
    return element("a", dead, href=link, class_="bad") if status.queue.dead_units else dead
