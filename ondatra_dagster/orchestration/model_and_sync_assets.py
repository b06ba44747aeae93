"""The assets of models and of syncs. A sync's asset is push/<model path>: a model's rows at their destination.

A model's asset plans again when it is executed, because this run may have changed its inputs. A dry run changes
no table, so Dagster stores observations, and no materializations or check results. Sensors, automation
conditions and asset pages use materializations, data versions and check results, so a dry run doesn't affect
them.
"""

from collections.abc import Iterator, Mapping
from typing import TypeAlias

import dagster as dg

from ondatra_dagster.app.model_and_sync_steps import ComputedModel, RunService
from ondatra_dagster.app.run_events import ModelResult, SyncResult
from ondatra_dagster.app.ui_urls import RecordLocations
from ondatra_dagster.operations.alert_store import SubjectType
from ondatra_dagster.orchestration import dagster_metadata
from ondatra_dagster.orchestration.asset_checks import build_check_reports, model_check_specs
from ondatra_dagster.orchestration.asset_keys import file_key, model_key, op_name, sync_key
from ondatra_dagster.orchestration.dagster_metadata import build_column_lineage
from ondatra_dagster.orchestration.io_managers import io_manager_key
from ondatra_dagster.orchestration.resources import POOL, raise_dagster_failure
from ondatra_dagster.orchestration.run_tags_and_abandoned_runs import (
    DEFER_EVENTS_TAG,
    FULL_REFRESH,
    is_tag_set,
    read_run_trigger,
)
from ondatra_dagster.planning.plan import ModelStep
from ondatra_dagster.project.model import FileInput, Model
from ondatra_dagster.sync.sync_definition import Sync

DryRunEvent: TypeAlias = dg.AssetObservation | dg.MaterializeResult[None] | dg.Output[None]


def observe_dry_run(
    context: dg.AssetExecutionContext, key: dg.AssetKey, metadata: dagster_metadata.Metadata
) -> Iterator[DryRunEvent]:
    """Yield the last events of a step in a dry run: an observation with the results, and outputs for later steps."""
    if context.run.tags.get(DEFER_EVENTS_TAG) != "true":
        raise dg.Failure(f"Dagster would take this for a real run; add the tag {DEFER_EVENTS_TAG}=true")
    yield dg.AssetObservation(key, metadata={"dry run": dg.MetadataValue.bool(True), **metadata})
    yield dg.MaterializeResult(asset_key=key)
    for name in context.assets_def.check_specs_by_output_name:
        yield dg.Output(None, output_name=name)


CODE_VERSION_CHARACTERS = 16  # the first characters of a digest, which distinguish definitions


def model_asset(model: Model, *, table: str, spellings: Mapping[str, dg.AssetKey]) -> dg.AssetsDefinition:
    """Return the asset of a model.

    `spellings` has the asset key of each model by its id, and of each source table by its name.
    """
    key = model_key(model)

    @dg.multi_asset(
        name=op_name(key), specs=[_spec(model, table, spellings)], check_specs=model_check_specs(model), pool=POOL
    )
    def build_model(
        context: dg.AssetExecutionContext, ondatra: dg.ResourceParam[RunService]
    ) -> Iterator[dg.MaterializeResult[ComputedModel] | dg.AssetCheckResult | DryRunEvent]:
        with raise_dagster_failure(ondatra, model.name, SubjectType.MODEL):
            step = ondatra.plan_model(model, is_full=is_tag_set(context.run.tags, FULL_REFRESH))
            if ondatra.is_dry:
                yield from observe_dry_run(context, key, _metadata(ondatra, _dry_run_result(context, ondatra, step)))
                return
            if step.will_run:
                computed_result = ondatra.compute(step, run_id=context.run.run_id)
                yield dg.MaterializeResult(asset_key=key, value=computed_result)  # the IO manager writes the value
            else:
                yield _unchanged_result(key, ondatra, ondatra.report_unchanged(step))
            yield from build_check_reports(dg.AssetCheckResult, key, ondatra.model_verdicts(model))

    return build_model


def _unchanged_result(key: dg.AssetKey, run_service: RunService, result: ModelResult) -> dg.MaterializeResult[None]:
    """Return a materialization with the asset's earlier data version, so that downstream assets see no change."""
    version = dg.DataVersion(result.table_version)
    return dg.MaterializeResult(asset_key=key, data_version=version, metadata=_metadata(run_service, result))


def _dry_run_result(context: dg.AssetExecutionContext, run_service: RunService, step: ModelStep) -> ModelResult:
    """Return the model's result in a dry run, which writes to a clone without an IO manager."""
    if not step.will_run:
        return run_service.report_unchanged(step)
    return run_service.write(run_service.compute(step, run_id=context.run.run_id))


def _metadata(run_service: RunService, result: ModelResult) -> dagster_metadata.Metadata:
    return dagster_metadata.model_metadata(result, build_column_lineage(run_service.workspace, result.model))


def _spec(model: Model, table: str, spellings: Mapping[str, dg.AssetKey]) -> dg.AssetSpec:
    dependencies = [
        file_key(model_input) if isinstance(model_input, FileInput) else spellings[model_input.name.casefold()]
        for model_input in model.inputs
    ]
    return dg.AssetSpec(
        model_key(model),
        deps=list(dict.fromkeys(dependencies)),  # a file may be read with different options
        group_name=model.key_path[0],
        kinds={"spark", "delta", model.kind.name},
        owners=list(model.owners),
        tags=dict(tag.partition("=")[::2] for tag in model.tags),
        description=model.description,
        metadata=dagster_metadata.spec_metadata(model, table),
        code_version=model.definition[:CODE_VERSION_CHARACTERS],
    ).with_io_manager_key(io_manager_key(model.kind))


def sync_asset(sync: Sync) -> dg.AssetsDefinition:
    """Return the asset of a sync, which a run of the sync materializes."""
    key = sync_key(sync.model)

    @dg.multi_asset(name=op_name(key), specs=[_sync_spec(sync)], pool=POOL)
    def push_sync(
        context: dg.AssetExecutionContext, ondatra: dg.ResourceParam[RunService]
    ) -> Iterator[dg.AssetCheckEvaluation | dg.MaterializeResult[None] | DryRunEvent]:
        with raise_dagster_failure(ondatra, sync.id, SubjectType.SYNC):
            result = ondatra.push(sync, read_run_trigger(context.run, sync))
            metadata = _report_result(context, result, ondatra.record_locations(result))
            if result.errors:
                if not ondatra.is_dry:
                    yield from build_check_reports(dg.AssetCheckEvaluation, key, result.verdicts)
                sentence = "; ".join(check_result.description for check_result in result.errors)
                raise dg.Failure(sentence, metadata=metadata, allow_retries=False)
            if ondatra.is_dry:
                yield from observe_dry_run(context, key, metadata)
            else:
                yield dg.MaterializeResult(asset_key=key, metadata=metadata)

    return push_sync


def _report_result(
    context: dg.AssetExecutionContext, result: SyncResult, places: RecordLocations
) -> dagster_metadata.Metadata:
    for warning in result.warnings:
        context.log.warning(warning)
    if result.forecast:
        return dagster_metadata.forecast_metadata(result.forecast)
    return dagster_metadata.sync_metadata(result, places)


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
            "dagster/code_references": dagster_metadata.code_reference(sync.push_library, sync.push_config.file),
        },
    )
