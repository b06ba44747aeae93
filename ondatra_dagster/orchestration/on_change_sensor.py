"""The sensor that runs models with `@schedule: on change` when their inputs have changed.

It makes the plan that every run makes, from files and logs and without Spark. So it sees data that other
programs wrote, and a materialization that changed nothing starts no run.
"""

import contextlib
import hashlib
from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

import dagster as dg
import orjson

from ondatra_dagster.app.workspace import Workspace
from ondatra_dagster.errors import SelectionError
from ondatra_dagster.orchestration.asset_keys import model_key, sync_key
from ondatra_dagster.orchestration.run_locks import close_abandoned_runs
from ondatra_dagster.orchestration.sensor_run_requests import (
    INTERVAL_SECONDS,
    SensorRequest,
    dump_requests,
    keys_in_unfinished_runs,
    load_requests,
    next_request,
)
from ondatra_dagster.planning.input_versions import INPUT_NOT_FOUND, MODEL_NOT_BUILT
from ondatra_dagster.planning.plan import ModelStep, WorkNeeded, plan_model
from ondatra_dagster.project.header_value_parsers import ON_CHANGE
from ondatra_dagster.project.model import Model, ModelInput
from ondatra_dagster.text_format import format_duration

ON_CHANGE_SENSOR = "run_on_change"
WORK_DIGEST_CHARACTERS = 16  # letters of a digest that tell what there is to do


def on_change_sensor(workspace: Workspace) -> dg.SensorDefinition:
    """Runs all that changed in one run, with what is made from it and asks for that too, and their syncs."""
    models = models_on_change(workspace)

    @dg.sensor(
        name=ON_CHANGE_SENSOR,
        asset_selection=_asset_keys(models),
        minimum_interval_seconds=INTERVAL_SECONDS,
        default_status=dg.DefaultSensorStatus.RUNNING,
        description="Runs models with `@schedule: on change` when something that they read has changed",
    )
    def sensor(context: dg.SensorEvaluationContext) -> dg.SensorResult:
        close_abandoned_runs(context.instance, workspace.settings.state)
        before = load_requests(context.cursor)
        busy = keys_in_unfinished_runs(context.instance, _asset_keys(models))
        steps, now = _steps_with_work(workspace), workspace.clock()
        wakes, asked = _choose_models(steps, before, busy, now=now)
        news = {name: wake for name, wake in wakes.items() if wake != before.get(name)}
        requests = [_build_run_request(news, asked)] if asked else []
        nothing = None if asked else _skip_reason([step.model for step in steps], wakes, busy, now=now)
        return dg.SensorResult(run_requests=requests, skip_reason=nothing, cursor=dump_requests(wakes))

    return sensor


def models_on_change(workspace: Workspace) -> list[Model]:
    """In the order in which they run."""
    return [model for model in workspace.project.models.values() if model.schedule == ON_CHANGE]


def _steps_with_work(workspace: Workspace) -> list[ModelStep]:
    """What has to be done to each that has work, and whose inputs are there."""
    look = workspace.plan_inputs()
    steps: dict[str, ModelStep] = {}
    for model in models_on_change(workspace):
        with contextlib.suppress(SelectionError):  # a model that it reads was never made
            step = plan_model(workspace.project, model, look, running=steps)
            if step.will_run and INPUT_NOT_FOUND not in step.inputs.values():
                steps[model.id] = step
    return list(steps.values())


class _ModelChoice(NamedTuple):
    """The models that a tick of the sensor chooses."""

    requests: Mapping[str, SensorRequest]  # by model, the run that was asked for last, or is asked for now
    models: Sequence[Model]  # that are to run now: those that have work, and what is made from them


def _choose_models(
    steps: Sequence[ModelStep], before: Mapping[str, SensorRequest], busy: Collection[dg.AssetKey], *, now: float
) -> _ModelChoice:
    """What no run has on its way, and is new or was asked for long enough ago."""
    wakes = {step.model.id: before[step.model.id] for step in steps if step.model.id in before}
    chosen: dict[str, Model] = {}
    for step in (step for step in steps if model_key(step.model) not in busy):
        name, reads = step.model.id, step.model.inputs
        follows = any(isinstance(read, ModelInput) and read.model in chosen for read in reads)
        can_run = step.work_needed is WorkNeeded.YES and (follows or MODEL_NOT_BUILT not in step.inputs.values())
        wake = next_request(_work_digest(step), before.get(name), now=now) if can_run else None
        if wake:
            wakes[name] = wake
        if wake or follows:
            chosen[name] = step.model
    return _ModelChoice(wakes, list(chosen.values()))


def _skip_reason(
    models: Sequence[Model], wakes: Mapping[str, SensorRequest], busy: Collection[dg.AssetKey], *, now: float
) -> str:
    """Why none of these, which have work, is asked for now."""
    on_their_way = [model.name for model in models if model_key(model) in busy]
    asked = [model for model in models if model.name not in on_their_way and model.id in wakes]
    if on_their_way:
        return f"a run of {', '.join(on_their_way)} is on its way"
    if asked:
        again_in = format_duration(max(min(wakes[model.id].next_at for model in asked) - now, 0))
        names = ", ".join(model.name for model in asked)
        return f"nothing has changed since a run of {names} was asked for; it is again in {again_in}"
    return "what they read has still to be made" if models else "nothing that they read has changed"


def _work_digest(step: ModelStep) -> str:
    """What there is to do, as a text that stays the same while it is the same."""
    model = step.model
    told = orjson.dumps([model.definition, model.checks_digest, dict(step.inputs)], option=orjson.OPT_SORT_KEYS)
    return hashlib.sha256(told).hexdigest()[:WORK_DIGEST_CHARACTERS]


def _build_run_request(news: Mapping[str, SensorRequest], models: Sequence[Model]) -> dg.RunRequest:
    run_key = " ".join(wake.run_key(name) for name, wake in news.items())
    return dg.RunRequest(run_key=run_key, asset_selection=_asset_keys(models))


def _asset_keys(models: Sequence[Model]) -> list[dg.AssetKey]:
    """The assets of these models, and of their syncs."""
    return [*map(model_key, models), *(sync_key(model) for model in models if model.sink)]
