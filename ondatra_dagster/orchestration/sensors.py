"""The sensors for each sync's new versions, all due work, events, changes and alerts. All are on by default.

A sensor makes the plan that every run makes, from logs, files and queues, without Spark. So sensors also see
data that other programs wrote; a materialization only triggers them earlier. The sensor for due work finds the
work that the syncs' sensors miss, such as the work of a failed run.
"""

import contextlib
import dataclasses
import hashlib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import dagster as dg
import orjson

from ondatra_dagster.app.alert_service import AlertService
from ondatra_dagster.app.workspace import Workspace, load_workspace
from ondatra_dagster.count_time_and_size_format import format_duration
from ondatra_dagster.errors import OndatraError, SelectionError
from ondatra_dagster.future_time_correction import is_from_future
from ondatra_dagster.orchestration.asset_keys import model_key, op_name, sync_key
from ondatra_dagster.orchestration.run_tags_and_abandoned_runs import close_abandoned_runs
from ondatra_dagster.orchestration.sensor_request_backoff import (
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
from ondatra_dagster.sync.sync_definition import Sync

ALERTS_SECONDS = 300
DUE_SENSOR = "push_due"
ALERT_SENSOR = "ondatra_alerts"


def sync_sensor(workspace: Workspace, sync: Sync) -> dg.AssetSensorDefinition:
    """Return the sensor that pushes a sync when its model was materialized and the sync has work."""
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
            return dg.SkipReason(f"{sync.id}: a run that pushes it is under way")
        return dg.RunRequest(run_key=f"{sync.id}:{work.work_digest}", asset_selection=[key])

    return sensor


def due_sensor(workspace: Workspace) -> dg.SensorDefinition:
    """Return the sensor that pushes due retries, polls due jobs, and pushes rows that other sensors' runs left."""

    @dg.sensor(
        name=DUE_SENSOR,
        asset_selection=[sync_key(sync.model) for sync in workspace.syncs.values()],
        minimum_interval_seconds=INTERVAL_SECONDS,
        default_status=dg.DefaultSensorStatus.RUNNING,
        description="Pushes rows whose retry is due, and polls open jobs",
    )
    def sensor(context: dg.SensorEvaluationContext) -> dg.SensorResult:
        close_abandoned_runs(context.instance, workspace.settings.state)
        previous = load_requests(context.cursor)
        keys = {sync.id: sync_key(sync.model) for sync in workspace.syncs.values()}
        busy_keys = keys_in_unfinished_runs(context.instance, list(keys.values()))
        current = _choose_requests(_syncs_with_work(workspace), previous, busy_keys, now=workspace.clock())
        due = {name: request for name, request in _new_requests(current, previous).items() if request.tries}
        run_requests = [_build_run_request({name: request}, [keys[name]]) for name, request in due.items()]
        skip_reason = None if due else "nothing is due"
        return dg.SensorResult(run_requests=run_requests, skip_reason=skip_reason, cursor=dump_requests(current))

    return sensor


def alert_sensor(workspace: Workspace) -> dg.SensorDefinition:
    """Return the sensor that finds syncs without success, and sends alerts that the webhook hasn't accepted yet."""

    @dg.sensor(
        name=ALERT_SENSOR,
        asset_selection=[sync_key(sync.model) for sync in workspace.syncs.values()],
        minimum_interval_seconds=ALERTS_SECONDS,
        default_status=dg.DefaultSensorStatus.RUNNING,
        description="Sends fired and resolved alerts to alerts.webhook; starts no run",
    )
    def sensor(_: dg.SensorEvaluationContext) -> dg.SkipReason:
        current_workspace = _reload_workspace(workspace)
        alerts = AlertService(current_workspace or workspace)
        return dg.SkipReason(alerts.check_and_send(is_current=current_workspace is not None).message)

    return sensor


def _reload_workspace(workspace: Workspace) -> Workspace | None:
    """Return the project, loaded from its current files; None while the files have errors.

    A Dagster code location keeps the project that it started with, but the user may have edited models after that.
    """
    try:
        current_workspace = load_workspace(workspace.settings.root)
    except OndatraError:
        return None
    return dataclasses.replace(current_workspace, clock=workspace.clock)


class _PendingWork(NamedTuple):
    """The pending work of a sync, or of a model of kind events."""

    name: str
    key: dg.AssetKey
    digest: str
    is_new: bool = False


def _syncs_with_work(workspace: Workspace) -> Iterator[_PendingWork]:
    for sync in workspace.syncs.values():
        work = workspace.sync_work(sync)
        if work.has_work:
            yield _PendingWork(sync.id, sync_key(sync.model), work.work_digest, work.is_new)


def _choose_requests(
    pending_work: Iterable[_PendingWork],
    previous_requests: Mapping[str, SensorRequest],
    busy: Collection[dg.AssetKey],
    *,
    now: float,
) -> dict[str, SensorRequest]:
    """Return a request for each sync or model with work: a new request, or the last one if no new one is due."""
    requests: dict[str, SensorRequest] = {}
    for work in pending_work:
        previous_request = previous_requests.get(work.name)
        sensor_request = (
            None if work.key in busy else next_request(work.digest, previous_request, now=now, is_new=work.is_new)
        )
        if request := sensor_request or previous_request:
            requests[work.name] = request
    return requests


def _build_run_request(requests: Mapping[str, SensorRequest], keys: Sequence[dg.AssetKey]) -> dg.RunRequest:
    run_key = " ".join(request.run_key(name) for name, request in requests.items())
    return dg.RunRequest(run_key=run_key, asset_selection=keys)


EVENT_SENSOR = "flush_events"


def event_sensor(workspace: Workspace) -> dg.SensorDefinition:
    """Return the sensor that runs all models of kind events whose events are old enough, in one run."""
    keys = {model.id: model_key(model) for model in event_models(workspace)}

    @dg.sensor(
        name=EVENT_SENSOR,
        asset_selection=list(keys.values()),
        minimum_interval_seconds=INTERVAL_SECONDS,
        default_status=dg.DefaultSensorStatus.RUNNING,
        description="Writes waiting events to their tables",
    )
    def sensor(context: dg.SensorEvaluationContext) -> dg.SensorResult:
        close_abandoned_runs(context.instance, workspace.settings.state)
        previous = load_requests(context.cursor)
        busy_keys = keys_in_unfinished_runs(context.instance, list(keys.values()))
        current = _choose_requests(_models_with_due_events(workspace), previous, busy_keys, now=workspace.clock())
        new = _new_requests(current, previous)
        run_requests = [_build_run_request(new, [keys[name] for name in new])] if new else []
        skip_reason = None if new else "no events have waited long enough"
        return dg.SensorResult(run_requests=run_requests, skip_reason=skip_reason, cursor=dump_requests(current))

    return sensor


def _new_requests(
    current: Mapping[str, SensorRequest], previous: Mapping[str, SensorRequest]
) -> dict[str, SensorRequest]:
    """Return the requests that weren't in the previous tick, or that differ from the previous tick's."""
    return {name: request for name, request in current.items() if request != previous.get(name)}


def event_models(workspace: Workspace) -> list[Model]:
    return [model for model in workspace.project.models.values() if not model.kind.has_query]


def _models_with_due_events(workspace: Workspace) -> Iterator[_PendingWork]:
    """Yield the models whose events have waited long enough, or arrived while the clock was ahead."""
    for model in event_models(workspace):
        waiting_events, now = workspace.events_waiting(model.id), workspace.clock()
        if waiting_events.oldest_at is None:
            continue
        if now - waiting_events.oldest_at >= workspace.settings.events.flush_seconds or is_from_future(
            waiting_events.oldest_at, now
        ):
            yield _PendingWork(model.id, model_key(model), waiting_events.oldest_request_id)


ON_CHANGE_SENSOR = "run_on_change"
WORK_DIGEST_CHARACTERS = 16  # the first characters of a digest, which distinguish work


def on_change_sensor(workspace: Workspace) -> dg.SensorDefinition:
    """Return the sensor that runs all changed models in one run, with their syncs.

    The run includes models that read the changed models, if these also have `@schedule: on change`. A
    materialization that changed no data starts no run.
    """
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
        previous = load_requests(context.cursor)
        busy_keys = keys_in_unfinished_runs(context.instance, _asset_keys(models))
        steps, now = _steps_with_work(workspace), workspace.clock()
        current, chosen = _choose_models(steps, previous, busy_keys, now=now)
        run_requests = [_build_run_request(_new_requests(current, previous), _asset_keys(chosen))] if chosen else []
        skip_reason = None if chosen else _skip_reason([step.model for step in steps], current, busy_keys, now=now)
        return dg.SensorResult(run_requests=run_requests, skip_reason=skip_reason, cursor=dump_requests(current))

    return sensor


def models_on_change(workspace: Workspace) -> list[Model]:
    """Return the models with `@schedule: on change`, in the order in which they run."""
    return [model for model in workspace.project.models.values() if model.schedule == ON_CHANGE]


def _steps_with_work(workspace: Workspace) -> list[ModelStep]:
    """Return the plan step of each model on change that has work and whose inputs exist."""
    input_plan = workspace.plan_inputs()
    steps: dict[str, ModelStep] = {}
    for model in models_on_change(workspace):
        with contextlib.suppress(SelectionError):  # the model reads another model that was never built
            step = plan_model(workspace.project, model, input_plan, running_ids=steps)
            if step.will_run and INPUT_NOT_FOUND not in step.inputs.values():
                steps[model.id] = step
    return list(steps.values())


class _ModelChoice(NamedTuple):
    """The models that one tick of the sensor on change chooses."""

    requests: Mapping[str, SensorRequest]  # by model id: the last request, or the request of this tick
    models: Sequence[Model]  # models to run now: models with work, and models that read them


def _choose_models(
    steps: Sequence[ModelStep],
    previous_requests: Mapping[str, SensorRequest],
    busy: Collection[dg.AssetKey],
    *,
    now: float,
) -> _ModelChoice:
    """Choose the models that are in no unfinished run, and whose work is new or may be requested again."""
    requests = {step.model.id: previous_requests[step.model.id] for step in steps if step.model.id in previous_requests}
    chosen_models: dict[str, Model] = {}
    for step in (step for step in steps if model_key(step.model) not in busy):
        name, inputs = step.model.id, step.model.inputs
        reads_chosen_model = any(
            isinstance(model_input, ModelInput) and model_input.model in chosen_models for model_input in inputs
        )
        can_run = step.work_needed is WorkNeeded.YES and (
            reads_chosen_model or MODEL_NOT_BUILT not in step.inputs.values()
        )
        sensor_request = next_request(_work_digest(step), previous_requests.get(name), now=now) if can_run else None
        if sensor_request:
            requests[name] = sensor_request
        if sensor_request or reads_chosen_model:
            chosen_models[name] = step.model
    return _ModelChoice(requests, list(chosen_models.values()))


def _skip_reason(
    models: Sequence[Model], wakes: Mapping[str, SensorRequest], busy: Collection[dg.AssetKey], *, now: float
) -> str:
    """Return the reason why no run is requested now for these models, which all have work."""
    running_models = [model.name for model in models if model_key(model) in busy]
    requested_models = [model for model in models if model.name not in running_models and model.id in wakes]
    if running_models:
        return f"a run of {', '.join(running_models)} is under way"
    if requested_models:
        wait_text = format_duration(max(min(wakes[model.id].next_at for model in requested_models) - now, 0))
        names = ", ".join(model.name for model in requested_models)
        return f"nothing has changed since a run of {names} was requested; the next request is in {wait_text}"
    return "their inputs have no table yet" if models else "nothing that they read has changed"


def _work_digest(step: ModelStep) -> str:
    """Return a digest of the step's work; it is equal for equal work."""
    model = step.model
    digest_input = orjson.dumps([model.definition, model.checks_digest, dict(step.inputs)], option=orjson.OPT_SORT_KEYS)
    return hashlib.sha256(digest_input).hexdigest()[:WORK_DIGEST_CHARACTERS]


def _asset_keys(models: Sequence[Model]) -> list[dg.AssetKey]:
    """Return the asset keys of these models and of their syncs."""
    return [*map(model_key, models), *(sync_key(model) for model in models if model.sink)]
