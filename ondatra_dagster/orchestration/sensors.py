"""The sensors, on from the start: one for each sync's new versions, and one for all work that is due.

They read logs and queues; a materialization only triggers them early. The second kind finds what the first
misses, such as the work of a failed run.
"""

import dataclasses
from collections.abc import Iterator, Mapping

import dagster as dg

from ondatra_dagster.app.alert_service import AlertService
from ondatra_dagster.app.workspace import Workspace, load_workspace
from ondatra_dagster.clock_jumps import is_from_future
from ondatra_dagster.errors import OndatraError
from ondatra_dagster.orchestration.asset_keys import model_key, op_name, sync_key
from ondatra_dagster.orchestration.run_locks import close_abandoned_runs
from ondatra_dagster.orchestration.sensor_run_requests import (
    INTERVAL_SECONDS,
    SensorRequest,
    dump_requests,
    keys_in_unfinished_runs,
    load_requests,
    next_request,
)
from ondatra_dagster.project.model import Model
from ondatra_dagster.sync.sync_definition import Sync

ALERTS_SECONDS = 300
DUE_SENSOR = "push_due"
ALERT_SENSOR = "ondatra_alerts"


def sync_sensor(workspace: Workspace, sync: Sync) -> dg.AssetSensorDefinition:
    """Pushes when the sync's model was materialized and there is something to push. No Spark."""
    key = sync_key(sync.model)

    @dg.asset_sensor(
        model_key(sync.model),
        name=op_name(key, "sensor"),
        job=dg.define_asset_job(op_name(key, "job"), selection=[key]),
        minimum_interval_seconds=INTERVAL_SECONDS,
        default_status=dg.DefaultSensorStatus.RUNNING,
        description=f"Pushes {sync.id} when {sync.model.name} has a new version",
    )
    def sensor(context: dg.SensorEvaluationContext) -> dg.RunRequest | dg.SkipReason:
        work = workspace.sync_work(sync)
        if not work.has_work:
            return dg.SkipReason(f"{sync.id}: {work.reason}")
        close_abandoned_runs(context.instance, workspace.settings.state)
        if key in keys_in_unfinished_runs(context.instance, [key]):
            return dg.SkipReason(f"{sync.id}: a run that pushes it is on its way")
        return dg.RunRequest(run_key=f"{sync.id}:{work.work_digest}", asset_selection=[key])

    return sensor


def due_sensor(workspace: Workspace) -> dg.SensorDefinition:
    """Pushes what waited and is due, jobs whose poll is due, and what the other sensors' runs left."""

    @dg.sensor(
        name=DUE_SENSOR,
        asset_selection=[sync_key(sync.model) for sync in workspace.syncs.values()],
        minimum_interval_seconds=INTERVAL_SECONDS,
        default_status=dg.DefaultSensorStatus.RUNNING,
        description="Pushes rows whose next try is due, and looks after jobs that are open",
    )
    def sensor(context: dg.SensorEvaluationContext) -> dg.SensorResult:
        close_abandoned_runs(context.instance, workspace.settings.state)
        before = load_requests(context.cursor)
        wakes = dict(_due_requests(workspace, context.instance, before))
        asked = [name for name, wake in wakes.items() if wake.tries and wake != before.get(name)]
        requests = [_sync_run_request(workspace, name, wakes[name]) for name in asked]
        nothing = None if asked else "nothing is due"
        return dg.SensorResult(run_requests=requests, skip_reason=nothing, cursor=dump_requests(wakes))

    return sensor


def alert_sensor(workspace: Workspace) -> dg.SensorDefinition:
    """Looks which syncs are silent for too long, and sends what a webhook that was down hasn't taken."""

    @dg.sensor(
        name=ALERT_SENSOR,
        asset_selection=[sync_key(sync.model) for sync in workspace.syncs.values()],
        minimum_interval_seconds=ALERTS_SECONDS,
        default_status=dg.DefaultSensorStatus.RUNNING,
        description="Tells alerts.webhook which alerts fired and which are over; starts no run",
    )
    def sensor(_: dg.SensorEvaluationContext) -> dg.SkipReason:
        current = _reload_workspace(workspace)
        alerts = AlertService(current or workspace)
        return dg.SkipReason(alerts.check_and_send(is_current=current is not None).message)

    return sensor


