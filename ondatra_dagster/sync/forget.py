"""Losing a sync's memory on purpose: what the API holds is nobody's knowledge from then on."""

import re
from collections.abc import Iterator
from pathlib import Path

from ondatra_dagster.delivery.queue.tables import leave_forgotten
from ondatra_dagster.store.file_errors import explained
from ondatra_dagster.store.lock import FileLock
from ondatra_dagster.sync.sync import Sync
from ondatra_dagster.tracking.store import TrackingStore


def forget(sync: Sync, tracking: TrackingStore) -> None:
    """Delete queue, bases and frontier; records and history stay, and the next run asks for a resync.

    The file that is left says just that, or else the queue would pass for one that was lost.
    BusyError when a run of the sync is at it.
    """
    with FileLock(sync.lock, purpose="forgets"):
        # first what a lost queue would be made of
        tracking.forget_frontiers(sync.id)
        for file in _files(sync):
            with explained(file):
                file.unlink(missing_ok=True)
        leave_forgotten(sync.queue)


def _files(sync: Sync) -> Iterator[Path]:
    queue = sync.queue
    yield from (queue.with_name(queue.name + more) for more in ("-wal", "-shm", ""))
    journals = re.compile(re.escape(sync.journal.name) + r"(-\d+|-finalize)?")
    if queue.parent.exists():
        yield from [file for file in queue.parent.iterdir() if journals.fullmatch(file.name)]
