"""The sensors: they request a push when there is work, and none when there isn't."""

import dataclasses

import dagster as dg
import pytest
from support.projects.shop_project import ShopProject, write_contacts

from ondatra_dagster.orchestration.definitions import definitions_of
from ondatra_dagster.orchestration.schedules import fact_tables_job, maintain_job
from ondatra_dagster.orchestration.sensors import due_sensor, sync_sensor
from ondatra_dagster.sync.send_guards import pause_sync, resume_sync
from ondatra_dagster.testing.demo_api.demo_server import DemoApi

PUSH = dg.AssetKey(["push", "sync", "crm"])


def run_models(shop: ShopProject, dagster_instance: dg.DagsterInstance) -> None:
    definitions = definitions_of(shop.workspace, open_service=shop.open_engine)
    keys = [dg.AssetKey(["raw", "contacts"]), dg.AssetKey(["sync", "crm"])]
    job = definitions.resolve_implicit_global_asset_job_def()
    assert job.execute_in_process(instance=dagster_instance, asset_selection=keys).success


def push(shop: ShopProject, dagster_instance: dg.DagsterInstance) -> None:
    definitions = definitions_of(shop.workspace, open_service=shop.open_engine)
    job = definitions.resolve_implicit_global_asset_job_def()
    job.execute_in_process(instance=dagster_instance, asset_selection=[PUSH], raise_on_error=False)


def hears(
    shop: ShopProject, dagster_instance: dg.DagsterInstance, *, cursor: str | None = None
) -> list[dg.RunRequest | dg.SkipReason]:
    """Return what the sensor of the sync answers to one tick."""
    workspace = shop.workspace
    (sync,) = workspace.syncs.values()
    with dg.build_sensor_context(instance=dagster_instance, cursor=cursor) as context:
        return list(sync_sensor(workspace, sync)(context))  # type: ignore[call-overload, arg-type]


def ticks(
    shop: ShopProject, dagster_instance: dg.DagsterInstance, *, cursor: str | None = None, now: float = 1000.0
) -> dg.SensorResult:
    """Return what the sensor for all due work answers to one tick."""
    sensor = due_sensor(dataclasses.replace(shop.workspace, clock=lambda: now))
    with dg.build_sensor_context(instance=dagster_instance, cursor=cursor) as context:
        answer = sensor(context)
    assert isinstance(answer, dg.SensorResult)
    return answer


def keys_of(answer: dg.SensorResult) -> list[str | None]:
    return [request.run_key for request in answer.run_requests or ()]


def test_sensors_are_on_when_dagster_starts(shop: ShopProject) -> None:
    """A sync that waits for a switch that the user doesn't know delivers nothing."""
    sensors = {sensor.name: sensor for sensor in definitions_of(shop.workspace).sensors or ()}
    assert {"push__sync__crm__sensor", "push_due"} == set(sensors)
    assert isinstance(sensors["push__sync__crm__sensor"], dg.AssetSensorDefinition)
    assert {dg.DefaultSensorStatus.RUNNING} == {sensor.default_status for sensor in sensors.values()}  # type: ignore[union-attr]


def test_a_new_version_requests_a_push_of_this_sync_only(
    shop: ShopProject, dagster_instance: dg.DagsterInstance
) -> None:
    """The run key names the sync and the version, so that two ticks start one run."""
    run_models(shop, dagster_instance)
    (request,) = hears(shop, dagster_instance)
    assert isinstance(request, dg.RunRequest)
    assert ("sync.crm:id-of-crm@0/-1", [PUSH]) == (request.run_key, request.asset_selection)


def test_a_materialization_that_changed_nothing_starts_no_run(
    shop: ShopProject, api: DemoApi, dagster_instance: dg.DagsterInstance
) -> None:
    """A model that runs each minute must not push each minute."""
    run_models(shop, dagster_instance)
    push(shop, dagster_instance)
    run_models(shop, dagster_instance)
    (skip,) = hears(shop, dagster_instance)
    assert isinstance(skip, dg.SkipReason)
    assert "sync.crm: nothing is new, and nothing is due" == skip.skip_message
    assert [] == keys_of(ticks(shop, dagster_instance))


def test_a_version_whose_run_delivered_nothing_is_requested_again(
    shop: ShopProject, dagster_instance: dg.DagsterInstance
) -> None:
    """The run failed, or the daemon was down. A sensor that only waits for events would lose the version."""
    run_models(shop, dagster_instance)
    first = ticks(shop, dagster_instance)
    assert [] == keys_of(first)  # the other sensor requests it first
    assert [] == keys_of(ticks(shop, dagster_instance, cursor=first.cursor, now=1010))
    second = ticks(shop, dagster_instance, cursor=first.cursor, now=1060)
    assert ["sync.crm:id-of-crm@0/-1#1@1060"] == keys_of(second)
    assert [] == keys_of(ticks(shop, dagster_instance, cursor=second.cursor, now=1110))
    third = ticks(shop, dagster_instance, cursor=second.cursor, now=1120)
    assert ["sync.crm:id-of-crm@0/-1#2@1120"] == keys_of(third)


def test_nothing_is_requested_while_a_run_that_will_push_is_on_its_way(
    shop: ShopProject, dagster_instance: dg.DagsterInstance
) -> None:
    """While all assets are materialized, the model is ready before its push."""
    run_models(shop, dagster_instance)
    definitions = definitions_of(shop.workspace)
    job = definitions.resolve_implicit_global_asset_job_def()
    run = dagster_instance.create_run_for_job(
        job, asset_selection=frozenset({PUSH}), status=dg.DagsterRunStatus.STARTED
    )
    (skip,) = hears(shop, dagster_instance)
    assert isinstance(skip, dg.SkipReason)
    assert "under way" in str(skip.skip_message)
    first = ticks(shop, dagster_instance)
    dagster_instance.report_run_failed(run)
    assert [] == keys_of(first)
    assert [dg.RunRequest] == [type(answer) for answer in hears(shop, dagster_instance)]


