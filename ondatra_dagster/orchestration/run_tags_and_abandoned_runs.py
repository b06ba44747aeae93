"""The tags that carry options to a Dagster run, and the locks that show which runs still have a process.

The tags have the names of the options of `ondatra run`. A run's process holds a lock. If the process is killed,
the operating system releases the lock, and the run is closed as failed. A run that ends removes its lock file,
so that the run isn't closed as abandoned before Dagster has stored its end.
"""

import contextlib
from collections.abc import Iterator, Mapping
from pathlib import Path

import dagster as dg

from ondatra_dagster.storage.file_errors import explain_file_errors
from ondatra_dagster.storage.file_lock import FileLock, is_abandoned
from ondatra_dagster.sync.run_context import RunOptions
from ondatra_dagster.sync.sync_definition import Sync

TRIGGER = "ondatra/trigger"  # what requested the run
DRY_RUN = "ondatra/dry_run"  # nothing is sent, and nothing is stored
FULL_REFRESH = "ondatra/full_refresh"  # compute every chosen model again, into the same table
ALLOW_DELETES = "ondatra/allow_deletes"  # syncs that may exceed their @max_deletes, or "true" for all
ALLOW_NEW_STATE = "ondatra/allow_new_state"  # syncs that may start over, or "true" for all
DEFER_EVENTS_TAG = "dagster/defer_asset_events"  # Dagster's own tag: outputs don't count as materializations
FALSE_VALUES = ("", "false", "no", "0")


def is_tag_set(tags: Mapping[str, str], tag: str) -> bool:
    """Return whether the tag has a value other than "" or a word for false, such as no or 0."""
    return tags.get(tag, "").strip().casefold() not in FALSE_VALUES


def mark_dry_run(run: dg.DagsterRun | None) -> bool:
    """Return whether a run that begins is a dry run; if so, its outputs don't count as materializations from now on."""
    if run is None or not is_tag_set(run.tags, DRY_RUN):
        return False
    # partly private: Dagster reads the tags of the run in memory; the run was started with ondatra's tag only
    if isinstance(run.tags, dict):
        run.tags[DEFER_EVENTS_TAG] = "true"
    return True


def read_run_trigger(run: dg.DagsterRun, sync: Sync) -> RunOptions:
    """Return what triggered the run, and its options for this sync, from the run's tags."""
    tags = run.tags
    trigger = tags.get(TRIGGER) or tags.get("dagster/sensor_name") or tags.get("dagster/schedule_name")
    return RunOptions(
        trigger=trigger or "Dagster",
        dagster_run_id=run.run_id,
        allows_deletes=_names_sync(tags.get(ALLOW_DELETES, ""), sync),
        allows_new_state=_names_sync(tags.get(ALLOW_NEW_STATE, ""), sync),
    )


def _names_sync(tag: str, sync: Sync) -> bool:
    """Return whether the value of a tag includes this sync: it lists the sync, or is true for all."""
    sync_names = {name.strip().casefold() for name in tag.split(",")}
    return not sync_names.isdisjoint({sync.id.casefold(), sync.model.id, "true"})


LOCK_TAG = ".dagster/ondatra_locked"  # the tag of a run that holds a lock; Dagster's page hides tags with this prefix
ACTIVE_STATUSES = [dg.DagsterRunStatus.STARTED, dg.DagsterRunStatus.CANCELING]


@contextlib.contextmanager
def lock_run(instance: dg.DagsterInstance, state: Path, run_id: str) -> Iterator[None]:
    """Hold a lock in this process, to show that the run continues. Dagster itself stores how the run ended."""
    with FileLock(_lock_path(state, run_id), purpose=f"Dagster run {run_id}") as lock:
        try:
            instance.add_run_tags(run_id, {LOCK_TAG: "yes"})
            yield
        finally:
            lock.remove_file()


def close_abandoned_runs(instance: dg.DagsterInstance, state: Path) -> None:
    """Mark the runs as failed that Dagster shows as open, but that no longer have a process."""
    for run in instance.get_runs(dg.RunsFilter(statuses=ACTIVE_STATUSES, tags={LOCK_TAG: "yes"})):
        path = _lock_path(state, run.run_id)
        if is_abandoned(path):
            instance.report_run_failed(run, "The process of this run ended unexpectedly")
            with explain_file_errors(path):
                path.unlink(missing_ok=True)


def _lock_path(state: Path, run_id: str) -> Path:
    return state / "locks" / "runs" / f"{run_id}.lock"
