"""A project whose Dagster has its history in PostgreSQL, as when several machines share one Dagster."""

import asyncio
import logging
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from dagster._core.workspace.context import WorkspaceProcessContext
from dagster._core.workspace.load_target import PyProjectFileTarget
from dagster._daemon.freshness import FreshnessDaemon
from dagster._daemon.sensor import execute_sensor_iteration
from dagster._utils.error import SerializableErrorInfo
from dagster_webserver.webserver import DagsterWebserver
from support.processes.dagster_dev_server import DG, write_dagster_files
from support.processes.postgres_server import running_postgres_server
from support.projects.shop_project import ShopProject, write_contacts

from ondatra_dagster.cli.commands.run import RunCommandOptions, execute_plan, plan_run
from ondatra_dagster.orchestration.in_process_run import open_instance
from ondatra_dagster.sync.send_guards import pause_sync, resume_sync
from ondatra_dagster.testing.demo_api import DemoApi

pytestmark = pytest.mark.acceptance

ROOT = Path(__file__).parents[2]
SENSORS = """
{ sensorsOrError(repositorySelector: {repositoryName: "__repository__", repositoryLocationName: "ondatra"}) {
    ... on Sensors { results { name sensorState { status ticks(limit: 1) { status } } } } } }
"""


@pytest.fixture(scope="module")
def postgres() -> Iterator[str]:
    with running_postgres_server() as url:
        yield url


@pytest.fixture
def shop(tmp_path: Path, api: DemoApi, postgres: str, monkeypatch: pytest.MonkeyPatch) -> ShopProject:
    """Return a project with the storage that the docs show, and with one contact."""
    monkeypatch.setenv("DAGSTER_POSTGRES_URL", postgres)
    shop = ShopProject.create(tmp_path / "my shop", url=api.url)
    write_dagster_files(shop.root)
    (storage,) = re.findall(r"```yaml\n(storage:.*?)```", (ROOT / "docs/run.md").read_text(), re.DOTALL)
    instance = shop.root / "dagster.yaml"
    instance.write_text(re.sub(r"^storage:\n(?: .*\n)+", storage, instance.read_text(), flags=re.MULTILINE))
    write_contacts(shop.root, a1="ada@example.com")
    return shop


def test_runs_sensors_and_freshness_work_on_postgres(shop: ShopProject, api: DemoApi) -> None:
    """With SQLAlchemy 2.1 its driver was missing, and two of these queries failed in PostgreSQL."""
    (sync,) = shop.workspace.syncs.values()
    pause_sync(sync)
    plan = plan_run(shop.workspace)
    assert 0 == execute_plan(shop.workspace, plan, RunCommandOptions(as_json=True), open_service=shop.open_engine)
    resume_sync(sync)
    with open_instance(shop.workspace.settings) as instance:
        assert "PostgresEventLogStorage" == type(instance.event_log_storage).__name__
        target = PyProjectFileTarget(str(shop.root / "pyproject.toml"))
        with WorkspaceProcessContext(instance, target) as workspace:
            assert [] == daemon_errors(FreshnessDaemon().run_iteration(workspace))
            assert [] == daemon_errors(FreshnessDaemon().run_iteration(workspace))
            assert [] == daemon_errors(execute_sensor_iteration(workspace, logging.getLogger(), None, None))
            ticks = last_ticks(workspace)
    assert {"push_due", "push__sync__crm__sensor"} == set(ticks)
    assert ["SKIPPED", "SUCCESS"] == sorted(ticks.values())  # one requests the run, and the other sees that
    assert () == api.calls
    completed = subprocess.run(
        [DG, "launch", "--job", "push__sync__crm__job"], cwd=shop.root, capture_output=True, text=True
    )
    assert 0 == completed.returncode, completed.stderr
    assert {"a1"} == set(api.contacts())
    with open_instance(shop.workspace.settings) as instance:  # from the shell, by the sensor, and the first one
        assert ["SUCCESS", "QUEUED", "SUCCESS"] == [run.status.value for run in instance.get_runs()]


def daemon_errors(iteration: Iterator[SerializableErrorInfo | None]) -> list[SerializableErrorInfo]:
    """Return the errors of one iteration of a daemon."""
    return [error for error in iteration if error]


def last_ticks(workspace: WorkspaceProcessContext) -> dict[str, str]:
    """Return the newest tick's status of each sensor, as Dagster's UI requests it."""
    webserver = httpx.ASGITransport(DagsterWebserver(workspace).create_asgi_app())

    async def ask() -> httpx.Response:
        async with httpx.AsyncClient(transport=webserver, base_url="http://dagster") as client:
            return await client.post("/graphql", json={"query": SENSORS})

    answer = asyncio.run(ask())
    assert 200 == answer.status_code, answer.text
    sensors = answer.json()["data"]["sensorsOrError"]["results"]
    return {sensor["name"]: sensor["sensorState"]["ticks"][0]["status"] for sensor in sensors}
