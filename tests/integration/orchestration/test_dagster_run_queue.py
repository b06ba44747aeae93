"""The runs that Dagster's queue doesn't start at the same time, with the dagster.yaml of a new project."""

import shutil
from pathlib import Path

import dagster as dg
import pytest
from dagster._core.op_concurrency_limits_counter import GlobalOpConcurrencyLimitsCounter
from support.projects.shop_project import ShopProject

from ondatra_dagster.orchestration.definitions import definitions_of
from ondatra_dagster.orchestration.in_process_run import open_instance

TEMPLATE = Path(__file__).parents[3] / "ondatra_dagster" / "template"
IN_PROGRESS = dg.RunsFilter(statuses=[dg.DagsterRunStatus.STARTED])
RAW, PUSH, OWN = dg.AssetKey(["raw", "contacts"]), dg.AssetKey(["push", "sync", "crm"]), dg.AssetKey("own")
OURS = (RAW, PUSH, "ondatra_maintain_job", "ondatra_fact_tables_job")


@dg.asset(key=OWN)
def own() -> None:
    """Materialize an asset that belongs to the user and not to ondatra."""


def a_run(
    dagster_instance: dg.DagsterInstance,
    definitions: dg.Definitions,
    of: dg.AssetKey | str,
    status: dg.DagsterRunStatus = dg.DagsterRunStatus.NOT_STARTED,
) -> dg.DagsterRun:
    """Create a run of one asset or of one job, as the UI or a schedule requests it."""
    if isinstance(of, str):
        return dagster_instance.create_run_for_job(definitions.resolve_job_def(of), status=status)
    job = definitions.resolve_implicit_global_asset_job_def()
    return dagster_instance.create_run_for_job(job, asset_selection={of}, status=status)


def is_kept_waiting(dagster_instance: dg.DagsterInstance, run: dg.DagsterRun) -> bool:
    """Return whether Dagster's queue makes a run wait for those in progress.

    Half of these names are private in Dagster, so only this function uses them.
    """

    def counted() -> GlobalOpConcurrencyLimitsCounter:
        return GlobalOpConcurrencyLimitsCounter(
            dagster_instance,
            [run],
            dagster_instance.get_run_records(IN_PROGRESS),
            concurrency_keys=dagster_instance.event_log_storage.get_concurrency_keys(),
            pool_limits=dagster_instance.event_log_storage.get_pool_limits(),
            pool_granularity=dagster_instance.get_concurrency_config().pool_config.pool_granularity,
        )

    counted()  # the first call gives the pool its limit
    return counted().is_blocked(run)


@pytest.fixture
def definitions(shop: ShopProject) -> dg.Definitions:
    ours = definitions_of(shop.workspace, open_service=shop.open_engine)
    return dg.Definitions.merge(ours, dg.Definitions(assets=[own]))


@pytest.fixture
def shop_with_dagster_yaml(shop: ShopProject) -> ShopProject:
    shutil.copy(TEMPLATE / "dagster.yaml", shop.root)
    return shop


@pytest.mark.parametrize("second", OURS, ids=str)
def test_runs_that_may_start_spark_run_one_at_a_time(
    shop_with_dagster_yaml: ShopProject, definitions: dg.Definitions, second: dg.AssetKey | str
) -> None:
    """The UI, a sensor or a schedule may request them. Two JVMs would use up the memory of a machine."""
    with open_instance(shop_with_dagster_yaml.workspace.settings) as instance:
        waiting = a_run(instance, definitions, second)
        assert not is_kept_waiting(instance, waiting)
        a_run(instance, definitions, RAW, dg.DagsterRunStatus.STARTED)
        assert is_kept_waiting(instance, waiting)


def test_a_run_of_other_assets_does_not_wait_for_runs_of_ondatra(
    shop_with_dagster_yaml: ShopProject, definitions: dg.Definitions
) -> None:
    """A limit on all runs would delay everything else in the same Dagster."""
    with open_instance(shop_with_dagster_yaml.workspace.settings) as instance:
        a_run(instance, definitions, PUSH, dg.DagsterRunStatus.STARTED)
        assert not is_kept_waiting(instance, a_run(instance, definitions, OWN))
        assert 1 < instance.get_concurrency_config().run_queue_config.max_concurrent_runs


def test_a_queued_run_waits_for_a_run_from_a_shell(
    shop_with_dagster_yaml: ShopProject, definitions: dg.Definitions
) -> None:
    """`ondatra run` isn't queued, but a queued run must wait until it has ended."""
    waits: list[bool] = []

    @dg.asset(key=OWN, deps=[RAW])
    def look(context: dg.AssetExecutionContext) -> None:
        waits.append(is_kept_waiting(context.instance, a_run(context.instance, definitions, PUSH)))

    ours = definitions_of(shop_with_dagster_yaml.workspace, open_service=shop_with_dagster_yaml.open_engine)
    job = dg.Definitions.merge(ours, dg.Definitions(assets=[look])).resolve_implicit_global_asset_job_def()
    with open_instance(shop_with_dagster_yaml.workspace.settings) as instance:
        assert job.execute_in_process(instance=instance, asset_selection=[RAW, OWN]).success
    assert [True] == waits
