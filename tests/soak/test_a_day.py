"""A day of a project under `dg dev`: data lands, events come, an API is down, and nobody clicks."""

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import orjson
import pytest
from support.collecting import Sender
from support.dagster_dev import DagsterDev, lay_down_dagster
from support.event_senders import CollectorProcess
from support.shop import FILES, lay_down, write_contacts

from ondatra_dagster.testing.demo_api import DemoApi

pytestmark = pytest.mark.soak

DAY_SECONDS = 400  # each of the things that are waited for takes a minute or two
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
    """Contacts for a CRM, and page views for its timeline; all models run on change."""
    on_change = {name: ON_CHANGE + text for name, text in FILES.items() if name.endswith(".sql")}
    timeline = LIBRARY.read_text().replace("http://127.0.0.1:8321", api.url)
    ours = {
        "pyproject.toml": SETTINGS,
        "models/events/views.sql": VIEWS,
        "models/mart/steps.sql": ON_CHANGE + STEPS,
        "lib/timeline_push.star": timeline,
    }
    root = lay_down(tmp_path / "a project", url=api.url, files={**on_change, **ours})
    lay_down_dagster(root)
    return root


class Check(NamedTuple):
    success: bool
    severity: str
    says: str


class Day:
    """What goes on, as the API, Dagster and the command line see it."""

    def __init__(self, root: Path, dagster: DagsterDev, api: DemoApi) -> None:
        self._root = root
        self._dagster = dagster
        self._api = api

    def wait_until(self, happened: Callable[[], object]) -> None:
        give_up_at = time.monotonic() + DAY_SECONDS
        while not happened():
            assert time.monotonic() < give_up_at, (self.runs(), self.history("sync.crm"), self.emails())
            time.sleep(LOOK_SECONDS)

    def emails(self) -> dict[str, object]:
        return {key: contact["email"] for key, contact in self._api.contacts().items()}

    def runs(self) -> list[tuple[str, str]]:
        """What started each of Dagster's runs, and how it stands; the oldest first."""
        told = self._dagster.ask(RUNS)["runsOrError"]["results"]
        return [(_started_by(run), run["status"]) for run in reversed(told)]

    def checks(self) -> dict[str, "Check"]:
        """What each check of the CRM's sync says now."""
        told = self._dagster.ask(CHECKS)["assetNodeOrError"]["assetChecksOrError"]["checks"]
        ends = [(check["name"], check["executionForLatestMaterialization"]) for check in told]
        return {
            name: Check(*map(end["evaluation"].get, ("success", "severity", "description")))
            for name, end in ends
            if end and end["evaluation"]  # none while a run has it still to do
        }

    def logged(self, key: str) -> list[str]:
        """The addresses that the sync log says were delivered for a contact, the oldest first."""
        lines = [
            line for line in self.says("query", "ondatra.sync_log", "--json") if line["sync_id"] == "sync.crm"
        ]
        sent = [line for line in lines if (line["record_identifier"], line["status"]) == (key, "succeeded")]
        sent.sort(key=lambda line: line["batch_started_at"])
        return [orjson.loads(line["record_payload"])["email"] for line in sent]

    def history(self, sync: str) -> list[dict[str, Any]]:
        """The sync's runs, the oldest first."""
        return self.says("history", sync, "--json")[::-1]

    def says(self, *arguments: str) -> list[dict[str, Any]]:
        command = [sys.executable, "-m", "ondatra_dagster.cli.main", *arguments]
        done = subprocess.run(command, cwd=self._root, capture_output=True, text=True, check=True)
        return [orjson.loads(line) for line in done.stdout.splitlines()]


def _started_by(run: dict[str, Any]) -> str:
    tags = {tag["key"]: tag["value"] for tag in run["tags"]}
    return tags.get("dagster/sensor_name") or tags.get("dagster/schedule_name") or "somebody"


@pytest.fixture
def day(root: Path, tmp_path: Path, api: DemoApi) -> Iterator[Day]:
    """`dg dev` has begun its day."""
    dagster = DagsterDev(root, tmp_path / "dagster.log")
    try:
        dagster.wait_until_it_serves()
        yield Day(root, dagster, api)
    finally:
        dagster.end()


@pytest.fixture
def collector(root: Path) -> Iterator[CollectorProcess]:
    collector = CollectorProcess(root)
    collector.start()
    yield collector
    assert 0 == collector.end()


def test_a_day_without_a_click(root: Path, api: DemoApi, day: Day, collector: CollectorProcess) -> None:
    """What lands is delivered, an outage is got over, events flow, and history and checks tell the story."""
    write_contacts(root, a1="ada@example.com", b2="bo@example.com", c3="no address")
    day.wait_until(lambda: {"a1": "ada@example.com", "b2": "bo@example.com"} == day.emails())

    sender = Sender(collector.port)
    for page in ("/shoes", "/hats"):
        assert 202 == sender.post({"page": page, "customer_id": "a1"}).status
    sender.close()
    day.wait_until(lambda: {"/shoes seen", "/hats seen"} == set(api.timeline()))

    api.fail(status=503, times=None, path="/crm/contacts*")
    write_contacts(root, a1="ada@example.org", b2="bo@example.com", c3="no address")
    down = Check(success=False, severity="ERROR", says="the API is down: the rows wait for a later run")
    day.wait_until(lambda: down == day.checks().get("undelivered"))
    assert "ada@example.com" == day.emails()["a1"]
    api.recover()
    day.wait_until(lambda: "ada@example.org" == day.emails()["a1"])
    # the run that brought it had no Spark: maintenance put what it sent into the log
    day.wait_until(lambda: ["ada@example.com", "ada@example.org"] == day.logged("a1"))

    assert [
        ("run_on_change", "full", "succeeded"),
        ("run_on_change", "incremental", "failed"),
        ("push_due", "retry", "succeeded"),
    ] == [(run["trigger"], run["mode"], run["result"]) for run in day.history("sync.crm")]
    assert 2 == sum(run["grid"]["succeeded"]["insert"] for run in day.history("mart.steps"))
    assert {"run_on_change", "flush_events", "push_due", "ondatra_maintain"} == {by for by, _ in day.runs()}
    assert ("ondatra_maintain", "SUCCESS") in day.runs()
    (reject,) = day.says("records", "sync.crm", "--search", "c3", "--json")
    assert "rejected" == reject["status"]
    assert "isn't an address" in reject["status_message"]
    checks = day.checks()
    assert {"rejects", "undelivered", "invalid_records", "deletes_guard"} == set(checks)
    # the one that the API refused is a dead letter, and no more than a warning
    assert {"rejects": "WARN"} == {
        name: check.severity for name, check in checks.items() if not check.success
    }
