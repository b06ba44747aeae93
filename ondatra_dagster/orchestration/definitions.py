"""All of a project's Dagster definitions, from its folder: what ondatra_project/definitions.py asks for.

What one asset, check or sensor is, is in the modules beside. Loading starts no JVM, opens no network and
writes nothing.
"""

import logging
import warnings
from collections.abc import Mapping
from pathlib import Path

import dagster as dg

from ondatra_dagster.orchestration.change_sensor import change_sensor, models_on_change
from ondatra_dagster.orchestration.checks import sink_checks
from ondatra_dagster.orchestration.event_sensor import event_models, event_sensor
from ondatra_dagster.orchestration.io_managers import IO_MANAGERS, io_manager_key
from ondatra_dagster.orchestration.model_assets import model_asset
from ondatra_dagster.orchestration.naming import model_key
from ondatra_dagster.orchestration.opening import OpenEngine, open_engine
from ondatra_dagster.orchestration.resources import ENGINE, engine_resource
from ondatra_dagster.orchestration.schedules import model_schedules, upkeep_schedules
from ondatra_dagster.orchestration.sensors import alert_sensor, due_sensor, sink_sensor
from ondatra_dagster.orchestration.sink_assets import sink_asset
from ondatra_dagster.orchestration.source_assets import source_keys, source_specs
from ondatra_dagster.orchestration.workspace import Workspace, load_workspace
from ondatra_dagster.planning.delta_log import table_path
from ondatra_dagster.project.kinds import KINDS

log = logging.getLogger(__name__)


def build_definitions(root: Path, *, with_executor: bool = True, with_sources: bool = True) -> dg.Definitions:
    """The definitions of the project at `root`; raises ProjectError with all that is wrong with its files.

    To merge them with definitions of your own: leave the executor out where those have one, which must keep a
    run in one process; leave the sources out where an asset of yours makes one of them.
    """
    workspace = load_workspace(root)
    for warning in workspace.warnings:
        log.warning("%s", warning)
    return definitions_of(workspace, with_executor=with_executor, with_sources=with_sources)


def definitions_of(
    workspace: Workspace,
    *,
    opened: OpenEngine = open_engine,
    with_executor: bool = True,
    with_sources: bool = True,
    loggers: Mapping[str, dg.LoggerDefinition] | None = None,
) -> dg.Definitions:
    """The definitions of a project that is loaded already."""
    models, syncs = workspace.project.models.values(), workspace.syncs.values()
    keys = {**source_keys(models), **{model.id: model_key(model) for model in models}}
    settings = workspace.settings
    io_managers = {io_manager_key(kind): IO_MANAGERS[kind.name] for kind in KINDS.values()}
    with warnings.catch_warnings():
        # code references are in preview: no reason to say so once an asset to who can't change it
        warnings.simplefilter("ignore", dg.PreviewWarning)
        warnings.simplefilter("ignore", dg.BetaWarning)
        return dg.Definitions(
            assets=[
                *(model_asset(each, table=table_path(settings, each.id), spellings=keys) for each in models),
                *(source_specs(models) if with_sources else ()),
                *map(sink_asset, syncs),
            ],
            asset_checks=[sink_checks(sync) for sync in syncs],
            schedules=[
                *model_schedules(models),
                *(
                    upkeep_schedules(maintain_at=settings.maintain_at, has_syncs=bool(syncs))
                    if models
                    else ()
                ),
            ],
            sensors=[
                *(sink_sensor(workspace, sync) for sync in syncs),
                *([due_sensor(workspace)] if syncs else ()),
                *([event_sensor(workspace)] if event_models(workspace) else ()),
                *([change_sensor(workspace)] if models_on_change(workspace) else ()),
                *([alert_sensor(workspace)] if syncs and settings.alerts.webhook else ()),
            ],
            resources={ENGINE: engine_resource(workspace, opened), **io_managers},
            loggers=loggers,
            executor=dg.in_process_executor if with_executor else None,
        )
