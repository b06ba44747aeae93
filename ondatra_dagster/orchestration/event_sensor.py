"""The sensor that has waiting events flushed: it looks into their file and the tables' logs, without Spark.

What waits is the same until a run has taken it, however much comes after: so it is asked for once, and again
ever less often when that run fails.
"""

from collections.abc import Iterator, Mapping

import dagster as dg

from ondatra_dagster.clock_jumps import is_ahead
from ondatra_dagster.orchestration.naming import model_key
from ondatra_dagster.orchestration.run_locks import close_abandoned_runs
from ondatra_dagster.orchestration.sensors import INTERVAL_SECONDS, dump_wakes, keys_on_their_way, load_wakes
from ondatra_dagster.orchestration.wake import Wake, next_wake
from ondatra_dagster.orchestration.workspace import Workspace
from ondatra_dagster.project.model import Model

NAME = "flush_events"


def event_sensor(workspace: Workspace) -> dg.SensorDefinition:
    """Runs models of kind events when what waits is old enough: all of them in one run."""
    models = event_models(workspace)

    @dg.sensor(
        name=NAME,
        asset_selection=[model_key(model) for model in models],
        minimum_interval_seconds=INTERVAL_SECONDS,
        default_status=dg.DefaultSensorStatus.RUNNING,
        description="Brings events that wait into their tables",
    )
    def sensor(context: dg.SensorEvaluationContext) -> dg.SensorResult:
        close_abandoned_runs(context.instance, workspace.settings.state)
        before = load_wakes(context.cursor)
        wakes = dict(_wakes(workspace, context.instance, before))
        asked = [name for name, wake in wakes.items() if wake != before.get(name)]
        requests = [_request(workspace, {name: wakes[name] for name in asked})] if asked else []
        nothing = None if asked else "no events wait for long enough"
        return dg.SensorResult(run_requests=requests, skip_reason=nothing, cursor=dump_wakes(wakes))

    return sensor


def event_models(workspace: Workspace) -> list[Model]:
    return [model for model in workspace.project.models.values() if not model.kind.has_query]


def _wakes(
    workspace: Workspace, instance: dg.DagsterInstance, before: Mapping[str, Wake]
) -> Iterator[tuple[str, Wake]]:
    """For each model with events that wait, the run that was asked for last, or is to be asked for now."""
    models = event_models(workspace)
    busy = keys_on_their_way(instance, [model_key(model) for model in models])
    oldest = workspace.settings.events.flush_seconds
    for model in models:
        waiting, last = workspace.events_waiting(model.id), before.get(model.id)
        if waiting.oldest_at is None or not _is_old(waiting.oldest_at, now=workspace.clock(), age=oldest):
            continue
        is_busy = model_key(model) in busy
        wake = None if is_busy else next_wake(waiting.since, last, now=workspace.clock())
        if wake or last:
            yield model.id, wake or before[model.id]


def _is_old(oldest_at: float, *, now: float, age: float) -> bool:
    """Return whether events have waited for long enough, or came while the clock was ahead."""
    return now - oldest_at >= age or is_ahead(oldest_at, now)


def _request(workspace: Workspace, wakes: Mapping[str, Wake]) -> dg.RunRequest:
    keys = [model_key(workspace.project.models[name]) for name in wakes]
    return dg.RunRequest(
        run_key=" ".join(wake.run_key(name) for name, wake in wakes.items()), asset_selection=keys
    )
