"""A day of a project under `dg dev`: data arrives, events come, an API is down, and the user doesn't click."""

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import orjson
import pytest
from support.processes.collector_load import CollectorProcess
from support.processes.dagster_dev_server import DagsterDevServer, write_dagster_files
from support.projects.event_project import CollectorClient
from support.projects.shop_project import SHOP_FILES, write_contacts, write_shop_files

from ondatra_dagster.testing.demo_api import DemoApi

pytestmark = pytest.mark.soak

DAY_SECONDS = 400  # each thing that the test waits for takes a minute or two
LOOK_SECONDS = 0.5
ON_CHANGE = "-- @schedule: on change\n"
LIBRARY = Path(__file__).parents[2] / "lib" / "timeline_push.star"
SETTINGS = """
[tool.ondatra]
maintain_at = "* * * * *"

[tool.ondatra.events]
flush_seconds = 1
"""
VIEWS = "-- @kind: events\npage STRING NOT NULL,\ncustomer_id STRING NOT NULL\n"
STEPS = """
-- @kind: append
-- @sink: timeline_push
SELECT page AS order_id, customer_id, 'seen' AS status FROM events.views
"""
RUNS = "{ runsOrError { ... on Runs { results { pipelineName status tags { key value } } } } }"
CHECKS = """
{ assetNodeOrError(assetKey: {path: ["push", "sync", "crm"]}) { ... on AssetNode {
    assetChecksOrError { ... on AssetChecks { checks { name executionForLatestMaterialization {
        evaluation { success severity description } } } } } } } }
"""


@pytest.fixture
def root(tmp_path: Path, api: DemoApi) -> Path:
    """Return a project with contacts for a CRM and page views for its timeline; all models run on change."""
    on_change = {name: ON_CHANGE + text for name, text in SHOP_FILES.items() if name.endswith(".sql")}
    timeline = LIBRARY.read_text().replace("http://127.0.0.1:8321", api.url)
    ours = {
        "pyproject.toml": SETTINGS,
        "models/events/views.sql": VIEWS,
        "models/mart/steps.sql": ON_CHANGE + STEPS,
        "lib/timeline_push.star": timeline,
    }
    root = write_shop_files(tmp_path / "a project", url=api.url, files={**on_change, **ours})
    write_dagster_files(root)
    return root


class DagsterCheckResult(NamedTuple):
    success: bool
    severity: str
    description: str


class ProjectObserver:
    """The state of a project, as the API, Dagster and the command line see it."""

    def __init__(self, root: Path, dagster: DagsterDevServer, api: DemoApi) -> None:
        self._root = root
        self._dagster = dagster
        self._api = api

    def wait_until(self, is_reached: Callable[[], object]) -> None:
        give_up_at = time.monotonic() + DAY_SECONDS
        while not is_reached():
            assert time.monotonic() < give_up_at, (self.runs(), self.history("sync.crm"), self.emails())
            time.sleep(LOOK_SECONDS)

    def emails(self) -> dict[str, object]:
        return {key: contact["email"] for key, contact in self._api.contacts().items()}

    def runs(self) -> list[tuple[str, str]]:
        """Return what started each of Dagster's runs, and its status; the oldest first."""
        runs = self._dagster.query_graphql(RUNS)["runsOrError"]["results"]
        return [(_started_by(run), run["status"]) for run in reversed(runs)]

    def checks(self) -> dict[str, "DagsterCheckResult"]:
        """Return the current result of each check of the CRM's sync."""
        checks = self._dagster.query_graphql(CHECKS)["assetNodeOrError"]["assetChecksOrError"]["checks"]
        ends = [(check["name"], check["executionForLatestMaterialization"]) for check in checks]
        return {
            name: DagsterCheckResult(*map(end["evaluation"].get, ("success", "severity", "description")))
            for name, end in ends
            if end and end["evaluation"]  # none while a run still has to evaluate it
        }

    def logged(self, key: str) -> list[str]:
        """Return the addresses that the sync log has as delivered for a contact, the oldest first."""
        lines = [
            line
            for line in self.run_json_command("query", "ondatra.sync_log", "--json")
            if line["sync_id"] == "sync.crm"
        ]
        deliveries = [line for line in lines if (line["record_identifier"], line["status"]) == (key, "succeeded")]
        deliveries.sort(key=lambda line: line["batch_started_at"])
        return [orjson.loads(line["record_payload"])["email"] for line in deliveries]

    def history(self, sync: str) -> list[dict[str, Any]]:
        """Return the sync's runs, the oldest first."""
        return self.run_json_command("history", sync, "--json")[::-1]

    def run_json_command(self, *arguments: str) -> list[dict[str, Any]]:
        command = [sys.executable, "-m", "ondatra_dagster.cli.main", *arguments]
        completed = subprocess.run(command, cwd=self._root, capture_output=True, text=True, check=True)
        return [orjson.loads(line) for line in completed.stdout.splitlines()]


