"""A sync run that ends with an open job: what it reports, what it leaves, and how the next run continues."""

import dataclasses
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.syncs.keyed_feed_table import KeyedFeedTable
from support.syncs.real_sync import build_ports, build_sync

from ondatra_dagster.delivery.acknowledged_to_desired_diff import UnitKind
from ondatra_dagster.project.model import RowLimit
from ondatra_dagster.sync.run_context import RunOptions
from ondatra_dagster.sync.run_summary import RunSummary
from ondatra_dagster.sync.sync_checks import Severity, run_sync_checks
from ondatra_dagster.sync.sync_definition import Sync
from ondatra_dagster.sync.sync_run import run_sync
from ondatra_dagster.testing.demo_api import DEMO_KEY, DemoApi, running_demo_api

MINUTE, HOUR, DAY = 60, 3600, 86_400
LIBRARY = """
API = {
    "base_url": "BASE", "auth": {"env": "API_KEY"}, "retry": 0,
    "push": {"batch_mode": "async", "batch_size": 2, "poll_timeout": "2h"},
}

def key(row):
    return str(row["__ondatra_rowid"]) + ":" + row["__ondatra_change_type"]

def push(rows):
    contacts = [{"customer_id": r["id"], "email": str(r["value"]) + "@example.com"} for r in rows]
    found = [{"key": key(r), "upsert": contact} for r, contact in zip(rows, contacts)]
    return {"id": http.post("/crm/jobs", json={"operations": found}).json["id"]}

def poll(job_ref):
    answer = http.get("/crm/jobs/" + job_ref["id"])
    if answer.json["status"] == "complete":
        return {"done": True, "per_row": {name: status for name, status in answer.json["results"]}}
    return {"done": False}
"""


@pytest.fixture(scope="module")
def api() -> Iterator[DemoApi]:
    with running_demo_api() as api:
        yield api


@dataclasses.dataclass
class OpenJobHarness:
    """A sync whose API takes as long as the test chooses."""

    state: Path
    api: DemoApi
    table: KeyedFeedTable = dataclasses.field(default_factory=lambda: KeyedFeedTable(UnitKind.ROW))
    now: float = 1_800_000_000.0
    hold_reason: str | None = None
    may_poll: bool = True
    max_deletes: RowLimit | None = None

    @property
    def sync(self) -> Sync:
        sync = build_sync(self.state, "merge")
        return dataclasses.replace(sync, sink=dataclasses.replace(sync.sink, max_deletes=self.max_deletes))

    def run(self) -> RunSummary:
        self.now += 1
        sync = self.sync
        ports = build_ports(sync, self.table, {"API_KEY": DEMO_KEY}, now=self.now)
        ports = dataclasses.replace(
            ports,
            clock=lambda: self.now,
            sleep=self._sleep,
            find_hold_reason=lambda: self.hold_reason,
            may_poll=self.may_poll,
        )
        return run_sync(sync, ports, RunOptions(trigger="test"))

    def _sleep(self, seconds: float) -> None:
        self.now += seconds

    def undelivered(self, summary: RunSummary) -> tuple[Severity, str]:
        verdicts = run_sync_checks(summary, self.sync.limits)
        return next((check.severity, check.description) for check in verdicts if check.name == "undelivered")


@pytest.fixture
def harness(tmp_path: Path, api: DemoApi) -> OpenJobHarness:
    api.clear()
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "api.star").write_text(LIBRARY.replace("BASE", api.url), encoding="utf-8")
    desk = OpenJobHarness(tmp_path, api)
    for key in "ab":
        desk.table.write(key, [1])
    api.delay_jobs(99)
    return desk


def test_a_run_that_leaves_a_job_open_is_a_warning_and_no_failure(harness):
    """Nothing has failed. Rows in an open job count neither as delivered nor as undelivered."""
    summary = harness.run()
    assert (Severity.WARN, "2 rows in open jobs") == harness.undelivered(summary)
    assert (1, 2) == (summary.queue.open_jobs, summary.queue.units_in_jobs)
    harness.api.delay_jobs(0)
    harness.now += 60
    assert (Severity.PASS, "nothing waits") == harness.undelivered(harness.run())


def test_a_run_with_nothing_due_does_not_poll_a_job(harness):
    """The API decides the time between two polls."""
    harness.run()
    calls = len(harness.api.calls)
    harness.now -= 1
    summary = harness.run()
    assert (False, calls) == (summary.has_run, len(harness.api.calls))


