"""One sensor a sync: it asks for a push when there is work, and for none when there isn't."""

import dataclasses

import dagster as dg
from support.shop import Shop, write_contacts

from ondatra_dagster.orchestration.definitions import definitions_of
from ondatra_dagster.orchestration.sensors import sink_sensor
from ondatra_dagster.orchestration.workspace import Workspace
from ondatra_dagster.testing.demo_api.server import DemoApi

PUSH = dg.AssetKey(["push", "sync", "crm"])


def run_models(shop: Shop, instance: dg.DagsterInstance) -> None:
    definitions = definitions_of(shop.workspace, opened=shop.opened)
    keys = [dg.AssetKey(["raw", "contacts"]), dg.AssetKey(["sync", "crm"])]
    job = definitions.resolve_implicit_global_asset_job_def()
    assert job.execute_in_process(instance=instance, asset_selection=keys).success


def push(shop: Shop, instance: dg.DagsterInstance) -> None:
    definitions = definitions_of(shop.workspace, opened=shop.opened)
    job = definitions.resolve_implicit_global_asset_job_def()
    job.execute_in_process(instance=instance, asset_selection=[PUSH], raise_on_error=False)


def tick(
    workspace: Workspace, instance: dg.DagsterInstance, *, cursor: str | None = None, now: float = 1000.0
) -> dg.SensorResult | dg.SkipReason:
    (sync,) = workspace.syncs.values()
    sensor = sink_sensor(dataclasses.replace(workspace, clock=lambda: now), sync)
    with dg.build_sensor_context(instance=instance, cursor=cursor) as context:
        answer = sensor(context)
    assert isinstance(answer, dg.SensorResult | dg.SkipReason)
    return answer


def requested(answer: dg.SensorResult | dg.SkipReason) -> list[str | None]:
    assert isinstance(answer, dg.SensorResult), answer
    return [request.run_key for request in answer.run_requests or ()]


def skipped(answer: dg.SensorResult | dg.SkipReason) -> str:
    assert isinstance(answer, dg.SkipReason)
    return str(answer.skip_message)


def test_sensors_are_on_when_dagster_starts(shop: Shop) -> None:
    """A sync that waits for a switch that nobody knows of delivers nothing."""
    (sensor,) = definitions_of(shop.workspace).sensors or ()
    assert isinstance(sensor, dg.SensorDefinition)
    assert dg.DefaultSensorStatus.RUNNING == sensor.default_status


def test_a_new_version_asks_for_a_push_of_just_this_sink(shop: Shop, instance: dg.DagsterInstance) -> None:
    """And the run key names sync and version, so that two ticks are one run."""
    run_models(shop, instance)
    answer = tick(shop.workspace, instance)
    assert ["sync.crm:id-of-crm@0/-1#1"] == requested(answer)
    assert isinstance(answer, dg.SensorResult)
    (request,) = answer.run_requests or ()
    assert [PUSH] == request.asset_selection


def test_nothing_new_and_nothing_due_is_a_reason(shop: Shop, instance: dg.DagsterInstance) -> None:
    """No run, and the page says why."""
    assert "sync.crm: nothing is new, and nothing is due" == skipped(tick(shop.workspace, instance))
    run_models(shop, instance)
    push(shop, instance)
    assert "sync.crm: nothing is new, and nothing is due" == skipped(tick(shop.workspace, instance))


def test_the_same_version_is_not_asked_for_at_each_tick(shop: Shop, instance: dg.DagsterInstance) -> None:
    """While its run waits in the queue, or has failed."""
    run_models(shop, instance)
    first = tick(shop.workspace, instance)
    assert isinstance(first, dg.SensorResult)
    assert "waits before it asks again" in skipped(
        tick(shop.workspace, instance, cursor=first.cursor, now=1010)
    )
    again = tick(shop.workspace, instance, cursor=first.cursor, now=1060)
    assert ["sync.crm:id-of-crm@0/-1#2"] == requested(again)


def test_a_run_that_will_push_anyway_is_enough(shop: Shop, instance: dg.DagsterInstance) -> None:
    """While everything is being materialized, the model is there before its push."""
    run_models(shop, instance)
    definitions = definitions_of(shop.workspace)
    job = definitions.resolve_implicit_global_asset_job_def()
    run = instance.create_run_for_job(
        job, asset_selection=frozenset({PUSH}), status=dg.DagsterRunStatus.STARTED
    )
    assert "on its way" in skipped(tick(shop.workspace, instance))
    instance.report_run_failed(run)
    assert requested(tick(shop.workspace, instance))


def test_rows_that_fall_due_wake_the_sync(shop: Shop, api: DemoApi, instance: dg.DagsterInstance) -> None:
    """Nothing changed in the table: the queue alone knows."""
    api.fail(status=400, times=1, path="/crm/*")
    run_models(shop, instance)
    push(shop, instance)
    assert "nothing is due" in skipped(tick(shop.workspace, instance))
    queue = shop.workspace.queue("sync.crm")
    assert queue
    assert queue.next_due_at
    assert requested(tick(shop.workspace, instance, now=queue.next_due_at + 1))


def test_a_sensor_reads_no_feed_and_computes_nothing(shop: Shop, instance: dg.DagsterInstance) -> None:
    """It ticks all day."""
    run_models(shop, instance)
    computed = len(shop.tables.computed)
    write_contacts(shop.root, a1="new@example.com")
    tick(shop.workspace, instance)
    assert (computed, 0) == (len(shop.tables.computed), shop.tables.feeds_read)
