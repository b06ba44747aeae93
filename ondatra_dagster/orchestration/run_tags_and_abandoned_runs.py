"""The tags that carry options to a Dagster run, and the locks that show which runs still have a process.

The tags have the names of `ondatra run`'s options. A run holds a lock while it lives; the operating system releases
the lock of a killed process, and such runs are closed. A run that ends removes its lock, so that it isn't closed as
abandoned before Dagster has stored its end.
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
ALLOW_NEW_STATE = "ondatra/allow_new_state"  # syncs that may start over, or "true"
DEFER_EVENTS_TAG = "dagster/defer_asset_events"  # Dagster's own tag: outputs are no materializations
FALSE_VALUES = ("", "false", "no", "0")


def is_tag_set(tags: Mapping[str, str], tag: str) -> bool:
    """Return whether a tag is set, and not to a value such as false."""
    return tags.get(tag, "").strip().casefold() not in FALSE_VALUES


def mark_dry_run(run: dg.DagsterRun | None) -> bool:
    """Return whether a run that begins is a dry run; if so, its outputs are no materializations from now on."""
    if run is None or not is_tag_set(run.tags, DRY_RUN):
        return False
    # partly private: Dagster reads the tags of the run in memory; the run was started with ondatra's tag only
    if isinstance(run.tags, dict):
        run.tags[DEFER_EVENTS_TAG] = "true"
    return True


def read_run_trigger(run: dg.DagsterRun, sync: Sync) -> RunOptions:
    """Return the trigger of the run and its options, from its tags."""
    tags = run.tags
    trigger = tags.get(TRIGGER) or tags.get("dagster/sensor_name") or tags.get("dagster/schedule_name")
    return RunOptions(
        trigger=trigger or "Dagster",
        dagster_run_id=run.run_id,
        allows_deletes=_names_sync(tags.get(ALLOW_DELETES, ""), sync),
        allows_new_state=_names_sync(tags.get(ALLOW_NEW_STATE, ""), sync),
    )


def _names_sync(tag: str, sync: Sync) -> bool:
    """Return whether a tag is for this sync: it lists syncs, or is true for all."""
    sync_names = {name.strip().casefold() for name in tag.split(",")}
    return not sync_names.isdisjoint({sync.id.casefold(), sync.model.id, "true"})


LOCK_TAG = ".dagster/ondatra_locked"  # the tag of a run that holds a lock; Dagster's page hides tags with this prefix
ACTIVE_STATUSES = [dg.DagsterRunStatus.STARTED, dg.DagsterRunStatus.CANCELING]


@contextlib.contextmanager
def lock_run(instance: dg.DagsterInstance, state: Path, run_id: str) -> Iterator[None]:
    """Hold a lock while this process lives, to show that the run continues. Dagster itself stores how it ended."""
    with FileLock(_lock_path(state, run_id), purpose=f"Dagster run {run_id}") as lock:
        try:
            instance.add_run_tags(run_id, {LOCK_TAG: "yes"})
            yield
        finally:
            lock.remove_file()


def close_abandoned_runs(instance: dg.DagsterInstance, state: Path) -> None:
    """Mark runs as failed that are open in Dagster, but no longer have a process."""
    for run in instance.get_runs(dg.RunsFilter(statuses=ACTIVE_STATUSES, tags={LOCK_TAG: "yes"})):
        path = _lock_path(state, run.run_id)
        if is_abandoned(path):
            instance.report_run_failed(run, "The process of this run ended unexpectedly")
            with explain_file_errors(path):
                path.unlink(missing_ok=True)


def _lock_path(state: Path, run_id: str) -> Path:
    return state / "locks" / "runs" / f"{run_id}.lock"
