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

TRIGGER = "ondatra/trigger"  # who asked for the run
DRY_RUN = "ondatra/dry_run"  # nothing is sent, and nothing stays
FULL_REFRESH = "ondatra/full_refresh"  # compute every chosen model anew, into the same table
ALLOW_DELETES = "ondatra/allow_deletes"  # syncs that may pass their @max_deletes, or "true" for all
ALLOW_NEW_STATE = "ondatra/allow_new_state"  # syncs that may start over, or "true"
DEFER_EVENTS_TAG = "dagster/defer_asset_events"  # Dagster's own tag: outputs are no materializations
FALSE_VALUES = ("", "false", "no", "0")


def is_tag_set(tags: Mapping[str, str], tag: str) -> bool:
    """Whether a tag is there and doesn't say no."""
    return tags.get(tag, "").strip().casefold() not in FALSE_VALUES


def mark_dry_run(run: dg.DagsterRun | None) -> bool:
    """Whether a run that begins is a dry one; if so, its outputs are no materializations from here on."""
    if run is None or not is_tag_set(run.tags, DRY_RUN):
        return False
    # half private: Dagster asks the run in memory, whoever started it knows only of our tag
    if isinstance(run.tags, dict):
        run.tags[DEFER_EVENTS_TAG] = "true"
    return True


def read_run_trigger(run: dg.DagsterRun, sync: Sync) -> RunOptions:
    """What made the run happen and what it may do, from its tags."""
    tags = run.tags
    trigger = tags.get(TRIGGER) or tags.get("dagster/sensor_name") or tags.get("dagster/schedule_name")
    return RunOptions(
        trigger=trigger or "Dagster",
        dagster_run_id=run.run_id,
        allows_deletes=_names_sync(tags.get(ALLOW_DELETES, ""), sync),
        allows_new_state=_names_sync(tags.get(ALLOW_NEW_STATE, ""), sync),
    )


def _names_sync(tag: str, sync: Sync) -> bool:
    """Return whether a tag is for this sync: it lists syncs, or says true for all."""
    named = {name.strip().casefold() for name in tag.split(",")}
    return not named.isdisjoint({sync.id.casefold(), sync.model.id, "true"})


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