@dg.op
def listen() -> None:
    """Run something of the user's that never ends."""


@dg.job
def users_job() -> None:
    listen()


@pytest.mark.parametrize("job", [maintain_job, fact_tables_job, users_job])
def test_a_sync_does_not_wait_for_a_job_without_assets(
    shop: ShopProject, dagster_instance: dg.DagsterInstance, job: dg.JobDefinition
) -> None:
    """Such a job may take hours, and it pushes nothing."""
    run_models(shop, dagster_instance)
    dagster_instance.create_run_for_job(job, status=dg.DagsterRunStatus.STARTED)
    assert [dg.RunRequest] == [type(answer) for answer in hears(shop, dagster_instance)]


def test_a_sync_waits_for_a_run_of_all_assets(shop: ShopProject, dagster_instance: dg.DagsterInstance) -> None:
    """Such a run selects no assets, because it runs its whole job."""
    run_models(shop, dagster_instance)
    job = definitions_of(shop.workspace).resolve_implicit_global_asset_job_def()
    dagster_instance.create_run_for_job(job, status=dg.DagsterRunStatus.STARTED)
    assert [dg.SkipReason] == [type(answer) for answer in hears(shop, dagster_instance)]


def test_rows_that_become_due_start_a_run(
    shop: ShopProject, api: DemoApi, dagster_instance: dg.DagsterInstance
) -> None:
    """Nothing has changed in the table; only the queue knows it."""
    api.fail(status=400, times=1, path="/crm/*")
    run_models(shop, dagster_instance)
    push(shop, dagster_instance)
    queue = shop.workspace.queue("sync.crm")
    assert queue
    assert queue.next_due_at
    answer = ticks(shop, dagster_instance, now=queue.next_due_at - 1)
    assert ([], "nothing is due") == (keys_of(answer), answer.skip_reason.skip_message)  # type: ignore[union-attr]
    answer = ticks(shop, dagster_instance, now=queue.next_due_at + 1)
    (request,) = answer.run_requests or ()
    assert [PUSH] == request.asset_selection


def test_rows_that_are_due_because_the_clock_was_ahead_start_one_run(
    shop: ShopProject, api: DemoApi, dagster_instance: dg.DagsterInstance
) -> None:
    """They are due at each tick, but a run that delivered nothing isn't requested again at each tick."""
    api.fail(status=400, times=1, path="/crm/*")
    run_models(shop, dagster_instance)
    push(shop, dagster_instance)
    first = ticks(shop, dagster_instance, now=1000)
    (request,) = first.run_requests or ()
    assert [PUSH] == request.asset_selection
    assert [] == keys_of(ticks(shop, dagster_instance, now=1030, cursor=first.cursor))
    assert 1 == len(keys_of(ticks(shop, dagster_instance, now=1060, cursor=first.cursor)))


JOBS = """
API = {
    "base_url": "BASE", "auth": {"env": "DEMO_API_KEY"}, "retry": 0,
    "push": {"batch_mode": "async", "poll_interval": "5m"},
}

def key(row):
    return str(row["__ondatra_rowid"]) + ":" + row["__ondatra_change_type"]

def push(rows):
    found = [{"key": key(r), "upsert": {"customer_id": r["id"], "email": r["email"]}} for r in rows]
    return {"id": http.post("/crm/jobs", json={"operations": found}).json["id"]}

def poll(job_ref):
    return {"done": False}
"""


def test_a_job_that_is_due_for_a_poll_starts_a_run(
    shop: ShopProject, api: DemoApi, dagster_instance: dg.DagsterInstance
) -> None:
    """The run that started the job has ended, and no other process polls it."""
    (shop.root / "lib" / "crm_push.star").write_text(JOBS.replace("BASE", api.url))
    run_models(shop, dagster_instance)
    push(shop, dagster_instance)
    queue = shop.workspace.queue("sync.crm")
    assert queue
    assert (1, 2) == (queue.open_jobs, queue.units_in_jobs)
    assert queue.next_due_at
    assert [] == keys_of(ticks(shop, dagster_instance, now=queue.next_due_at - 1))
    answer = ticks(shop, dagster_instance, now=queue.next_due_at + 1)
    (request,) = answer.run_requests or ()
    assert [PUSH] == request.asset_selection


def test_a_paused_sync_is_not_requested_until_it_is_resumed(
    shop: ShopProject, api: DemoApi, dagster_instance: dg.DagsterInstance
) -> None:
    """One run puts its rows into the queue. Further runs would do nothing."""
    (sync,) = shop.workspace.syncs.values()
    pause_sync(sync)
    run_models(shop, dagster_instance)
    assert [dg.RunRequest] == [type(answer) for answer in hears(shop, dagster_instance)]
    push(shop, dagster_instance)
    assert [] == keys_of(ticks(shop, dagster_instance))
    resume_sync(sync)
    assert 1 == len(keys_of(ticks(shop, dagster_instance)))


def test_a_sensor_reads_no_feed_and_computes_nothing(shop: ShopProject, dagster_instance: dg.DagsterInstance) -> None:
    """Sensors tick all day."""
    run_models(shop, dagster_instance)
    computed = len(shop.tables.computed_models)
    write_contacts(shop.root, a1="new@example.com")
    hears(shop, dagster_instance)
    ticks(shop, dagster_instance)
    assert (computed, 0) == (len(shop.tables.computed_models), shop.tables.feed_read_count)
