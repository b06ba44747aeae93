"""The duty that removes records which are older than the retention, and what nobody needs any more.

Needed are: what isn't in the sync log yet; the newest run; the newest frontier and the records of runs from
it on, by which a lost queue is made anew. What a resync has to know of the others is kept in short.
What killed processes left half written goes whatever the retention is.
"""

import dataclasses
import itertools
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

from ondatra_dagster.clock_jumps import is_ahead
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
LEFT_BEHIND = timedelta(days=1)  # to which nobody has written for so long: its writer is gone


@dataclasses.dataclass(slots=True)
class _Pruned:
    runs: int = 0
    bytes: int = 0
    parts: int = 0  # files that were never finished
    busy: list[str] = dataclasses.field(default_factory=list)  # syncs that were at work


def prune(
    tracking: TrackingStore, log: SyncLog, syncs: Mapping[str, Sync], *, days: int | None, now: datetime
) -> Done:
    """Remove the runs that began more than so many days ago; with None no run goes."""
    pruned = _Pruned()
    if days is not None:
        pruning = _Pruning(tracking, log.position(), pruned, now=now, days=days)
        for sync_id in tracking.syncs():
            pruning.prune(sync_id, syncs.get(sync_id))
    swept = tracking.sweep(before=now - LEFT_BEHIND)
    pruned.parts += len(swept)
    pruned.bytes += sum(swept)
    return _told(pruned, days)


def _told(pruned: _Pruned, days: int | None) -> Done:
    kept = "records are kept for ever"
    gone = f"records of {count(pruned.runs, 'run')} older than {count(days or 0, 'day')} are gone"
    parts = f"; removed {count(pruned.parts, 'file')} that killed processes left half written"
    size = f", {count(pruned.bytes, 'byte')}" if pruned.runs or pruned.parts else ""
    busy = f"; at work, and left for the next time: {', '.join(pruned.busy)}" if pruned.busy else ""
    return Done(
        duty=RETENTION,
        did=f"{kept if days is None else gone}{parts if pruned.parts else ''}{size}{busy}",
        counts={"runs": pruned.runs, "parts": pruned.parts, "bytes": pruned.bytes},
    )


class _Pruning:
    """One pass over the syncs."""

    def __init__(
        self, tracking: TrackingStore, position: Position, pruned: _Pruned, *, now: datetime, days: int
    ) -> None:
        self.pruned = pruned
        self._tracking = tracking
        self._position = position
        self._now = now
        self._since = now - timedelta(days=days)

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
        begun = self._begun(sync_id, runs)
        before_newest = itertools.takewhile(lambda run_id: run_id < frontiers[-1], runs[:-1])
        old = itertools.takewhile(lambda run_id: begun[run_id] < self._since, before_newest)
        return list(itertools.takewhile(lambda run_id: self._may_go(sync_id, run_id), old))

    def _begun(self, sync_id: str, runs: Sequence[str]) -> Mapping[str, datetime]:
        """Return when each run began: before all that came after it, whatever the clock said meanwhile."""
        begun: dict[str, datetime] = {}
        before = self._now
        for run_id in reversed(runs):
            before = min(before, self._noted_begin(sync_id, run_id))
            begun[run_id] = before
        return begun

    def _noted_begin(self, sync_id: str, run_id: str) -> datetime:
        """Return a run's begin by its id; by its metadata if the id is ahead, as ids after such a one are."""
        begun = begun_at(run_id) or self._now
        if not is_ahead(begun.timestamp(), self._now.timestamp()):
            return begun
        noted = (self._tracking.metadata(sync_id, run_id) or {}).get("started_at")
        return datetime.fromisoformat(noted) if isinstance(noted, str) else self._now

    def _may_go(self, sync_id: str, run_id: str) -> bool:
        return self._tracking.is_ours(self._tracking.metadata(sync_id, run_id)) and not missing_of(
            self._tracking, sync_id, run_id, self._position
        )

    def _remove(self, sync_id: str, runs: list[str]) -> None:
        for run_id in runs:
            self.pruned.bytes += self._tracking.remove_run(sync_id, run_id)
            self.pruned.runs += 1
        for run_id in self._tracking.frontier_runs(sync_id)[:-1]:
            if run_id <= runs[-1]:
                self.pruned.bytes += self._tracking.remove_frontier(sync_id, run_id)
