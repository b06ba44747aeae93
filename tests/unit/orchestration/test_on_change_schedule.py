"""The schedule `on change`: models whose inputs have changed run once, all in one run, and without a click."""

import dataclasses
from pathlib import Path

import dagster as dg
import pytest
from support.projects.shop_project import SHOP_FILES, ShopProject, write_contacts

from ondatra_dagster.orchestration.definitions import definitions_of
from ondatra_dagster.orchestration.sensors import on_change_sensor
from ondatra_dagster.testing.demo_api.demo_server import DemoApi

RAW, CRM, PUSH = (dg.AssetKey(["raw", "contacts"]), dg.AssetKey(["sync", "crm"]), dg.AssetKey(["push", "sync", "crm"]))
ON_CHANGE = "-- @schedule: on change\n"
BOTH = {name: ON_CHANGE + text for name, text in SHOP_FILES.items() if name.endswith(".sql")}


@pytest.fixture
def shop(tmp_path: Path, api: DemoApi) -> ShopProject:
    """Return a shop whose two models run on change, and whose data hasn't arrived yet."""
    return ShopProject.create(tmp_path / "my shop", url=api.url, files=BOTH)


def ticks(
    shop: ShopProject, dagster_instance: dg.DagsterInstance, *, now: float = 1000.0, cursor: str | None = None
) -> dg.SensorResult:
    sensor = on_change_sensor(dataclasses.replace(shop.workspace, clock=lambda: now))
    with dg.build_sensor_context(instance=dagster_instance, cursor=cursor) as context:
        answer = sensor(context)
    assert isinstance(answer, dg.SensorResult)
    return answer


def asked(answer: dg.SensorResult) -> list[list[dg.AssetKey]]:
    return [list(request.asset_selection or ()) for request in answer.run_requests or ()]


def run_what_is_asked(
    shop: ShopProject, dagster_instance: dg.DagsterInstance, *, cursor: str | None = None
) -> str | None:
    """Run a tick and the run that it requests; return the cursor of the tick."""
    answer = ticks(shop, dagster_instance, cursor=cursor)
    (request,) = answer.run_requests or ()
    job = definitions_of(shop.workspace, open_service=shop.open_engine).resolve_implicit_global_asset_job_def()
    job.execute_in_process(instance=dagster_instance, asset_selection=request.asset_selection, raise_on_error=False)
    return answer.cursor


def test_the_sensor_exists_and_is_on_if_a_model_runs_on_change(shop: ShopProject) -> None:
    """Such a model has no schedule with times."""
    definitions = definitions_of(shop.workspace)
    sensors = {sensor.name: sensor for sensor in definitions.sensors or ()}
    assert dg.DefaultSensorStatus.RUNNING is sensors["run_on_change"].default_status  # type: ignore[union-attr]
    assert {"ondatra_maintain", "ondatra_fact_tables"} == {schedule.name for schedule in definitions.schedules or ()}
    for name, text in SHOP_FILES.items():
        (shop.root / name).write_text(text)
    assert "run_on_change" not in {sensor.name for sensor in definitions_of(shop.workspace).sensors or ()}


def test_new_data_is_at_the_api_after_one_run(
    shop: ShopProject, api: DemoApi, dagster_instance: dg.DagsterInstance
) -> None:
    """The models and the sync are in the same run, so that Spark starts only once."""
    assert [] == asked(ticks(shop, dagster_instance))  # the file doesn't exist yet
    write_contacts(shop.root, a1="ada@example.com")
    assert [[RAW, CRM, PUSH]] == asked(ticks(shop, dagster_instance))
    cursor = run_what_is_asked(shop, dagster_instance)
    assert ["a1"] == list(api.contacts())
    assert [] == asked(ticks(shop, dagster_instance, cursor=cursor))
    write_contacts(shop.root, a1="ada@example.com", b2="bo@example.com")
    run_what_is_asked(shop, dagster_instance, cursor=cursor)
    assert ["a1", "b2"] == list(api.contacts())


