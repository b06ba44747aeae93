"""What Dagster hears of a dry run: observations. Nothing was made, so nothing is materialized or checked.

Sensors, conditions and the assets' own pages go by materializations, data versions and check results: a dry
run gives none of them.
"""

from collections.abc import Iterator, Mapping
from typing import TypeAlias

import dagster as dg

from ondatra_dagster.orchestration import shown
from ondatra_dagster.orchestration.run_tags import DRY_RUN, asks_for

WITHOUT_MATERIALIZATIONS = "dagster/defer_asset_events"  # Dagster's own tag: outputs are no materializations
Observed: TypeAlias = dg.AssetObservation | dg.MaterializeResult[None] | dg.Output[None]


def is_dry(tags: Mapping[str, str]) -> bool:
    """Whether a run with these tags is a dry one."""
    return asks_for(tags, DRY_RUN)


def begin(run: dg.DagsterRun | None) -> bool:
    """Whether a run that begins is a dry one; if so, its outputs are no materializations from here on."""
    if run is None or not is_dry(run.tags):
        return False
    # half private: Dagster asks the run in memory, whoever started it knows only of our tag
    if isinstance(run.tags, dict):
        run.tags[WITHOUT_MATERIALIZATIONS] = "true"
    return True


def observed(
    context: dg.AssetExecutionContext, key: dg.AssetKey, metadata: shown.Metadata
) -> Iterator[Observed]:
    """End a step that made nothing: what it found, and outputs for those that come after it."""
    if context.run.tags.get(WITHOUT_MATERIALIZATIONS) != "true":
        raise dg.Failure(
            f"Dagster would take this for a real run; add the tag {WITHOUT_MATERIALIZATIONS}=true"
        )
    yield dg.AssetObservation(key, metadata={"dry run": dg.MetadataValue.bool(True), **metadata})
    yield dg.MaterializeResult(asset_key=key)
    for name in context.assets_def.check_specs_by_output_name:
        yield dg.Output(None, output_name=name)
