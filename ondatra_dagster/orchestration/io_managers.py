"""One IO manager a kind: the door through which a computed model gets to its table.

How a kind writes is in warehouse/kinds. Models find their inputs by name, pinned to versions, so nothing is
ever loaded through here.
"""

from collections.abc import Iterator
from typing import Any

import dagster as dg

from ondatra_dagster.errors import ChecksFailedError
from ondatra_dagster.operations.alert_book import SubjectType
from ondatra_dagster.orchestration import shown
from ondatra_dagster.orchestration.checks import check_report
from ondatra_dagster.orchestration.column_lineage import column_lineage
from ondatra_dagster.orchestration.engine import Computed, Engine
from ondatra_dagster.orchestration.resources import ENGINE, failures
from ondatra_dagster.project.kinds import KINDS, Kind
from ondatra_dagster.sync.verdicts import CheckVerdict


def io_manager_key(kind: Kind) -> str:
    return f"{ENGINE}_{kind.name}"


class KindIOManager(dg.IOManager):
    """Writes a model of one kind, and says what came of it."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    # a generator: Dagster takes the events of it, but declares that it gives nothing
    def handle_output(  # type: ignore[override]
        self, context: dg.OutputContext, obj: Computed
    ) -> Iterator[dg.DagsterEvent]:
        """Bring the model's table to what was computed; tells of its checks first when they prevent that."""
        model = obj.step.model
        with failures(self._engine, model.name, SubjectType.MODEL):
            try:
                result = self._engine.write(obj)
            except ChecksFailedError:
                yield from [_check_event(context, verdict) for verdict in self._engine.row_verdicts(model)]
                raise
            set_data_version(context, result.table_version)
            lineage = column_lineage(self._engine.workspace, result.model)
            context.add_output_metadata(shown.model_metadata(result, lineage))

    def load_input(self, context: dg.InputContext) -> Any:
        """Nobody calls this."""
        raise NotImplementedError("models read tables by their names, not through an IO manager")


def _check_event(context: dg.OutputContext, verdict: CheckVerdict) -> dg.DagsterEvent:
    """A check's answer from where the asset is written; half private in Dagster, so only here."""
    evaluation = check_report(dg.AssetCheckEvaluation, context.asset_key, verdict)
    return dg.DagsterEvent.asset_check_evaluation(context.step_context, evaluation)


def set_data_version(context: dg.OutputContext, version: str) -> None:
    """Dagster's data version of an asset that is just being written; half private there, so only here."""
    context.step_context.set_data_version(context.asset_key, dg.DataVersion(version))


def _io_manager(kind: Kind) -> dg.IOManagerDefinition:
    @dg.io_manager(required_resource_keys={ENGINE}, description=f"Writes models of kind {kind.name}")
    def io_manager(context: dg.InitResourceContext) -> KindIOManager:
        return KindIOManager(getattr(context.resources, ENGINE))

    return io_manager


IO_MANAGERS = {kind.name: _io_manager(kind) for kind in KINDS.values()}
