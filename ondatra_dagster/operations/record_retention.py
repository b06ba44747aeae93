"""The maintenance task that deletes records older than the retention period.

It keeps records that aren't in the sync log yet, the newest run, the newest snapshot, and the records of later
runs. A lost queue is rebuilt from this snapshot and these records. The task keeps a short form of the data that
a resync needs from deleted runs. It always deletes unfinished files of killed processes.
"""

import itertools
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

from ondatra_dagster.count_time_and_size_format import format_count
from ondatra_dagster.errors import BusyError
from ondatra_dagster.future_time_correction import is_from_future
from ondatra_dagster.operations.maintenance_task_runner import TaskResult
from ondatra_dagster.operations.sync_log_appender import SyncLogAppender
from ondatra_dagster.records.record_store import RecordStore
from ondatra_dagster.records.sync_log_feed import SyncLogPosition, list_missing_row_groups_of_run
from ondatra_dagster.storage.file_lock import FileLock
from ondatra_dagster.sync.recovery.delivered_keys_for_resync import store_delivered_keys
from ondatra_dagster.sync.run_context import parse_start_time
from ondatra_dagster.sync.sync_definition import Sync

RETENTION_TASK = "tracking_retention"
ABANDONED_AFTER = timedelta(days=1)  # after this time without a write, the file's writer is gone


def prune_records(
    tracking: RecordStore, log: SyncLogAppender, syncs: Mapping[str, Sync], *, days: int | None, now: datetime
) -> TaskResult:
    """Delete the records of runs that began more than `days` days ago; if `days` is None, delete none."""
    pruner = _RecordPruner(tracking, now)
    if days is not None:
        position, cutoff = log.position(), now - timedelta(days=days)
        for sync_id in tracking.list_syncs():
            pruner.prune_sync(sync_id, syncs.get(sync_id), position, cutoff)
    leftover_sizes = tracking.remove_leftovers(before=now - ABANDONED_AFTER)
    freed_bytes = pruner.bytes + sum(leftover_sizes)
    no_limit_text = "records are kept for ever"
    deleted_text = (
        f"records of {format_count(pruner.runs, 'run')} older than {format_count(days or 0, 'day')} were removed"
    )
    leftover_note = (
        f"; removed {format_count(len(leftover_sizes), 'file')} that killed processes left incomplete"
        if leftover_sizes
        else ""
    )
    size_note = f", {format_count(freed_bytes, 'byte')}" if pruner.runs or leftover_sizes else ""
    busy_note = f"; in use, so skipped this time: {', '.join(pruner.busy_syncs)}" if pruner.busy_syncs else ""
    return TaskResult(
        task=RETENTION_TASK,
        message=f"{no_limit_text if days is None else deleted_text}{leftover_note}{size_note}{busy_note}",
        counts={"runs": pruner.runs, "parts": len(leftover_sizes), "bytes": freed_bytes},
    )


class _RecordPruner:
    """A pass over all syncs, which deletes old runs and counts the deleted runs and bytes."""

    def __init__(self, tracking: RecordStore, now: datetime) -> None:
        self._tracking = tracking
        self._now = now
        self.runs = 0
        self.bytes = 0
        self.busy_syncs: list[str] = []  # syncs that another process was running

    def prune_sync(self, sync_id: str, sync: Sync | None, position: SyncLogPosition, cutoff: datetime) -> None:
        """Delete a sync's old runs. If the project no longer has the sync, no short form is kept."""
        old = self._removable_runs(sync_id, position, cutoff)
        if not old:
            return
        if sync is None:
            self._remove_runs(sync_id, old)
            return
        try:
            with FileLock(sync.lock_file, purpose="prunes records"):
                store_delivered_keys(sync, self._tracking, last_run=old[-1])
                self._remove_runs(sync_id, old)
        except BusyError:
            self.busy_syncs.append(sync_id)

    def _removable_runs(self, sync_id: str, position: SyncLogPosition, cutoff: datetime) -> list[str]:
        """Return the runs that may be deleted: the oldest ones, up to the first run that must be kept."""
        snapshot_runs = self._tracking.list_snapshot_runs(sync_id)
        if not snapshot_runs:  # without a snapshot, only the records show what the API has
            return []
        runs = [run_id for run_id in self._tracking.list_runs(sync_id) if parse_start_time(run_id)]
        start_times = self._start_times(sync_id, runs)
        before_newest = itertools.takewhile(lambda run_id: run_id < snapshot_runs[-1], runs[:-1])
        old_runs = itertools.takewhile(lambda run_id: start_times[run_id] < cutoff, before_newest)
        return list(itertools.takewhile(lambda run_id: self._is_removable(sync_id, run_id, position), old_runs))

    def _start_times(self, sync_id: str, runs: Sequence[str]) -> Mapping[str, datetime]:
        """Return the start of each run. No start is later than that of a later run, even if the clock was wrong."""
        start_times: dict[str, datetime] = {}
        start_time = self._now
        for run_id in reversed(runs):
            start_time = min(start_time, self._recorded_start(sync_id, run_id))
            start_times[run_id] = start_time
        return start_times

    def _recorded_start(self, sync_id: str, run_id: str) -> datetime:
        """Return the start of a run from its id, or from its metadata if the time in the id is in the future.

        A run id always sorts after earlier run ids. So after one id in the future, all later ids are in the
        future, too.
        """
        start_time = parse_start_time(run_id) or self._now
        if not is_from_future(start_time.timestamp(), self._now.timestamp()):
            return start_time
        started_at = (self._tracking.read_metadata(sync_id, run_id) or {}).get("started_at")
        return datetime.fromisoformat(started_at) if isinstance(started_at, str) else self._now

    def _is_removable(self, sync_id: str, run_id: str, position: SyncLogPosition) -> bool:
        return self._tracking.is_own_run(
            self._tracking.read_metadata(sync_id, run_id)
        ) and not list_missing_row_groups_of_run(self._tracking, sync_id, run_id, position)

    def _remove_runs(self, sync_id: str, runs: list[str]) -> None:
        for run_id in runs:
            self.bytes += self._tracking.remove_run(sync_id, run_id)
            self.runs += 1
        for run_id in self._tracking.list_snapshot_runs(sync_id)[:-1]:
            if run_id <= runs[-1]:
                self.bytes += self._tracking.remove_snapshot(sync_id, run_id)
