"""The maintenance task that deletes records older than the retention period.

It keeps what isn't in the sync log yet, the newest run, the newest snapshot, and the records of later runs,
from which a lost queue is rebuilt. It keeps a short form of what a resync needs from deleted runs. Unfinished
files of killed processes are always deleted.
"""

import dataclasses
import itertools
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

from ondatra_dagster.clock_jumps import is_from_future
from ondatra_dagster.errors import BusyError
from ondatra_dagster.operations.maintenance_task_runner import TaskResult
from ondatra_dagster.operations.sync_log_appender import SyncLogAppender
from ondatra_dagster.records.record_store import RecordStore
from ondatra_dagster.records.sync_log_feed import SyncLogPosition, list_missing_row_groups_of_run
from ondatra_dagster.storage.file_lock import FileLock
from ondatra_dagster.sync.recovery.delivered_keys import store_delivered_keys
from ondatra_dagster.sync.run_context import parse_start_time
from ondatra_dagster.sync.sync_definition import Sync
from ondatra_dagster.text_format import format_count

RETENTION_TASK = "tracking_retention"
ABANDONED_AFTER = timedelta(days=1)  # to which nobody has written for so long: its writer is gone


@dataclasses.dataclass(slots=True)
class _PruneCounts:
    runs: int = 0
    bytes: int = 0
    unfinished_files: int = 0  # files that were never finished
    busy_syncs: list[str] = dataclasses.field(default_factory=list)  # syncs that were at work


def prune_records(
    tracking: RecordStore, log: SyncLogAppender, syncs: Mapping[str, Sync], *, days: int | None, now: datetime
) -> TaskResult:
    """Remove the runs that began more than so many days ago; with None no run goes."""
    pruned = _PruneCounts()
    if days is not None:
        pruning = _RecordPruner(tracking, log.position(), pruned, now=now, days=days)
        for sync_id in tracking.list_syncs():
            pruning.prune_sync(sync_id, syncs.get(sync_id))
    swept = tracking.remove_leftovers(before=now - ABANDONED_AFTER)
    pruned.unfinished_files += len(swept)
    pruned.bytes += sum(swept)
    return _task_result(pruned, days)


def _task_result(pruned: _PruneCounts, days: int | None) -> TaskResult:
    kept = "records are kept for ever"
    gone = f"records of {format_count(pruned.runs, 'run')} older than {format_count(days or 0, 'day')} are gone"
    parts = f"; removed {format_count(pruned.unfinished_files, 'file')} that killed processes left half written"
    size = f", {format_count(pruned.bytes, 'byte')}" if pruned.runs or pruned.unfinished_files else ""
    busy = f"; at work, and left for the next time: {', '.join(pruned.busy_syncs)}" if pruned.busy_syncs else ""
    return TaskResult(
        task=RETENTION_TASK,
        message=f"{kept if days is None else gone}{parts if pruned.unfinished_files else ''}{size}{busy}",
        counts={"runs": pruned.runs, "parts": pruned.unfinished_files, "bytes": pruned.bytes},
    )


class _RecordPruner:
    """One pass over the syncs."""

    def __init__(
        self, tracking: RecordStore, position: SyncLogPosition, pruned: _PruneCounts, *, now: datetime, days: int
    ) -> None:
        self.counts = pruned
        self._tracking = tracking
        self._position = position
        self._now = now
        self._cutoff = now - timedelta(days=days)

    def prune_sync(self, sync_id: str, sync: Sync | None) -> None:
        """Remove a sync's old runs; of one that the project no longer has, nothing is kept in short."""
        old = self._removable_runs(sync_id)
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
            self.counts.busy_syncs.append(sync_id)

    def _removable_runs(self, sync_id: str) -> list[str]:
        """The oldest runs, up to the first one that has to stay."""
        snapshot_runs = self._tracking.list_snapshot_runs(sync_id)
        if not snapshot_runs:  # the records are all that is known of what the API holds
            return []
        runs = [run_id for run_id in self._tracking.list_runs(sync_id) if parse_start_time(run_id)]
        begun = self._start_times(sync_id, runs)
        before_newest = itertools.takewhile(lambda run_id: run_id < snapshot_runs[-1], runs[:-1])
        old = itertools.takewhile(lambda run_id: begun[run_id] < self._cutoff, before_newest)
        return list(itertools.takewhile(lambda run_id: self._is_removable(sync_id, run_id), old))

    def _start_times(self, sync_id: str, runs: Sequence[str]) -> Mapping[str, datetime]:
        """Return when each run began: before all that came after it, whatever the clock said meanwhile."""
        begun: dict[str, datetime] = {}
        before = self._now
        for run_id in reversed(runs):
            before = min(before, self._recorded_start(sync_id, run_id))
            begun[run_id] = before
        return begun

    def _recorded_start(self, sync_id: str, run_id: str) -> datetime:
        """Return a run's begin by its id; by its metadata if the id is ahead, as ids after such a one are."""
        begun = parse_start_time(run_id) or self._now
        if not is_from_future(begun.timestamp(), self._now.timestamp()):
            return begun
        noted = (self._tracking.read_metadata(sync_id, run_id) or {}).get("started_at")
        return datetime.fromisoformat(noted) if isinstance(noted, str) else self._now

    def _is_removable(self, sync_id: str, run_id: str) -> bool:
        return self._tracking.is_own_run(
            self._tracking.read_metadata(sync_id, run_id)
        ) and not list_missing_row_groups_of_run(self._tracking, sync_id, run_id, self._position)

    def _remove_runs(self, sync_id: str, runs: list[str]) -> None:
        for run_id in runs:
            self.counts.bytes += self._tracking.remove_run(sync_id, run_id)
            self.counts.runs += 1
        for run_id in self._tracking.list_snapshot_runs(sync_id)[:-1]:
            if run_id <= runs[-1]:
                self.counts.bytes += self._tracking.remove_snapshot(sync_id, run_id)
