"""The Dagster definitions of a project, built from its folder for ondatra_project/definitions.py.

The other modules of this package define single assets, checks and sensors. Loading starts no JVM, opens no
network connection and writes nothing.
"""

import logging
import warnings
from collections.abc import Mapping
from pathlib import Path

import dagster as dg

from ondatra_dagster.app.open_run_or_dry_run import OpenRunService, open_run_service
from ondatra_dagster.app.workspace import Workspace, load_workspace
from ondatra_dagster.orchestration.asset_checks import sync_checks
from ondatra_dagster.orchestration.asset_keys import model_key
from ondatra_dagster.orchestration.io_managers import IO_MANAGERS, io_manager_key
from ondatra_dagster.orchestration.model_and_sync_assets import model_asset, sync_asset
from ondatra_dagster.orchestration.resources import RESOURCE_KEY, run_service_resource
from ondatra_dagster.orchestration.schedules import maintenance_schedules, model_schedules
from ondatra_dagster.orchestration.sensors import (
    alert_sensor,
    due_sensor,
    event_models,
    event_sensor,
    models_on_change,
    on_change_sensor,
    sync_sensor,
)
from ondatra_dagster.orchestration.source_assets import source_keys_by_name, source_specs
from ondatra_dagster.planning.find_table_and_columns import table_path
from ondatra_dagster.project.model_kinds import KINDS

log = logging.getLogger(__name__)


def build_definitions(root: Path, *, with_executor: bool = True, with_sources: bool = True) -> dg.Definitions:
    """Return the definitions of the project at `root`; raise ProjectError with all errors in its files.

    The flags are for merging with your own definitions. Set `with_executor` to False if yours have an
    executor, which must keep a run in one process. Set `with_sources` to False if one of your assets produces
    a source that models read.
    """
    workspace = load_workspace(root)
    for warning in workspace.warnings:
        log.warning("%s", warning)
    return definitions_of(workspace, with_executor=with_executor, with_sources=with_sources)


def definitions_of(
    workspace: Workspace,
    *,
    open_service: OpenRunService = open_run_service,
    with_executor: bool = True,
    with_sources: bool = True,
    loggers: Mapping[str, dg.LoggerDefinition] | None = None,
) -> dg.Definitions:
    """Return the definitions of a project that is already loaded."""
    models, syncs = workspace.project.models.values(), workspace.syncs.values()
    keys = {**source_keys_by_name(models), **{model.id: model_key(model) for model in models}}
    settings = workspace.settings
    io_managers = {io_manager_key(kind): IO_MANAGERS[kind.name] for kind in KINDS.values()}
    with warnings.catch_warnings():
        # code references are a preview feature; one warning for each asset wouldn't help the user
        warnings.simplefilter("ignore", dg.PreviewWarning)
        warnings.simplefilter("ignore", dg.BetaWarning)
        return dg.Definitions(
            assets=[
                *(model_asset(each, table=table_path(settings, each.id), spellings=keys) for each in models),
                *(source_specs(models) if with_sources else ()),
                *map(sync_asset, syncs),
            ],
            asset_checks=[sync_checks(sync) for sync in syncs],
            schedules=[
                *model_schedules(models),
                *(maintenance_schedules(maintain_at=settings.maintain_at, has_syncs=bool(syncs)) if models else ()),
            ],
            sensors=[
                *(sync_sensor(workspace, sync) for sync in syncs),
                *([due_sensor(workspace)] if syncs else ()),
                *([event_sensor(workspace)] if event_models(workspace) else ()),
                *([on_change_sensor(workspace)] if models_on_change(workspace) else ()),
                *([alert_sensor(workspace)] if syncs and settings.alerts.webhook else ()),
            ],
            resources={RESOURCE_KEY: run_service_resource(workspace, open_service), **io_managers},
            loggers=loggers,
            executor=dg.in_process_executor if with_executor else None,
        )
