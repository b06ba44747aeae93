"""The tags that carry options to a Dagster run; they have the names of `ondatra run`'s options."""

from collections.abc import Mapping

import dagster as dg

from ondatra_dagster.sync.run_context import RunOptions
from ondatra_dagster.sync.sync_definition import Sync

TRIGGER = "ondatra/trigger"  # who asked for the run
DRY_RUN = "ondatra/dry_run"  # nothing is sent, and nothing stays
FULL_REFRESH = "ondatra/full_refresh"  # compute every chosen model anew, into the same table
ALLOW_DELETES = "ondatra/allow_deletes"  # syncs that may pass their @max_deletes, or "true" for all
ALLOW_NEW_STATE = "ondatra/allow_new_state"  # syncs that may start over, or "true"
FALSE_VALUES = ("", "false", "no", "0")


def is_tag_set(tags: Mapping[str, str], tag: str) -> bool:
    """Whether a tag is there and doesn't say no."""
    return tags.get(tag, "").strip().casefold() not in FALSE_VALUES


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
