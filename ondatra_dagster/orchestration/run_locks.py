"""Which Dagster runs still have a process: a run that was killed says "started" for ever, and others wait.

A run holds a lock while it lives, which the operating system takes from a dead one; one that ends takes its
lock away, so that it isn't called dead before Dagster has noted its end.
"""

import contextlib
from collections.abc import Iterator
from pathlib import Path

import dagster as dg

from ondatra_dagster.store.file_errors import explained
from ondatra_dagster.store.lock import FileLock, is_left_behind

LOCKED = ".dagster/ondatra_locked"  # the tag of a run that holds a lock; Dagster's page shows none of these
GOING_ON = [dg.DagsterRunStatus.STARTED, dg.DagsterRunStatus.CANCELING]


@contextlib.contextmanager
def lock_run(instance: dg.DagsterInstance, state: Path, run_id: str) -> Iterator[None]:
    """Show, as long as this process lives, that the run goes on; how it ended is Dagster's to note."""
    with FileLock(_path(state, run_id), purpose=f"Dagster run {run_id}") as lock:
        try:
            instance.add_run_tags(run_id, {LOCKED: "yes"})
            yield
        finally:
            lock.take_away()


def close_abandoned_runs(instance: dg.DagsterInstance, state: Path) -> None:
    """Call failed what says that it goes on, and has no process any more."""
    for run in instance.get_runs(dg.RunsFilter(statuses=GOING_ON, tags={LOCKED: "yes"})):
        path = _path(state, run.run_id)
        if is_left_behind(path):
            instance.report_run_failed(run, "The process of this run ended without a word")
            with explained(path):
                path.unlink(missing_ok=True)


def _path(state: Path, run_id: str) -> Path:
    return state / "locks" / "runs" / f"{run_id}.lock"
