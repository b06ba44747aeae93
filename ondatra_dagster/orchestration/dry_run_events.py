"""The Dagster events of a dry run: observations. Nothing was made, so nothing is materialized or checked.

Sensors, automation conditions and asset pages use materializations, data versions and check results. A dry run
emits none of them.
"""

from collections.abc import Iterator, Mapping
from typing import TypeAlias

import dagster as dg

from ondatra_dagster.orchestration import dagster_metadata
from ondatra_dagster.orchestration.run_tags import DRY_RUN, is_tag_set

DEFER_EVENTS_TAG = "dagster/defer_asset_events"  # Dagster's own tag: outputs are no materializations
DryRunEvent: TypeAlias = dg.AssetObservation | dg.MaterializeResult[None] | dg.Output[None]


def is_dry_run(tags: Mapping[str, str]) -> bool:
    """Whether a run with these tags is a dry one."""
    return is_tag_set(tags, DRY_RUN)


def mark_dry_run(run: dg.DagsterRun | None) -> bool:
    """Whether a run that begins is a dry one; if so, its outputs are no materializations from here on."""
    if run is None or not is_dry_run(run.tags):
        return False
    # half private: Dagster asks the run in memory, whoever started it knows only of our tag
    if isinstance(run.tags, dict):
        run.tags[DEFER_EVENTS_TAG] = "true"
    return True


def observe_dry_run(
    context: dg.AssetExecutionContext, key: dg.AssetKey, metadata: dagster_metadata.Metadata
) -> Iterator[DryRunEvent]:
    """End a step that made nothing: what it found, and outputs for those that come after it."""
    if context.run.tags.get(DEFER_EVENTS_TAG) != "true":
        raise dg.Failure(f"Dagster would take this for a real run; add the tag {DEFER_EVENTS_TAG}=true")
    yield dg.AssetObservation(key, metadata={"dry run": dg.MetadataValue.bool(True), **metadata})
    yield dg.MaterializeResult(asset_key=key)
    for name in context.assets_def.check_specs_by_output_name:
        yield dg.Output(None, output_name=name)
