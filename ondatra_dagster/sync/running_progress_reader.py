"""The progress of a sync run that hasn't ended, as other processes read it."""

import time
from collections.abc import Callable
from typing import NamedTuple

from ondatra_dagster.delivery.queue.queue_database import open_for_reading
from ondatra_dagster.delivery.queue.queue_status import read_status
from ondatra_dagster.delivery.queue.unpublished_records import count_unpublished_rows, read_started_files
from ondatra_dagster.records.file_paths import RecordFileType
from ondatra_dagster.records.record_store import RecordStore
from ondatra_dagster.storage.file_lock import is_locked
from ondatra_dagster.sync.sync_definition import Sync


class LiveProgress(NamedTuple):
    """A run in progress, and its counts so far."""

    run_id: str
    record_count: int  # records of rows that have ended
    pending_keys: int  # keys that are still to be sent


def read_live_progress(
    sync: Sync, tracking: RecordStore, *, clock: Callable[[], float] = time.time
) -> LiveProgress | None:
    """Return the progress of the sync's current run; None if no run is in progress.

    A crashed run leaves the same notes in the queue as a current run. Only a current run's process holds the
    sync's lock, so the lock is checked first.
    """
    if not is_locked(sync.lock_file):
        return None
    with open_for_reading(sync.queue_file) as store:
        if store is None:
            return None
        with store.read_transaction():
            file_numbers_by_run = read_started_files(store)
            if not file_numbers_by_run:
                return None
            run_id = max(file_numbers_by_run)
            published_files = tracking.list_record_files(sync.id, run_id)
            # only files whose rows had been chosen when the queue was read
            files = [
                (kind, number) for kind, number in published_files if number < file_numbers_by_run[run_id].get(kind, 0)
            ]
            unpublished_rows = sum(
                count_unpublished_rows(
                    store, run_id, kind, [number for file_kind, number in files if file_kind is kind]
                )
                for kind in RecordFileType
            )
            pending_keys = read_status(store, now=clock()).pending_units
    return LiveProgress(run_id, unpublished_rows + tracking.count_records(sync.id, run_id, files), pending_keys)
