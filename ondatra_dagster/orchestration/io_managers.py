"""The IO managers, one for each model kind, which write a computed model to its table.

The package warehouse/kinds has the writes of each kind. An IO manager never loads inputs, because a model's
query reads its inputs by name, pinned to versions.
"""

from collections.abc import Iterator
from typing import Any

import dagster as dg

from ondatra_dagster.app.model_and_sync_steps import ComputedModel, RunService
from ondatra_dagster.errors import ChecksFailedError
from ondatra_dagster.operations.alert_store import SubjectType
from ondatra_dagster.orchestration import dagster_metadata
from ondatra_dagster.orchestration.asset_checks import build_check_report
from ondatra_dagster.orchestration.dagster_metadata import build_column_lineage
from ondatra_dagster.orchestration.resources import RESOURCE_KEY, raise_dagster_failure
from ondatra_dagster.project.model_kinds import KINDS, Kind
from ondatra_dagster.sync.sync_checks import SyncCheckResult


def io_manager_key(kind: Kind) -> str:
    return f"{RESOURCE_KEY}_{kind.name}"


class KindIOManager(dg.IOManager):
    """An IO manager that writes the models of one kind and reports each result."""

    def __init__(self, run_service: RunService) -> None:
        self._run_service = run_service

    # this method is a generator: Dagster accepts its events, but declares that the method returns nothing
    def handle_output(  # type: ignore[override]
        self, context: dg.OutputContext, obj: ComputedModel
    ) -> Iterator[dg.DagsterEvent]:
        """Write the computed rows to the model's table. If failed checks prevent the write, report the checks first."""
        model = obj.step.model
        with raise_dagster_failure(self._run_service, model.name, SubjectType.MODEL):
            try:
                result = self._run_service.write(obj)
            except ChecksFailedError:
                yield from [
                    _check_evaluation_event(context, verdict) for verdict in self._run_service.row_verdicts(model)
                ]
                raise
            set_data_version(context, result.table_version)
            lineage = build_column_lineage(self._run_service.workspace, result.model)
            context.add_output_metadata(dagster_metadata.model_metadata(result, lineage))

    def load_input(self, context: dg.InputContext) -> Any:
        """Raise NotImplementedError, because no code calls this method."""
        raise NotImplementedError("models read tables by their names, not through an IO manager")


def _check_evaluation_event(context: dg.OutputContext, verdict: SyncCheckResult) -> dg.DagsterEvent:
    """Return a model's check result as an event of the step that writes the model.

    Only this function uses Dagster's partly private API for such events.
    """
    evaluation = build_check_report(dg.AssetCheckEvaluation, context.asset_key, verdict)
    return dg.DagsterEvent.asset_check_evaluation(context.step_context, evaluation)


def set_data_version(context: dg.OutputContext, version: str) -> None:
    """Set Dagster's data version of an asset during its write. Only this function uses this partly private API."""
    context.step_context.set_data_version(context.asset_key, dg.DataVersion(version))


def _io_manager(kind: Kind) -> dg.IOManagerDefinition:
    @dg.io_manager(required_resource_keys={RESOURCE_KEY}, description=f"Writes models of kind {kind.name}")
    def io_manager(context: dg.InitResourceContext) -> KindIOManager:
        return KindIOManager(getattr(context.resources, RESOURCE_KEY))

    return io_manager


IO_MANAGERS = {kind.name: _io_manager(kind) for kind in KINDS.values()}