def _reload_workspace(workspace: Workspace) -> Workspace | None:
    """Return the project as its files are now; None while they have mistakes.

    A code location keeps the one that it started with, and models may have been edited since.
    """
    try:
        current = load_workspace(workspace.settings.root)
    except OndatraError:
        return None
    return dataclasses.replace(current, clock=workspace.clock)


def _due_requests(
    workspace: Workspace, instance: dg.DagsterInstance, before: Mapping[str, SensorRequest]
) -> Iterator[tuple[str, SensorRequest]]:
    """For each sync with work, the run that was asked for last, or is to be asked for now."""
    keys = {sync.id: sync_key(sync.model) for sync in workspace.syncs.values()}
    busy = keys_in_unfinished_runs(instance, list(keys.values()))
    for sync in workspace.syncs.values():
        work, last = workspace.sync_work(sync), before.get(sync.id)
        if not work.has_work:
            continue
        wake = None
        if keys[sync.id] not in busy:
            wake = next_request(work.work_digest, last, now=workspace.clock(), is_new=work.is_new)
        if wake or last:
            yield sync.id, wake or before[sync.id]


def _sync_run_request(workspace: Workspace, sync_id: str, wake: SensorRequest) -> dg.RunRequest:
    key = sync_key(workspace.syncs[sync_id].model)
    return dg.RunRequest(run_key=wake.run_key(sync_id), asset_selection=[key])


EVENT_SENSOR = "flush_events"


def event_sensor(workspace: Workspace) -> dg.SensorDefinition:
    """Runs models of kind events when what waits is old enough: all of them in one run."""
    models = event_models(workspace)

    @dg.sensor(
        name=EVENT_SENSOR,
        asset_selection=[model_key(model) for model in models],
        minimum_interval_seconds=INTERVAL_SECONDS,
        default_status=dg.DefaultSensorStatus.RUNNING,
        description="Brings events that wait into their tables",
    )
    def sensor(context: dg.SensorEvaluationContext) -> dg.SensorResult:
        close_abandoned_runs(context.instance, workspace.settings.state)
        before = load_requests(context.cursor)
        wakes = dict(_event_requests(workspace, context.instance, before))
        asked = [name for name, wake in wakes.items() if wake != before.get(name)]
        requests = [_event_run_request(workspace, {name: wakes[name] for name in asked})] if asked else []
        nothing = None if asked else "no events wait for long enough"
        return dg.SensorResult(run_requests=requests, skip_reason=nothing, cursor=dump_requests(wakes))

    return sensor


def event_models(workspace: Workspace) -> list[Model]:
    return [model for model in workspace.project.models.values() if not model.kind.has_query]


def _event_requests(
    workspace: Workspace, instance: dg.DagsterInstance, before: Mapping[str, SensorRequest]
) -> Iterator[tuple[str, SensorRequest]]:
    """For each model with events that wait, the run that was asked for last, or is to be asked for now."""
    models = event_models(workspace)
    busy = keys_in_unfinished_runs(instance, [model_key(model) for model in models])
    oldest = workspace.settings.events.flush_seconds
    for model in models:
        waiting, last = workspace.events_waiting(model.id), before.get(model.id)
        if waiting.oldest_at is None or not _is_flush_due(waiting.oldest_at, now=workspace.clock(), age=oldest):
            continue
        is_busy = model_key(model) in busy
        wake = None if is_busy else next_request(waiting.oldest_request_id, last, now=workspace.clock())
        if wake or last:
            yield model.id, wake or before[model.id]


def _is_flush_due(oldest_at: float, *, now: float, age: float) -> bool:
    """Return whether events have waited for long enough, or came while the clock was ahead."""
    return now - oldest_at >= age or is_from_future(oldest_at, now)


def _event_run_request(workspace: Workspace, wakes: Mapping[str, SensorRequest]) -> dg.RunRequest:
    keys = [model_key(workspace.project.models[name]) for name in wakes]
    return dg.RunRequest(run_key=" ".join(wake.run_key(name) for name, wake in wakes.items()), asset_selection=keys)
