"""The tags by which a Dagster run is asked for something: theirs are the words of `ondatra run`'s options."""

from collections.abc import Mapping

TRIGGER = "ondatra/trigger"  # who asked for the run
DRY_RUN = "ondatra/dry_run"  # nothing is sent, and nothing stays
FULL_REFRESH = "ondatra/full_refresh"  # compute every chosen model anew, into the same table
ALLOW_DELETES = "ondatra/allow_deletes"  # syncs that may pass their @max_deletes, or "true" for all
ALLOW_NEW_STATE = "ondatra/allow_new_state"  # syncs that may start over, or "true"
NO = ("", "false", "no", "0")


def asks_for(tags: Mapping[str, str], tag: str) -> bool:
    """Whether a tag is there and doesn't say no."""
    return tags.get(tag, "").strip().casefold() not in NO
