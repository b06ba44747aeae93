"""One asset a sync, push/<model path>: what a model's rows are at their destination."""

from collections.abc import Iterator

import dagster as dg

from ondatra_dagster.operations.alert_book import SubjectType
from ondatra_dagster.orchestration import shown
from ondatra_dagster.orchestration.checks import check_reports
from ondatra_dagster.orchestration.dry_events import Observed, observed
from ondatra_dagster.orchestration.engine import Engine
from ondatra_dagster.orchestration.naming import model_key, op_name, sink_key
from ondatra_dagster.orchestration.progress import SyncResult
from ondatra_dagster.orchestration.records_page import RecordsPlaces
from ondatra_dagster.orchestration.resources import POOL, failures
from ondatra_dagster.orchestration.run_tags import ALLOW_DELETES, ALLOW_NEW_STATE, TRIGGER
from ondatra_dagster.sync.start import Occasion
from ondatra_dagster.sync.sync import Sync


def sink_asset(sync: Sync) -> dg.AssetsDefinition:
    """The asset that a run of the sync materializes."""
    key = sink_key(sync.model)

    @dg.multi_asset(name=op_name(key), specs=[_spec(sync)], pool=POOL)
    def push(
        context: dg.AssetExecutionContext, ondatra: dg.ResourceParam[Engine]
    ) -> Iterator[dg.AssetCheckEvaluation | dg.MaterializeResult[None] | Observed]:
        with failures(ondatra, sync.id, SubjectType.SYNC):
            result = ondatra.push(sync, occasion(context.run, sync))
            metadata = _told(context, result, ondatra.records_places(result))
            if result.errors:
                if not ondatra.is_dry:
                    yield from check_reports(dg.AssetCheckEvaluation, key, result.verdicts)
                sentence = "; ".join(verdict.description for verdict in result.errors)
                raise dg.Failure(sentence, metadata=metadata, allow_retries=False)
            if ondatra.is_dry:
                yield from observed(context, key, metadata)
            else:
                yield dg.MaterializeResult(asset_key=key, metadata=metadata)

    return push


def _told(context: dg.AssetExecutionContext, result: SyncResult, places: RecordsPlaces) -> shown.Metadata:
    for warning in result.warnings:
        context.log.warning(warning)
    return shown.push_metadata(result, places)


def occasion(run: dg.DagsterRun, sync: Sync) -> Occasion:
    """What made the run happen and what it may do, from its tags."""
    tags = run.tags
    trigger = tags.get(TRIGGER) or tags.get("dagster/sensor_name") or tags.get("dagster/schedule_name")
    return Occasion(
        trigger=trigger or "Dagster",
        dagster_run_id=run.run_id,
        allows_deletes=_names(tags.get(ALLOW_DELETES, ""), sync),
        allows_new_state=_names(tags.get(ALLOW_NEW_STATE, ""), sync),
    )


def _names(tag: str, sync: Sync) -> bool:
    """Return whether a tag is for this sync: it lists syncs, or says true for all."""
    named = {name.strip().casefold() for name in tag.split(",")}
    return not named.isdisjoint({sync.id.casefold(), sync.model.id, "true"})


def _spec(sync: Sync) -> dg.AssetSpec:
    return dg.AssetSpec(
        sink_key(sync.model),
        deps=[model_key(sync.model)],
        group_name="push",
        kinds={"starlark"},
        owners=list(sync.model.owners),
        description=f"Delivers {sync.model.name} to {sync.config.destination} as {sync.config.object}",
        metadata={
            "sync": dg.MetadataValue.text(sync.id),
            "file": dg.MetadataValue.text(sync.config.file),
            "dagster/code_references": dg.CodeReferencesMetadataValue(
                code_references=[
                    dg.LocalFileCodeReference(
                        file_path=str(sync.library), line_number=1, label=sync.config.file
                    )
                ]
            ),
        },
    )