def _started_by(run: dict[str, Any]) -> str:
    tags = {tag["key"]: tag["value"] for tag in run["tags"]}
    return tags.get("dagster/sensor_name") or tags.get("dagster/schedule_name") or "somebody"


@pytest.fixture
def project_observer(root: Path, tmp_path: Path, api: DemoApi) -> Iterator[ProjectObserver]:
    """Start `dg dev`, and yield an observer of its project."""
    dagster = DagsterDevServer(root, tmp_path / "dagster.log")
    try:
        dagster.wait_until_ready()
        yield ProjectObserver(root, dagster, api)
    finally:
        dagster.stop()


@pytest.fixture
def collector(root: Path) -> Iterator[CollectorProcess]:
    collector = CollectorProcess(root)
    collector.start()
    yield collector
    assert 0 == collector.stop()


def test_a_day_without_a_click(
    root: Path, api: DemoApi, project_observer: ProjectObserver, collector: CollectorProcess
) -> None:
    """New data is delivered, an outage ends, events flow, and history and checks show all of it."""
    write_contacts(root, a1="ada@example.com", b2="bo@example.com", c3="no address")
    project_observer.wait_until(lambda: {"a1": "ada@example.com", "b2": "bo@example.com"} == project_observer.emails())

    sender = CollectorClient(collector.port)
    for page in ("/shoes", "/hats"):
        assert 202 == sender.post({"page": page, "customer_id": "a1"}).status
    sender.close()
    project_observer.wait_until(lambda: {"/shoes seen", "/hats seen"} == set(api.timeline()))

    api.fail(status=503, times=None, path="/crm/contacts*")
    write_contacts(root, a1="ada@example.org", b2="bo@example.com", c3="no address")
    down = DagsterCheckResult(
        success=False, severity="ERROR", description="the API is down: the rows wait for a later run"
    )
    project_observer.wait_until(lambda: down == project_observer.checks().get("undelivered"))
    assert "ada@example.com" == project_observer.emails()["a1"]
    api.recover()
    project_observer.wait_until(lambda: "ada@example.org" == project_observer.emails()["a1"])
    # the run that sent it had no Spark, so maintenance wrote its records to the log
    project_observer.wait_until(lambda: ["ada@example.com", "ada@example.org"] == project_observer.logged("a1"))

    assert [
        ("run_on_change", "full", "succeeded"),
        ("run_on_change", "incremental", "failed"),
        ("push_due", "retry", "succeeded"),
    ] == [(run["trigger"], run["mode"], run["result"]) for run in project_observer.history("sync.crm")]
    assert 2 == sum(run["grid"]["succeeded"]["insert"] for run in project_observer.history("mart.steps"))
    assert {"run_on_change", "flush_events", "push_due", "ondatra_maintain"} == {
        by for by, _ in project_observer.runs()
    }
    assert ("ondatra_maintain", "SUCCESS") in project_observer.runs()
    (reject,) = project_observer.run_json_command("records", "sync.crm", "--search", "c3", "--json")
    assert "rejected" == reject["status"]
    assert "isn't an address" in reject["status_message"]
    checks = project_observer.checks()
    assert {"rejects", "undelivered", "invalid_records", "deletes_guard"} == set(checks)
    # the row that the API refused is a dead letter, and no more than a warning
    assert {"rejects": "WARN"} == {name: check.severity for name, check in checks.items() if not check.success}
