"""How far a sync run has come that goes on, for those who only look."""

import time
from collections.abc import Callable, Mapping
from typing import NamedTuple

from ondatra_dagster.delivery.queue.states import QueueState, look, looking_at
from ondatra_dagster.delivery.queue.unpublished import count_beside, files_begun
from ondatra_dagster.store.database import Store
from ondatra_dagster.store.lock import is_held
from ondatra_dagster.sync.sync import Sync
from ondatra_dagster.tracking.addresses import BatchType, NumberedFile
from ondatra_dagster.tracking.store import TrackingStore


class Progress(NamedTuple):
    """A run on its way."""

    run_id: str
    records: int  # of rows that have ended
    keys: int  # that it has still to send


def progress(
    sync: Sync, tracking: TrackingStore, *, clock: Callable[[], float] = time.time
) -> Progress | None:
    """Of the sync's run that goes on; None when there is none.

    One that was cut off has left the same in the queue, so what tells is whether a process holds that.
    """
    if not is_held(sync.lock):
        return None
    with looking_at(sync.queue) as store:
        if store is None:
            return None
        with store.snapshot():
            begun = files_begun(store)
            if not begun:
                return None
            run_id = max(begun)
            files = _files(tracking, sync, run_id, begun[run_id])
            beside = sum(_beside(store, run_id, kind, files) for kind in BatchType)
            state: QueueState = look(store, now=clock())
    return Progress(run_id, beside + tracking.count_records(sync.id, run_id, files), state.pending)


def _files(tracking: TrackingStore, sync: Sync, run_id: str, begun: Mapping[str, int]) -> list[NumberedFile]:
    """The run's files whose rows had been chosen when the queue was looked at."""
    listed = tracking.record_files(sync.id, run_id)
    return [(kind, number) for kind, number in listed if number < begun.get(kind, 0)]


def _beside(store: Store, run_id: str, kind: BatchType, files: list[NumberedFile]) -> int:
    return count_beside(store, run_id, kind, [number for each, number in files if each is kind])
