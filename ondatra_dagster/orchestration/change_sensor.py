"""The sensor that runs models when what they read has changed, if they ask for it: `@schedule: on change`.

It makes the plan that every run makes, from files and logs and without Spark: so data that somebody else
wrote is seen, too, and what was heard of and changed nothing starts no run.
"""

import contextlib
import hashlib
from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

import dagster as dg
import orjson

from ondatra_dagster.errors import SelectionError
from ondatra_dagster.orchestration.naming import model_key, sink_key
from ondatra_dagster.orchestration.run_locks import close_abandoned_runs
from ondatra_dagster.orchestration.sensors import INTERVAL_SECONDS, dump_wakes, keys_on_their_way, load_wakes
from ondatra_dagster.orchestration.wake import Wake, next_wake
from ondatra_dagster.orchestration.workspace import Workspace
from ondatra_dagster.planning.plan import ModelStep, Need, plan_model
from ondatra_dagster.planning.versions import MISSING, NOT_THERE
from ondatra_dagster.project.cron import ON_CHANGE
from ondatra_dagster.project.model import Model, ModelInput
from ondatra_dagster.wording import duration

NAME = "run_on_change"
WORK_SHOWN = 16  # letters of a digest that tell what there is to do


def change_sensor(workspace: Workspace) -> dg.SensorDefinition:
    """Runs all that changed in one run, with what is made from it and asks for that too, and their syncs."""
    models = models_on_change(workspace)

    @dg.sensor(
        name=NAME,
        asset_selection=_keys(models),
        minimum_interval_seconds=INTERVAL_SECONDS,
        default_status=dg.DefaultSensorStatus.RUNNING,
        description="Runs models with `@schedule: on change` when something that they read has changed",
    )
    def sensor(context: dg.SensorEvaluationContext) -> dg.SensorResult:
        close_abandoned_runs(context.instance, workspace.settings.state)
        before = load_wakes(context.cursor)
        busy = keys_on_their_way(context.instance, _keys(models))
        steps, now = _steps(workspace), workspace.clock()
        wakes, asked = _choose(steps, before, busy, now=now)
        news = {name: wake for name, wake in wakes.items() if wake != before.get(name)}
        requests = [_request(news, asked)] if asked else []
        nothing = None if asked else _why_not([step.model for step in steps], wakes, busy, now=now)
        return dg.SensorResult(run_requests=requests, skip_reason=nothing, cursor=dump_wakes(wakes))

    return sensor


def models_on_change(workspace: Workspace) -> list[Model]:
    """In the order in which they run."""
    return [model for model in workspace.project.models.values() if model.schedule == ON_CHANGE]


def _steps(workspace: Workspace) -> list[ModelStep]:
    """What has to be done to each that has work, and whose inputs are there."""
    look = workspace.look()
    steps: dict[str, ModelStep] = {}
    for model in models_on_change(workspace):
        with contextlib.suppress(SelectionError):  # a model that it reads was never made
            step = plan_model(workspace.project, model, look, running=steps)
            if step.will_run and NOT_THERE not in step.inputs.values():
                steps[model.id] = step
    return list(steps.values())


class _Choice(NamedTuple):
    """What a tick comes to."""

    wakes: Mapping[str, Wake]  # by model, the run that was asked for last, or is asked for now
    models: Sequence[Model]  # that are to run now: those that have work, and what is made from them


def _choose(
    steps: Sequence[ModelStep], before: Mapping[str, Wake], busy: Collection[dg.AssetKey], *, now: float
) -> _Choice:
    """What no run has on its way, and is new or was asked for long enough ago."""
    wakes = {step.model.id: before[step.model.id] for step in steps if step.model.id in before}
    chosen: dict[str, Model] = {}
    for step in (step for step in steps if model_key(step.model) not in busy):
        name, reads = step.model.id, step.model.inputs
        follows = any(isinstance(read, ModelInput) and read.model in chosen for read in reads)
        can_run = step.need is Need.SURE and (follows or MISSING not in step.inputs.values())
        wake = next_wake(_work(step), before.get(name), now=now) if can_run else None
        if wake:
            wakes[name] = wake
        if wake or follows:
            chosen[name] = step.model
    return _Choice(wakes, list(chosen.values()))


def _why_not(
    models: Sequence[Model], wakes: Mapping[str, Wake], busy: Collection[dg.AssetKey], *, now: float
) -> str:
    """Why none of these, which have work, is asked for now."""
    on_their_way = [model.name for model in models if model_key(model) in busy]
    asked = [model for model in models if model.name not in on_their_way and model.id in wakes]
    if on_their_way:
        return f"a run of {', '.join(on_their_way)} is on its way"
    if asked:
        again_in = duration(max(min(wakes[model.id].next_at for model in asked) - now, 0))
        names = ", ".join(model.name for model in asked)
        return f"nothing has changed since a run of {names} was asked for; it is again in {again_in}"
    return "what they read has still to be made" if models else "nothing that they read has changed"


def _work(step: ModelStep) -> str:
    """What there is to do, as a text that stays the same while it is the same."""
    model = step.model
    told = orjson.dumps(
        [model.definition, model.checks_digest, dict(step.inputs)], option=orjson.OPT_SORT_KEYS
    )
    return hashlib.sha256(told).hexdigest()[:WORK_SHOWN]


def _request(news: Mapping[str, Wake], models: Sequence[Model]) -> dg.RunRequest:
    run_key = " ".join(wake.run_key(name) for name, wake in news.items())
    return dg.RunRequest(run_key=run_key, asset_selection=_keys(models))


def _keys(models: Sequence[Model]) -> list[dg.AssetKey]:
    """The assets of these models, and of their syncs."""
    return [*map(model_key, models), *(sink_key(model) for model in models if model.sink)]