def test_a_model_without_the_schedule_on_change_is_not_requested(
    shop: ShopProject, dagster_instance: dg.DagsterInstance
) -> None:
    """The model that reads it waits until another run has computed it, and runs if that gave something new."""
    (shop.root / "models/raw/contacts.sql").write_text(SHOP_FILES["models/raw/contacts.sql"])
    write_contacts(shop.root, a1="ada@example.com")
    assert [] == asked(ticks(shop, dagster_instance))
    job = definitions_of(shop.workspace, open_service=shop.open_engine).resolve_implicit_global_asset_job_def()
    assert job.execute_in_process(instance=dagster_instance, asset_selection=[RAW]).success
    assert [[CRM, PUSH]] == asked(ticks(shop, dagster_instance))


def test_a_run_that_fails_is_requested_less_and_less_often(
    shop: ShopProject, dagster_instance: dg.DagsterInstance
) -> None:
    """It is requested at once when something else has changed."""
    write_contacts(shop.root, a1="ada@example.com")
    shop.tables.failing_models.add("raw.contacts")
    cursor = run_what_is_asked(shop, dagster_instance)
    assert [] == asked(ticks(shop, dagster_instance, cursor=cursor, now=1059))
    second = ticks(shop, dagster_instance, cursor=cursor, now=1060)
    assert [[RAW, CRM, PUSH]] == asked(second)
    assert [] == asked(ticks(shop, dagster_instance, cursor=second.cursor, now=1359))
    write_contacts(shop.root, a1="ada@example.com", b2="bo@example.com")
    assert [[RAW, CRM, PUSH]] == asked(ticks(shop, dagster_instance, cursor=second.cursor, now=1061))


def why_not(answer: dg.SensorResult) -> str | None:
    assert answer.skip_reason
    return answer.skip_reason.skip_message


def test_the_sensor_says_why_it_requests_nothing(shop: ShopProject, dagster_instance: dg.DagsterInstance) -> None:
    """If something has changed, the user must not read that nothing has."""
    assert "nothing that they read has changed" == why_not(ticks(shop, dagster_instance))
    write_contacts(shop.root, a1="ada@example.com")
    shop.tables.failing_models.add("raw.contacts")
    cursor = run_what_is_asked(shop, dagster_instance)
    message = "nothing has changed since a run of raw.contacts, sync.crm was requested; the next request is in 20 s"
    assert message == why_not(ticks(shop, dagster_instance, cursor=cursor, now=1040))
    job = definitions_of(shop.workspace).resolve_implicit_global_asset_job_def()
    keys = frozenset({RAW, CRM, PUSH})
    started = dagster_instance.create_run_for_job(job, asset_selection=keys, status=dg.DagsterRunStatus.STARTED)
    message = why_not(ticks(shop, dagster_instance, cursor=cursor, now=2000))
    dagster_instance.report_run_failed(started)
    assert "a run of raw.contacts, sync.crm is under way" == message


def test_a_model_below_a_failing_one_is_not_requested_without_it(
    shop: ShopProject, dagster_instance: dg.DagsterInstance
) -> None:
    """It would find nothing new, again and again."""
    write_contacts(shop.root, a1="ada@example.com")
    cursor = run_what_is_asked(shop, dagster_instance)
    write_contacts(shop.root, a1="ada@example.org")
    shop.tables.failing_models.add("raw.contacts")
    cursor = run_what_is_asked(shop, dagster_instance, cursor=cursor)
    assert [] == asked(ticks(shop, dagster_instance, cursor=cursor))


def test_nothing_is_requested_while_a_run_of_these_models_is_on_its_way(
    shop: ShopProject, dagster_instance: dg.DagsterInstance
) -> None:
    write_contacts(shop.root, a1="ada@example.com")
    job = definitions_of(shop.workspace).resolve_implicit_global_asset_job_def()
    keys = frozenset({RAW, CRM, PUSH})
    started = dagster_instance.create_run_for_job(job, asset_selection=keys, status=dg.DagsterRunStatus.STARTED)
    answer = ticks(shop, dagster_instance)
    dagster_instance.report_run_failed(started)
    assert [] == asked(answer)
    assert [[RAW, CRM, PUSH]] == asked(ticks(shop, dagster_instance))