def test_a_paused_sync_polls_its_jobs_and_sends_no_rows(harness):
    """The jobs' time passes meanwhile, and a poll sends no row."""
    harness.run()
    harness.hold_reason = "it is paused"
    harness.table.write("c", [1])
    harness.api.delay_jobs(0)
    harness.now += 60
    summary = harness.run()
    assert (0, 1, ("J-1",)) == (summary.queue.open_jobs, summary.queue.pending_units, harness.api.jobs())
    assert {"a", "b"} == set(harness.api.contacts())
    calls = len(harness.api.calls)
    assert not harness.run().has_run
    assert calls == len(harness.api.calls)


def test_a_paused_sync_runs_only_for_a_poll(harness):
    """Rows that wait don't start a run."""
    harness.run()
    harness.hold_reason = "it is paused"
    harness.api.delay_jobs(0)
    harness.now += 60
    assert (True, 0) == (harness.run().has_run, harness.run().queue.depth)


def test_a_dry_sync_makes_no_request_at_all(harness):
    """A user who sets sinks to dry expects none."""
    harness.run()
    harness.hold_reason, harness.may_poll = "sinks are dry", False
    calls = len(harness.api.calls)
    harness.now += 60
    assert not harness.run().has_run
    harness.table.write("c", [1])
    assert harness.run().queue.open_jobs
    assert calls == len(harness.api.calls)


def test_a_sync_that_is_held_by_its_guard_polls_its_jobs(harness):
    """The user may take a day to allow the deletes."""
    harness.run()
    harness.max_deletes = RowLimit(0)
    harness.table.write("a", [])
    harness.api.delay_jobs(0)
    harness.now += 60
    summary = harness.run()
    assert (0, 1, 1) == (summary.queue.open_jobs, summary.queue.pending_units, summary.removals.removed_count)
    assert {"a", "b"} == set(harness.api.contacts())
    harness.max_deletes = None
    harness.run()
    assert ("J-1", "J-2") == harness.api.jobs()


def test_a_lost_queue_does_not_submit_an_open_job_again(harness):
    """A job may be a thousand invoices. Its reference is in the tracking store too."""
    harness.run()
    harness.table.write("c", [1])
    shutil.rmtree(harness.state / "queue")
    harness.api.delay_jobs(0)
    harness.now += 60
    summary = harness.run()
    assert 0 == summary.queue.depth
    assert {"a", "b", "c"} == set(harness.api.contacts())
    assert ("J-1", "J-2") == harness.api.jobs()


@pytest.mark.parametrize("days", [0, 1, 30])
def test_a_job_of_a_clock_that_was_ahead_is_polled(harness, days):
    """It is polled at once, and its timeout begins with the right clock."""
    harness.now += 3650 * DAY
    harness.run()
    harness.now -= (3650 - days) * DAY
    calls = len(harness.api.calls)
    summary = harness.run()
    assert (1, 2) == (summary.queue.open_jobs, summary.queue.units_in_jobs)
    assert len(harness.api.calls) > calls
    harness.now += 3 * HOUR
    assert 0 == harness.run().queue.open_jobs
    assert ("J-1",) == harness.api.jobs()
    harness.api.delay_jobs(0)
    harness.now += HOUR
    assert 0 == harness.run().queue.depth
    assert {"a", "b"} == set(harness.api.contacts())


@pytest.mark.parametrize("back", [4 * MINUTE, 3650 * DAY])
def test_a_clock_that_is_set_back_while_a_job_is_open_ends_no_job(harness, back):
    """Four minutes are no jump of the clock, so the time between two polls still counts."""
    harness.run()
    calls = len(harness.api.calls)
    harness.now -= back
    assert 1 == harness.run().queue.open_jobs
    assert (len(harness.api.calls) > calls) == (back > HOUR)


def test_a_lost_queue_polls_a_job_of_a_clock_that_was_ahead(harness):
    """The queue snapshot has the moments at which the job's times were set."""
    harness.now += 3650 * DAY
    harness.run()
    harness.now -= 3650 * DAY
    shutil.rmtree(harness.state / "queue")
    harness.api.delay_jobs(0)
    assert 0 == harness.run().queue.depth
    assert ("J-1",) == harness.api.jobs()
