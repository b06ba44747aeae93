"""The assets of syncs, push/<model path>: a model's rows at their destination."""

from collections.abc import Iterator

import dagster as dg

from ondatra_dagster.app.run_events import SyncResult
from ondatra_dagster.app.run_service import RunService
from ondatra_dagster.app.ui_urls import RecordLocations
from ondatra_dagster.operations.alert_store import SubjectType
from ondatra_dagster.orchestration import dagster_metadata
from ondatra_dagster.orchestration.asset_checks import build_check_reports
from ondatra_dagster.orchestration.asset_keys import model_key, op_name, sync_key
from ondatra_dagster.orchestration.dry_run_events import DryRunEvent, observe_dry_run
from ondatra_dagster.orchestration.resources import POOL, raise_dagster_failure
from ondatra_dagster.orchestration.run_tags import read_run_trigger
from ondatra_dagster.sync.sync_definition import Sync


def sync_asset(sync: Sync) -> dg.AssetsDefinition:
    """The asset that a run of the sync materializes."""
    key = sync_key(sync.model)

    @dg.multi_asset(name=op_name(key), specs=[_sync_spec(sync)], pool=POOL)
    def push(
        context: dg.AssetExecutionContext, ondatra: dg.ResourceParam[RunService]
    ) -> Iterator[dg.AssetCheckEvaluation | dg.MaterializeResult[None] | DryRunEvent]:
        with raise_dagster_failure(ondatra, sync.id, SubjectType.SYNC):
            result = ondatra.push(sync, read_run_trigger(context.run, sync))
            metadata = _report_result(context, result, ondatra.record_locations(result))
            if result.errors:
                if not ondatra.is_dry:
                    yield from build_check_reports(dg.AssetCheckEvaluation, key, result.verdicts)
                sentence = "; ".join(verdict.description for verdict in result.errors)
                raise dg.Failure(sentence, metadata=metadata, allow_retries=False)
            if ondatra.is_dry:
                yield from observe_dry_run(context, key, metadata)
            else:
                yield dg.MaterializeResult(asset_key=key, metadata=metadata)

    return push


def _report_result(
    context: dg.AssetExecutionContext, result: SyncResult, places: RecordLocations
) -> dagster_metadata.Metadata:
    for warning in result.warnings:
        context.log.warning(warning)
    return dagster_metadata.sync_result_metadata(result, places)


def _sync_spec(sync: Sync) -> dg.AssetSpec:
    return dg.AssetSpec(
        sync_key(sync.model),
        deps=[model_key(sync.model)],
        group_name="push",
        kinds={"starlark"},
        owners=list(sync.model.owners),
        description=f"Delivers {sync.model.name} to {sync.push_config.destination} as {sync.push_config.object}",
        metadata={
            "sync": dg.MetadataValue.text(sync.id),
            "file": dg.MetadataValue.text(sync.push_config.file),
            "dagster/code_references": dg.CodeReferencesMetadataValue(
                code_references=[
                    dg.LocalFileCodeReference(
                        file_path=str(sync.push_library), line_number=1, label=sync.push_config.file
                    )
                ]
            ),
        },
    )
