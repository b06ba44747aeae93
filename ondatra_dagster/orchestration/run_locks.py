"""The locks that show which Dagster runs still have a process; the runs of killed processes are closed.

A run holds a lock while it lives; the operating system releases the lock of a killed process. A run that ends
removes its lock, so that it isn't closed as abandoned before Dagster has stored its end.
"""

import contextlib
from collections.abc import Iterator
from pathlib import Path

import dagster as dg

from ondatra_dagster.storage.file_errors import explain_file_errors
from ondatra_dagster.storage.file_lock import FileLock, is_abandoned

LOCK_TAG = ".dagster/ondatra_locked"  # the tag of a run that holds a lock; Dagster's page shows none of these
ACTIVE_STATUSES = [dg.DagsterRunStatus.STARTED, dg.DagsterRunStatus.CANCELING]


@contextlib.contextmanager
def lock_run(instance: dg.DagsterInstance, state: Path, run_id: str) -> Iterator[None]:
    """Show, as long as this process lives, that the run goes on; how it ended is Dagster's to note."""
    with FileLock(_lock_path(state, run_id), purpose=f"Dagster run {run_id}") as lock:
        try:
            instance.add_run_tags(run_id, {LOCK_TAG: "yes"})
            yield
        finally:
            lock.remove_file()


def close_abandoned_runs(instance: dg.DagsterInstance, state: Path) -> None:
    """Call failed what says that it goes on, and has no process any more."""
    for run in instance.get_runs(dg.RunsFilter(statuses=ACTIVE_STATUSES, tags={LOCK_TAG: "yes"})):
        path = _lock_path(state, run.run_id)
        if is_abandoned(path):
            instance.report_run_failed(run, "The process of this run ended without a word")
            with explain_file_errors(path):
                path.unlink(missing_ok=True)


def _lock_path(state: Path, run_id: str) -> Path:
    return state / "locks" / "runs" / f"{run_id}.lock"
