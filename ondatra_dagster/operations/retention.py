"""The duty that removes records which are older than the retention, and that nobody needs any more.

Needed are: what isn't in the sync log yet; the newest run; the newest frontier and the records of runs from
it on, by which a lost queue is made anew. What a resync has to know of the others is kept in short.
"""

import dataclasses
import itertools
from collections.abc import Mapping
from datetime import datetime, timedelta

from ondatra_dagster.errors import BusyError
from ondatra_dagster.operations.maintain import Done
from ondatra_dagster.operations.sync_log import SyncLog
from ondatra_dagster.store.lock import FileLock
from ondatra_dagster.sync.run_id import begun_at
from ondatra_dagster.sync.sent import keep_sent
from ondatra_dagster.sync.sync import Sync
from ondatra_dagster.tracking.log_position import Position
from ondatra_dagster.tracking.log_rows import missing_of
from ondatra_dagster.tracking.store import TrackingStore
from ondatra_dagster.wording import count

RETENTION = "tracking_retention"


@dataclasses.dataclass(slots=True)
class _Pruned:
    runs: int = 0
    bytes: int = 0
    busy: list[str] = dataclasses.field(default_factory=list)  # syncs that were at work


def prune(
    tracking: TrackingStore, log: SyncLog, syncs: Mapping[str, Sync], *, days: int | None, now: datetime
) -> Done:
    """Remove the runs that began more than so many days ago; with None nothing goes."""
    if days is None:
        return Done(duty=RETENTION, did="records are kept for ever")
    pruning = _Pruning(tracking, log.position(), now - timedelta(days=days))
    for sync_id in tracking.syncs():
        pruning.prune(sync_id, syncs.get(sync_id))
    return _told(pruning.pruned, days)


def _told(pruned: _Pruned, days: int) -> Done:
    size = f", {count(pruned.bytes, 'byte')}" if pruned.runs else ""
    busy = f"; at work, and left for the next time: {', '.join(pruned.busy)}" if pruned.busy else ""
    return Done(
        duty=RETENTION,
        did=f"records of {count(pruned.runs, 'run')} older than {count(days, 'day')} are gone{size}{busy}",
        counts={"runs": pruned.runs, "bytes": pruned.bytes},
    )


class _Pruning:
    """One pass over the syncs."""

    def __init__(self, tracking: TrackingStore, position: Position, since: datetime) -> None:
        self.pruned = _Pruned()
        self._tracking = tracking
        self._position = position
        self._since = since

    def prune(self, sync_id: str, sync: Sync | None) -> None:
        """Remove a sync's old runs; of one that the project no longer has, nothing is kept in short."""
        old = self._not_needed(sync_id)
        if not old:
            return
        if sync is None:
            self._remove(sync_id, old)
            return
        try:
            with FileLock(sync.lock, purpose="prunes records"):
                keep_sent(sync, self._tracking, through=old[-1])
                self._remove(sync_id, old)
        except BusyError:
            self.pruned.busy.append(sync_id)

    def _not_needed(self, sync_id: str) -> list[str]:
        """The oldest runs, up to the first one that has to stay."""
        frontiers = self._tracking.frontier_runs(sync_id)
        if not frontiers:  # the records are all that is known of what the API holds
            return []
        runs = [run_id for run_id in self._tracking.runs(sync_id) if begun_at(run_id)]
        before_newest = itertools.takewhile(lambda run_id: run_id < frontiers[-1], runs[:-1])
        return list(itertools.takewhile(lambda run_id: self._may_go(sync_id, run_id), before_newest))

    def _may_go(self, sync_id: str, run_id: str) -> bool:
        return (
            self._is_old(run_id)
            and self._tracking.is_ours(self._tracking.metadata(sync_id, run_id))
            and not missing_of(self._tracking, sync_id, run_id, self._position)
        )

    def _is_old(self, run_id: str) -> bool:
        begun = begun_at(run_id)
        return begun is not None and begun < self._since

    def _remove(self, sync_id: str, runs: list[str]) -> None:
        for run_id in runs:
            self.pruned.bytes += self._tracking.remove_run(sync_id, run_id)
            self.pruned.runs += 1
        for run_id in self._tracking.frontier_runs(sync_id)[:-1]:
            if run_id <= runs[-1]:
                self.pruned.bytes += self._tracking.remove_frontier(sync_id, run_id)
