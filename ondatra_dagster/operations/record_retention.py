"""The maintenance task that deletes records older than the retention period.

It keeps records that aren't in the sync log yet, the newest run, the newest snapshot, and the records of later runs,
from which a lost queue is rebuilt. It keeps a short form of the data that a resync needs from deleted runs. Unfinished
files of killed processes are always deleted.
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
    """Delete the runs that began more than `days` days ago; none if `days` is None."""
    pruning = _RecordPruner(tracking, now)
    if days is not None:
        position, cutoff = log.position(), now - timedelta(days=days)
        for sync_id in tracking.list_syncs():
            pruning.prune_sync(sync_id, syncs.get(sync_id), position, cutoff)
    swept = tracking.remove_leftovers(before=now - ABANDONED_AFTER)
    freed = pruning.bytes + sum(swept)
    kept = "records are kept for ever"
    gone = f"records of {format_count(pruning.runs, 'run')} older than {format_count(days or 0, 'day')} are gone"
    parts = f"; removed {format_count(len(swept), 'file')} that killed processes left half written" if swept else ""
    size = f", {format_count(freed, 'byte')}" if pruning.runs or swept else ""
    busy = f"; at work, and left for the next time: {', '.join(pruning.busy_syncs)}" if pruning.busy_syncs else ""
    return TaskResult(
        task=RETENTION_TASK,
        message=f"{kept if days is None else gone}{parts}{size}{busy}",
        counts={"runs": pruning.runs, "parts": len(swept), "bytes": freed},
    )


class _RecordPruner:
    """A pass over the syncs, which counts the deleted runs and bytes."""

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
                store_delivered_keys(sync, self._tracking, through=old[-1])
                self._remove_runs(sync_id, old)
        except BusyError:
            self.busy_syncs.append(sync_id)

    def _removable_runs(self, sync_id: str, position: SyncLogPosition, cutoff: datetime) -> list[str]:
        """Return the oldest runs, up to the first one that has to be kept."""
        snapshot_runs = self._tracking.list_snapshot_runs(sync_id)
        if not snapshot_runs:  # only the records show what the API holds
            return []
        runs = [run_id for run_id in self._tracking.list_runs(sync_id) if parse_start_time(run_id)]
        begun = self._start_times(sync_id, runs)
        before_newest = itertools.takewhile(lambda run_id: run_id < snapshot_runs[-1], runs[:-1])
        old = itertools.takewhile(lambda run_id: begun[run_id] < cutoff, before_newest)
        return list(itertools.takewhile(lambda run_id: self._is_removable(sync_id, run_id, position), old))

    def _start_times(self, sync_id: str, runs: Sequence[str]) -> Mapping[str, datetime]:
        """Return the start of each run: at or before the starts of later runs, even if the clock was wrong."""
        begun: dict[str, datetime] = {}
        before = self._now
        for run_id in reversed(runs):
            before = min(before, self._recorded_start(sync_id, run_id))
            begun[run_id] = before
        return begun

    def _recorded_start(self, sync_id: str, run_id: str) -> datetime:
        """Return a run's start by its id, or by its metadata if the id's time is in the future.

        After an id in the future, later ids are in the future, too.
        """
        begun = parse_start_time(run_id) or self._now
        if not is_from_future(begun.timestamp(), self._now.timestamp()):
            return begun
        noted = (self._tracking.read_metadata(sync_id, run_id) or {}).get("started_at")
        return datetime.fromisoformat(noted) if isinstance(noted, str) else self._now

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
