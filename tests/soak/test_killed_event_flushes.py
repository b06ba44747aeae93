"""A hundred thousand events, with kills of collector and flush: each event is in the Delta table once.

Each flush starts a JVM. ONDATRA_TEST_EVENTS sets the number of events; tests/faults has a smaller form.
"""

import collections
import os
import signal
import subprocess
import sys
from pathlib import Path

import orjson
import pytest
from support.processes.collector_load import (
    BATCH_EVENTS,
    CollectorProcess,
    EventSenders,
    child_environment,
    count_events,
)
from support.processes.flush_run_kill_points import RUN_KILL_POINTS
from support.projects.event_project import EventProject

from ondatra_dagster.app.workspace import load_workspace
from ondatra_dagster.collector.event_store import event_store_path, read_page_after
from ondatra_dagster.planning.find_table_and_columns import find_named_table
from ondatra_dagster.warehouse.read_rows_of_named_table import read_table_rows

pytestmark = pytest.mark.soak

FLUSH_RUN = "support.processes.flush_run_kill_points"
EVENTS = int(os.environ.get("ONDATRA_TEST_EVENTS", "100000"))
SENDERS, KILLS = 16, 5
WAVES = [point for point in RUN_KILL_POINTS if point != "in the middle of forgetting"]  # a collector does that
REQUESTS = EVENTS * 4 // (len(WAVES) * SENDERS * (BATCH_EVENTS + 3)) // 4 * 4 + 4  # three single events, then a batch
RUN_SECONDS = 900


def run(root: Path, *module: str) -> int:
    """Run a module in a separate process, and return its exit code."""
    command = [sys.executable, "-m", *(module or ("ondatra_dagster.cli.main", "run"))]
    return subprocess.run(command, cwd=root, env=child_environment(), check=False, timeout=RUN_SECONDS).returncode


def pages(root: Path) -> list[str]:
    """Return the pages in the table."""
    project = load_workspace(root).project
    table_rows = read_table_rows(project.settings, find_named_table(project, "events.views"), limit=None)
    return [orjson.loads(row)["page"] for row in table_rows.json_objects()]


def test_every_acknowledged_event_is_in_the_delta_table_once(tmp_path: Path) -> None:
    """This holds whatever is killed, and while the JVM of a killed run lives on."""
    project = EventProject.create(tmp_path)
    collector = CollectorProcess(project.root)
    collector.start()
    acknowledged: list[str] = []
    for wave, point in enumerate(WAVES):
        senders = EventSenders(collector.port, senders=SENDERS, requests=REQUESTS, name=f"{wave}-")
        senders.start()
        senders.wait_for(SENDERS)  # so that there is something to flush
        flush = subprocess.Popen([sys.executable, "-m", FLUSH_RUN, point], cwd=project.root, env=child_environment())
        if wave < KILLS:
            senders.wait_for(count_events(senders=SENDERS, requests=REQUESTS) // 2)
            collector.kill()
            collector.start()
        assert -signal.SIGKILL == flush.wait(RUN_SECONDS)
        senders.join()
        acknowledged += senders.acknowledged_pages
    assert 0 == run(project.root)
    assert 0 == collector.stop()
    collector.start()
    assert 0 == collector.stop()  # drops the events that the table has
    counts = collections.Counter(pages(project.root))
    assert [] == [page for page, times in counts.items() if times != 1]
    assert sorted(acknowledged) == sorted(counts)
    assert len(WAVES) * count_events(senders=SENDERS, requests=REQUESTS) == len(counts)
    assert len(counts) >= EVENTS
    assert [] == read_page_after(event_store_path(project.settings), "events.views", 0, limit=1)


def test_a_run_killed_while_it_drops_events_is_completed_by_the_next_one(tmp_path: Path) -> None:
    """Without a collector the run itself drops the events that are in the table."""
    project = EventProject.create(tmp_path)
    with project.running_collector() as serving:
        for number in range(5):
            serving.client.post({"page": str(number)})
    assert -signal.SIGKILL == run(project.root, FLUSH_RUN, "in the middle of forgetting")
    with project.running_collector() as serving:
        serving.client.post({"page": "5"})
    assert 0 == run(project.root)
    assert [str(number) for number in range(6)] == sorted(pages(project.root))
    assert [] == read_page_after(event_store_path(project.settings), "events.views", 0, limit=1)
