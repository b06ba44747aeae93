"""The waiting events of a model in plan, run, sensor and dry run: requested once, flushed once, always reported."""

import dataclasses
from pathlib import Path

import dagster as dg
import orjson
import pytest
from support.projects.shop_project import ShopProject

from ondatra_dagster.cli.commands.run import RunCommandOptions, execute_plan, plan_run
from ondatra_dagster.collector.event_store import EventRequest, event_store_path, open_locked_store, read_page_after
from ondatra_dagster.orchestration.definitions import definitions_of
from ondatra_dagster.orchestration.sensors import event_sensor
from ondatra_dagster.testing.demo_api.demo_server import DemoApi

VIEWS = dg.AssetKey(["events", "views"])
MODEL = "events.views"
FILES = {"models/events/views.sql": "-- @kind: events\npage STRING NOT NULL\n"}


@pytest.fixture
def shop(tmp_path: Path, api: DemoApi) -> ShopProject:
    """Return a shop with an event model whose tables exist."""
    shop = ShopProject.create(tmp_path / "my shop", url=api.url, files=FILES)
    workspace = shop.workspace
    assert 0 == execute_plan(workspace, workspace.plan([MODEL]), open_service=shop.open_engine)
    return shop


def take(shop: ShopProject, *pages: str, at: float = 1000.0) -> None:
    with open_locked_store(shop.workspace.settings, "a test") as file:
        file.store_requests([EventRequest(MODEL, int(at * 1e6), 1, orjson.dumps({"page": page})) for page in pages])


def pages(shop: ShopProject) -> list[str | None]:
    return [row[0] for _, row in shop.tables.table(MODEL).rows.values()]


def ticks(
    shop: ShopProject, dagster_instance: dg.DagsterInstance, *, now: float = 1100.0, cursor: str | None = None
) -> dg.SensorResult:
    sensor = event_sensor(dataclasses.replace(shop.workspace, clock=lambda: now))
    with dg.build_sensor_context(instance=dagster_instance, cursor=cursor) as context:
        answer = sensor(context)
    assert isinstance(answer, dg.SensorResult)
    return answer


def asked(answer: dg.SensorResult) -> list[tuple[str | None, list[dg.AssetKey] | None]]:
    return [(request.run_key, list(request.asset_selection or ())) for request in answer.run_requests or ()]


def test_a_plan_includes_an_event_model_only_when_events_wait(shop: ShopProject) -> None:
    """The plan needs no Spark, so a run with nothing to do stays quick."""
    (step,) = shop.workspace.plan([MODEL]).models
    assert (False, "nothing it reads has changed") == (step.will_run, step.reason)
    take(shop, "/a", "/b")
    (step,) = shop.workspace.plan([MODEL]).models
    assert (True, "2 events wait") == (step.will_run, step.reason)


def test_a_run_moves_waiting_events_into_the_table_once(shop: ShopProject) -> None:
    take(shop, "/a", "/b")
    workspace = shop.workspace
    assert 0 == execute_plan(workspace, workspace.plan([MODEL]), open_service=shop.open_engine)
    assert ["/a", "/b"] == pages(shop)
    assert [] == read_page_after(event_store_path(workspace.settings), MODEL, 0, limit=9)
    assert not shop.workspace.plan([MODEL]).has_work


def test_a_dry_run_leaves_events_waiting(shop: ShopProject, capfd: pytest.CaptureFixture[str]) -> None:
    """The dry run reports how many they are."""
    take(shop, "/a", "/b")
    workspace = shop.workspace
    plan = plan_run(workspace, [MODEL], is_dry=True)
    assert 0 == execute_plan(workspace, plan, RunCommandOptions(is_dry=True), open_service=shop.open_engine)
    assert "✓ events.views  2 rows (+2)" in capfd.readouterr().err
    assert [] == pages(shop)
    assert 2 == workspace.events_waiting(MODEL).events


