"""One sensor a sync, on from the start: it wakes the sync for a new version and for rows that fall due."""

import dagster as dg

from ondatra_dagster.orchestration.naming import op_name, sink_key
from ondatra_dagster.orchestration.run_locks import close_abandoned_runs
from ondatra_dagster.orchestration.wake import Wake, next_wake
from ondatra_dagster.orchestration.workspace import Workspace
from ondatra_dagster.sync.sync import Sync

INTERVAL_SECONDS = 15
ON_ITS_WAY = [
    dg.DagsterRunStatus.QUEUED,
    dg.DagsterRunStatus.NOT_STARTED,
    dg.DagsterRunStatus.STARTING,
    dg.DagsterRunStatus.STARTED,
    dg.DagsterRunStatus.CANCELING,
]


def sink_sensor(workspace: Workspace, sync: Sync) -> dg.SensorDefinition:
    """The sensor of one sync. It reads logs and the queue: no Spark."""
    key = sink_key(sync.model)

    @dg.sensor(
        name=op_name(key, "sensor"),
        asset_selection=[key],
        minimum_interval_seconds=INTERVAL_SECONDS,
        default_status=dg.DefaultSensorStatus.RUNNING,
        description=f"Pushes {sync.id} when {sync.model.name} has a new version or rows fall due again",
    )
    def sensor(context: dg.SensorEvaluationContext) -> dg.SensorResult | dg.SkipReason:
        work = workspace.sync_work(sync)
        if not work.is_there:
            return dg.SkipReason(f"{sync.id}: {work.reason}")
        close_abandoned_runs(context.instance, workspace.settings.state)
        if is_on_its_way(context.instance, key):
            return dg.SkipReason(f"{sync.id}: a run that pushes it is on its way")
        wake = next_wake(work.name, Wake.load(context.cursor), now=workspace.clock())
        if wake is None:
            return dg.SkipReason(f"{sync.id}: asked for already, {work.reason}; waits before it asks again")
        request = dg.RunRequest(run_key=wake.run_key(sync.id), asset_selection=[key])
        return dg.SensorResult(run_requests=[request], cursor=wake.dump())

    return sensor


def is_on_its_way(instance: dg.DagsterInstance, key: dg.AssetKey) -> bool:
    """Whether a run that hasn't ended has the asset among its own."""
    runs = instance.get_runs(dg.RunsFilter(statuses=ON_ITS_WAY))
    return any(run.asset_selection is None or key in run.asset_selection for run in runs)
