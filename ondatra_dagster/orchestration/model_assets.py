"""One asset a model. It plans anew when its turn comes: what it reads may have changed in this very run."""

from collections.abc import Iterator, Mapping

import dagster as dg

from ondatra_dagster.operations.alert_book import SubjectType
from ondatra_dagster.orchestration import shown
from ondatra_dagster.orchestration.checks import check_reports, model_check_specs
from ondatra_dagster.orchestration.column_lineage import column_lineage
from ondatra_dagster.orchestration.dry_events import Observed, observed
from ondatra_dagster.orchestration.engine import Computed, Engine
from ondatra_dagster.orchestration.io_managers import io_manager_key
from ondatra_dagster.orchestration.naming import file_key, model_key, op_name
from ondatra_dagster.orchestration.progress import ModelResult
from ondatra_dagster.orchestration.resources import POOL, failures
from ondatra_dagster.orchestration.run_tags import FULL_REFRESH, asks_for
from ondatra_dagster.planning.plan import ModelStep
from ondatra_dagster.project.model import FileInput, Model

DEFINITION_SHOWN = 16  # letters of a digest that tell one definition from another


def model_asset(model: Model, *, table: str, spellings: Mapping[str, dg.AssetKey]) -> dg.AssetsDefinition:
    """The asset of a model; `spellings` has the key of each model and source table by its id."""
    key = model_key(model)

    @dg.multi_asset(
        name=op_name(key),
        specs=[_spec(model, table, spellings)],
        check_specs=model_check_specs(model),
        pool=POOL,
    )
    def build(
        context: dg.AssetExecutionContext, ondatra: dg.ResourceParam[Engine]
    ) -> Iterator[dg.MaterializeResult[Computed] | dg.AssetCheckResult | Observed]:
        with failures(ondatra, model.name, SubjectType.MODEL):
            step = ondatra.plan_model(model, is_full=asks_for(context.run.tags, FULL_REFRESH))
            if ondatra.is_dry:
                yield from observed(context, key, _metadata(ondatra, _rehearsed(context, ondatra, step)))
                return
            if step.will_run:
                computed = ondatra.compute(step, run_id=context.run.run_id)
                yield dg.MaterializeResult(asset_key=key, value=computed)  # its IO manager writes it
            else:
                yield _unchanged(key, ondatra, ondatra.keep(step))
            yield from check_reports(dg.AssetCheckResult, key, ondatra.model_verdicts(model))

    return build


def _unchanged(key: dg.AssetKey, engine: Engine, kept: ModelResult) -> dg.MaterializeResult[None]:
    """A materialization with the data version that the asset had: what is below sees no change."""
    version = dg.DataVersion(kept.table_version)
    return dg.MaterializeResult(asset_key=key, data_version=version, metadata=_metadata(engine, kept))


def _rehearsed(context: dg.AssetExecutionContext, engine: Engine, step: ModelStep) -> ModelResult:
    """A dry run writes to no table that anybody knows, so not through an IO manager."""
    if not step.will_run:
        return engine.keep(step)
    return engine.write(engine.compute(step, run_id=context.run.run_id))


def _metadata(engine: Engine, result: ModelResult) -> shown.Metadata:
    return shown.model_metadata(result, column_lineage(engine.workspace, result.model))


def _spec(model: Model, table: str, spellings: Mapping[str, dg.AssetKey]) -> dg.AssetSpec:
    reads = [
        file_key(read) if isinstance(read, FileInput) else spellings[read.name.casefold()]
        for read in model.inputs
    ]
    return dg.AssetSpec(
        model_key(model),
        deps=list(dict.fromkeys(reads)),  # a file may be read in two ways
        group_name=model.key_path[0],
        kinds={"spark", "delta", model.kind.name},
        owners=list(model.owners),
        tags=dict(tag.partition("=")[::2] for tag in model.tags),
        description=model.description,
        metadata=shown.spec_metadata(model, table),
        code_version=model.definition[:DEFINITION_SHOWN],
    ).with_io_manager_key(io_manager_key(model.kind))