def test_the_plan_shows_a_new_column_before_waiting_events(shop: ShopProject) -> None:
    """The plan shows the simplest reason. The events are written in the same run."""
    take(shop, "/a")
    (shop.root / "models/events/views.sql").write_text(FILES["models/events/views.sql"] + ", seconds INT")
    (step,) = shop.workspace.plan([MODEL]).models
    assert (True, "its definition changed") == (step.will_run, step.reason)


def test_the_flush_sensor_exists_for_event_models_and_is_on(shop: ShopProject) -> None:
    """The user doesn't have to switch it on."""
    sensors = {sensor.name: sensor for sensor in definitions_of(shop.workspace).sensors or ()}
    assert dg.DefaultSensorStatus.RUNNING is sensors["flush_events"].default_status  # type: ignore[union-attr]
    (shop.root / "models/events/views.sql").unlink()
    assert "flush_events" not in {sensor.name for sensor in definitions_of(shop.workspace).sensors or ()}


def test_events_that_have_waited_long_enough_request_one_run(
    shop: ShopProject, dagster_instance: dg.DagsterInstance
) -> None:
    """More ticks and more events request no second run at once. Events that still wait a minute later do."""
    assert [] == asked(ticks(shop, dagster_instance))
    take(shop, "/a", at=1000)
    assert [] == asked(ticks(shop, dagster_instance, now=1059))  # one run a minute is enough
    first = ticks(shop, dagster_instance, now=1060)
    numbering = shop.workspace.events(shop.workspace.project.model(MODEL)).sequence_id  # type: ignore[union-attr]
    assert [(f"{MODEL}:{numbering}@1#1@1060", [VIEWS])] == asked(first)
    take(shop, "/b", at=1061)
    assert [] == asked(ticks(shop, dagster_instance, now=1075, cursor=first.cursor))
    second = ticks(shop, dagster_instance, now=1120, cursor=first.cursor)  # the first run wrote nothing
    assert [(f"{MODEL}:{numbering}@1#2@1120", [VIEWS])] == asked(second)


def test_events_from_a_clock_that_was_ahead_count_as_old_enough(
    shop: ShopProject, dagster_instance: dg.DagsterInstance
) -> None:
    """Their waiting time is unknown. A difference of four minutes isn't taken for a jump of the clock."""
    take(shop, "/a", at=1000 + 240)
    assert [] == asked(ticks(shop, dagster_instance, now=1000))
    assert 1 == len(asked(ticks(shop, dagster_instance, now=900)))


def test_no_run_is_requested_while_another_is_in_progress(
    shop: ShopProject, dagster_instance: dg.DagsterInstance
) -> None:
    take(shop, "/a")
    job = definitions_of(shop.workspace).resolve_implicit_global_asset_job_def()
    started = dg.DagsterRunStatus.STARTED
    on_its_way = dagster_instance.create_run_for_job(job, asset_selection=frozenset({VIEWS}), status=started)
    answer = ticks(shop, dagster_instance)
    dagster_instance.report_run_failed(on_its_way)
    assert [] == asked(answer)
    assert 1 == len(asked(ticks(shop, dagster_instance)))


def test_the_run_that_the_sensor_requests_flushes_the_events(
    shop: ShopProject, dagster_instance: dg.DagsterInstance
) -> None:
    """Afterwards the sensor requests no run."""
    take(shop, "/a")
    (request,) = ticks(shop, dagster_instance).run_requests or ()
    job = definitions_of(shop.workspace, open_service=shop.open_engine).resolve_implicit_global_asset_job_def()
    result = job.execute_in_process(instance=dagster_instance, asset_selection=request.asset_selection)
    assert result.success
    assert ["/a"] == pages(shop)
    (check,) = result.get_asset_check_evaluations()
    assert ("invalid_records", True, "every event fits the columns") == (
        check.check_name,
        check.passed,
        check.description,
    )
    assert [] == asked(ticks(shop, dagster_instance))
