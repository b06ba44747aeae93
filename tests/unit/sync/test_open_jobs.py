"""A sync run that ends with a job open: what it says, what it leaves, and how the next one goes on."""

import dataclasses
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.real_syncs import the_ports, the_sync
from support.tables import Table

from ondatra_dagster.delivery.target import Shape
from ondatra_dagster.project.model import Limit
from ondatra_dagster.sync.run import run_sync
from ondatra_dagster.sync.start import Occasion
from ondatra_dagster.sync.summary import RunSummary
from ondatra_dagster.sync.sync import Sync
from ondatra_dagster.sync.verdicts import Severity, judge
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
class JobDesk:
    """A sync whose API takes as long as it is told to."""

    state: Path
    api: DemoApi
    table: Table = dataclasses.field(default_factory=lambda: Table(Shape.ROW))
    now: float = 1_800_000_000.0
    hold: str | None = None
    may_ask: bool = True
    max_deletes: Limit | None = None

    @property
    def sync(self) -> Sync:
        sync = the_sync(self.state, "merge")
        return dataclasses.replace(sync, sink=dataclasses.replace(sync.sink, max_deletes=self.max_deletes))

    def run(self) -> RunSummary:
        self.now += 1
        sync = self.sync
        ports = the_ports(sync, self.table, {"API_KEY": DEMO_KEY}, now=self.now)
        ports = dataclasses.replace(
            ports,
            clock=lambda: self.now,
            sleep=self._sleep,
            hold=lambda: self.hold,
            may_ask=self.may_ask,
        )
        return run_sync(sync, ports, Occasion(trigger="test"))

    def _sleep(self, seconds: float) -> None:
        self.now += seconds

    def undelivered(self, summary: RunSummary) -> tuple[Severity, str]:
        verdicts = judge(summary, self.sync.limits)
        return next((each.severity, each.description) for each in verdicts if each.check == "undelivered")


@pytest.fixture
def desk(tmp_path: Path, api: DemoApi) -> JobDesk:
    api.clear()
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "api.star").write_text(LIBRARY.replace("BASE", api.url), encoding="utf-8")
    desk = JobDesk(tmp_path, api)
    for key in "ab":
        desk.table.write(key, [1])
    api.delay_jobs(99)
    return desk


def test_a_run_that_leaves_a_job_open_is_a_warning_and_no_failure(desk):
    """Nothing has failed: an open job counts neither as delivered nor as not."""
    summary = desk.run()
    assert (Severity.WARN, "2 rows in open jobs") == desk.undelivered(summary)
    assert (1, 2) == (summary.queue.open_jobs, summary.queue.in_jobs)
    desk.api.delay_jobs(0)
    desk.now += 60
    assert (Severity.PASS, "nothing waits") == desk.undelivered(desk.run())


def test_a_run_with_nothing_due_leaves_a_job_alone(desk):
    """The time between two polls is the API's."""
    desk.run()
    calls = len(desk.api.calls)
    desk.now -= 1
    summary = desk.run()
    assert (False, calls) == (summary.has_done_something, len(desk.api.calls))


def test_a_paused_sync_asks_about_its_jobs_and_hands_nothing_over(desk):
    """Their time passes meanwhile; a poll sends no row."""
    desk.run()
    desk.hold = "it is paused"
    desk.table.write("c", [1])
    desk.api.delay_jobs(0)
    desk.now += 60
    summary = desk.run()
    assert (0, 1, ("J-1",)) == (summary.queue.open_jobs, summary.queue.pending, desk.api.jobs())
    assert {"a", "b"} == set(desk.api.contacts())
    calls = len(desk.api.calls)
    assert not desk.run().has_done_something
    assert calls == len(desk.api.calls)


def test_a_paused_run_is_begun_for_a_poll_alone(desk):
    """And for nothing else that could be sent."""
    desk.run()
    desk.hold = "it is paused"
    desk.api.delay_jobs(0)
    desk.now += 60
    assert (True, 0) == (desk.run().has_done_something, desk.run().queue.depth)


def test_a_dry_sync_makes_no_request_at_all(desk):
    """Who sets sinks to dry expects none."""
    desk.run()
    desk.hold, desk.may_ask = "sinks are dry", False
    calls = len(desk.api.calls)
    desk.now += 60
    assert not desk.run().has_done_something
    desk.table.write("c", [1])
    assert desk.run().queue.open_jobs
    assert calls == len(desk.api.calls)


def test_a_sync_that_is_held_by_its_guard_asks_about_its_jobs(desk):
    """Somebody may take a day to say yes."""
    desk.run()
    desk.max_deletes = Limit(0)
    desk.table.write("a", [])
    desk.api.delay_jobs(0)
    desk.now += 60
    summary = desk.run()
    assert (0, 1, 1) == (summary.queue.open_jobs, summary.queue.pending, summary.removals.removed)
    assert {"a", "b"} == set(desk.api.contacts())
    desk.max_deletes = None
    desk.run()
    assert ("J-1", "J-2") == desk.api.jobs()


def test_a_lost_queue_submits_no_job_that_is_open_again(desk):
    """A job may be a thousand invoices; its reference is in the tracking store too."""
    desk.run()
    desk.table.write("c", [1])
    shutil.rmtree(desk.state / "queue")
    desk.api.delay_jobs(0)
    desk.now += 60
    summary = desk.run()
    assert 0 == summary.queue.depth
    assert {"a", "b", "c"} == set(desk.api.contacts())
    assert ("J-1", "J-2") == desk.api.jobs()


@pytest.mark.parametrize("days", [0, 1, 30])
def test_a_job_of_a_clock_that_was_ahead_is_asked_about(desk, days):
    """At once, and its time to end begins with the right clock."""
    desk.now += 3650 * DAY
    desk.run()
    desk.now -= (3650 - days) * DAY
    calls = len(desk.api.calls)
    summary = desk.run()
    assert (1, 2) == (summary.queue.open_jobs, summary.queue.in_jobs)
    assert len(desk.api.calls) > calls
    desk.now += 3 * HOUR
    assert 0 == desk.run().queue.open_jobs
    assert ("J-1",) == desk.api.jobs()
    desk.api.delay_jobs(0)
    desk.now += HOUR
    assert 0 == desk.run().queue.depth
    assert {"a", "b"} == set(desk.api.contacts())


@pytest.mark.parametrize("back", [4 * MINUTE, 3650 * DAY])
def test_a_clock_that_is_set_back_while_a_job_is_open_ends_no_job(desk, back):
    """Four minutes are no jump: the time between two polls is the API's."""
    desk.run()
    calls = len(desk.api.calls)
    desk.now -= back
    assert 1 == desk.run().queue.open_jobs
    assert (len(desk.api.calls) > calls) == (back > HOUR)


def test_a_lost_queue_asks_about_a_job_of_a_clock_that_was_ahead(desk):
    """The frontier has the moments at which its times were set."""
    desk.now += 3650 * DAY
    desk.run()
    desk.now -= 3650 * DAY
    shutil.rmtree(desk.state / "queue")
    desk.api.delay_jobs(0)
    assert 0 == desk.run().queue.depth
    assert ("J-1",) == desk.api.jobs()
