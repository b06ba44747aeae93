"""The assets of models. Each plans again when it is executed, because this run may have changed its inputs."""

from collections.abc import Iterator, Mapping

import dagster as dg

from ondatra_dagster.app.run_events import ModelResult
from ondatra_dagster.app.run_service import ComputedModel, RunService
from ondatra_dagster.operations.alert_store import SubjectType
from ondatra_dagster.orchestration import dagster_metadata
from ondatra_dagster.orchestration.asset_checks import build_check_reports, model_check_specs
from ondatra_dagster.orchestration.asset_keys import file_key, model_key, op_name
from ondatra_dagster.orchestration.dagster_metadata import build_column_lineage
from ondatra_dagster.orchestration.dry_run_events import DryRunEvent, observe_dry_run
from ondatra_dagster.orchestration.io_managers import io_manager_key
from ondatra_dagster.orchestration.resources import POOL, raise_dagster_failure
from ondatra_dagster.orchestration.run_tags import FULL_REFRESH, is_tag_set
from ondatra_dagster.planning.plan import ModelStep
from ondatra_dagster.project.model import FileInput, Model

CODE_VERSION_CHARACTERS = 16  # letters of a digest that tell one definition from another


def model_asset(model: Model, *, table: str, spellings: Mapping[str, dg.AssetKey]) -> dg.AssetsDefinition:
    """The asset of a model; `spellings` has the key of each model and source table by its id."""
    key = model_key(model)

    @dg.multi_asset(
        name=op_name(key), specs=[_spec(model, table, spellings)], check_specs=model_check_specs(model), pool=POOL
    )
    def build(
        context: dg.AssetExecutionContext, ondatra: dg.ResourceParam[RunService]
    ) -> Iterator[dg.MaterializeResult[ComputedModel] | dg.AssetCheckResult | DryRunEvent]:
        with raise_dagster_failure(ondatra, model.name, SubjectType.MODEL):
            step = ondatra.plan_model(model, is_full=is_tag_set(context.run.tags, FULL_REFRESH))
            if ondatra.is_dry:
                yield from observe_dry_run(context, key, _metadata(ondatra, _dry_run_result(context, ondatra, step)))
                return
            if step.will_run:
                computed = ondatra.compute(step, run_id=context.run.run_id)
                yield dg.MaterializeResult(asset_key=key, value=computed)  # its IO manager writes it
            else:
                yield _unchanged_result(key, ondatra, ondatra.report_unchanged(step))
            yield from build_check_reports(dg.AssetCheckResult, key, ondatra.model_verdicts(model))

    return build


def _unchanged_result(key: dg.AssetKey, engine: RunService, kept: ModelResult) -> dg.MaterializeResult[None]:
    """A materialization with the data version that the asset had: what is below sees no change."""
    version = dg.DataVersion(kept.table_version)
    return dg.MaterializeResult(asset_key=key, data_version=version, metadata=_metadata(engine, kept))


def _dry_run_result(context: dg.AssetExecutionContext, engine: RunService, step: ModelStep) -> ModelResult:
    """A dry run writes to no table that anybody knows, so not through an IO manager."""
    if not step.will_run:
        return engine.report_unchanged(step)
    return engine.write(engine.compute(step, run_id=context.run.run_id))


def _metadata(engine: RunService, result: ModelResult) -> dagster_metadata.Metadata:
    return dagster_metadata.model_metadata(result, build_column_lineage(engine.workspace, result.model))


def _spec(model: Model, table: str, spellings: Mapping[str, dg.AssetKey]) -> dg.AssetSpec:
    reads = [
        file_key(read) if isinstance(read, FileInput) else spellings[read.name.casefold()] for read in model.inputs
    ]
    return dg.AssetSpec(
        model_key(model),
        deps=list(dict.fromkeys(reads)),  # a file may be read in two ways
        group_name=model.key_path[0],
        kinds={"spark", "delta", model.kind.name},
        owners=list(model.owners),
        tags=dict(tag.partition("=")[::2] for tag in model.tags),
        description=model.description,
        metadata=dagster_metadata.spec_metadata(model, table),
        code_version=model.definition[:CODE_VERSION_CHARACTERS],
    ).with_io_manager_key(io_manager_key(model.kind))
