"""Sensors, on from the start: one a sync for its model's new versions, and one for all that falls due.

What is to be done is looked up in logs and queues; a materialization only says when to look. So what the
first sort misses, a run that failed among it, the second one finds.
"""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence

import dagster as dg
import orjson

from ondatra_dagster.errors import OndatraError
from ondatra_dagster.orchestration.alerting import Alerts
from ondatra_dagster.orchestration.dry_events import is_dry
from ondatra_dagster.orchestration.naming import model_key, op_name, sink_key
from ondatra_dagster.orchestration.run_locks import close_abandoned_runs
from ondatra_dagster.orchestration.wake import Wake, next_wake
from ondatra_dagster.orchestration.workspace import Workspace, load_workspace
from ondatra_dagster.sync.sync import Sync

INTERVAL_SECONDS = 15
ALERTS_SECONDS = 300
DUE = "push_due"
ALERTS = "ondatra_alerts"
ON_ITS_WAY = [
    dg.DagsterRunStatus.QUEUED,
    dg.DagsterRunStatus.NOT_STARTED,
    dg.DagsterRunStatus.STARTING,
    dg.DagsterRunStatus.STARTED,
    dg.DagsterRunStatus.CANCELING,
]


def sink_sensor(workspace: Workspace, sync: Sync) -> dg.AssetSensorDefinition:
    """Pushes when the sync's model was materialized and there is something to push. No Spark."""
    key = sink_key(sync.model)

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
        if not work.is_there:
            return dg.SkipReason(f"{sync.id}: {work.reason}")
        close_abandoned_runs(context.instance, workspace.settings.state)
        if key in keys_on_their_way(context.instance, [key]):
            return dg.SkipReason(f"{sync.id}: a run that pushes it is on its way")
        return dg.RunRequest(run_key=f"{sync.id}:{work.name}", asset_selection=[key])

    return sensor


def due_sensor(workspace: Workspace) -> dg.SensorDefinition:
    """Pushes what waited and is due, jobs whose poll is due, and what the other sensors' runs left."""

    @dg.sensor(
        name=DUE,
        asset_selection=[sink_key(sync.model) for sync in workspace.syncs.values()],
        minimum_interval_seconds=INTERVAL_SECONDS,
        default_status=dg.DefaultSensorStatus.RUNNING,
        description="Pushes rows whose next try is due, and looks after jobs that are open",
    )
    def sensor(context: dg.SensorEvaluationContext) -> dg.SensorResult:
        close_abandoned_runs(context.instance, workspace.settings.state)
        before = load_wakes(context.cursor)
        wakes = dict(_wakes(workspace, context.instance, before))
        asked = [name for name, wake in wakes.items() if wake.tries and wake != before.get(name)]
        requests = [_request(workspace, name, wakes[name]) for name in asked]
        nothing = None if asked else "nothing is due"
        return dg.SensorResult(run_requests=requests, skip_reason=nothing, cursor=dump_wakes(wakes))

    return sensor


def alert_sensor(workspace: Workspace) -> dg.SensorDefinition:
    """Looks which syncs are silent for too long, and sends what a webhook that was down hasn't taken."""

    @dg.sensor(
        name=ALERTS,
        asset_selection=[sink_key(sync.model) for sync in workspace.syncs.values()],
        minimum_interval_seconds=ALERTS_SECONDS,
        default_status=dg.DefaultSensorStatus.RUNNING,
        description="Tells alerts.webhook which alerts fired and which are over; starts no run",
    )
    def sensor(_: dg.SensorEvaluationContext) -> dg.SkipReason:
        current = _read_again(workspace)
        alerts = Alerts(current or workspace)
        return dg.SkipReason(alerts.look(is_current=current is not None).did)

    return sensor


def _read_again(workspace: Workspace) -> Workspace | None:
    """Return the project as its files are now; None while they have mistakes.

    A code location keeps the one that it started with, and models may have been edited since.
    """
    try:
        current = load_workspace(workspace.settings.root)
    except OndatraError:
        return None
    return dataclasses.replace(current, clock=workspace.clock)


def _wakes(
    workspace: Workspace, instance: dg.DagsterInstance, before: Mapping[str, Wake]
) -> Iterator[tuple[str, Wake]]:
    """For each sync with work, the run that was asked for last, or is to be asked for now."""
    keys = {sync.id: sink_key(sync.model) for sync in workspace.syncs.values()}
    busy = keys_on_their_way(instance, list(keys.values()))
    for sync in workspace.syncs.values():
        work, last = workspace.sync_work(sync), before.get(sync.id)
        if not work.is_there:
            continue
        wake = None
        if keys[sync.id] not in busy:
            wake = next_wake(work.name, last, now=workspace.clock(), is_new=work.is_new)
        if wake or last:
            yield sync.id, wake or before[sync.id]


def _request(workspace: Workspace, sync_id: str, wake: Wake) -> dg.RunRequest:
    key = sink_key(workspace.syncs[sync_id].model)
    return dg.RunRequest(run_key=wake.run_key(sync_id), asset_selection=[key])


def load_wakes(cursor: str | None) -> dict[str, Wake]:
    """The runs that were asked for, by sync."""
    return {name: Wake(**fields) for name, fields in orjson.loads(cursor or "{}").items()}


def dump_wakes(wakes: Mapping[str, Wake]) -> str:
    return orjson.dumps(wakes).decode()


def keys_on_their_way(instance: dg.DagsterInstance, keys: Sequence[dg.AssetKey]) -> set[dg.AssetKey]:
    """Those that a run which hasn't ended has among its own."""
    runs = [run for run in instance.get_runs(dg.RunsFilter(statuses=ON_ITS_WAY)) if not is_dry(run.tags)]
    return {key for run in runs for key in _keys_among(instance, run, keys)}


def _keys_among(
    instance: dg.DagsterInstance, run: dg.DagsterRun, keys: Sequence[dg.AssetKey]
) -> Iterator[dg.AssetKey]:
    """Those that a run makes; one without a selection runs a whole job, which may be of no assets at all."""
    if run.asset_selection is not None or run.job_snapshot_id is None:
        yield from (key for key in keys if run.asset_selection is None or key in run.asset_selection)
        return
    ops = instance.get_job_snapshot(run.job_snapshot_id).node_names
    yield from (key for key in keys if op_name(key) in ops)
