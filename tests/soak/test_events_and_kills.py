"""A hundred thousand events with collector and flush killed, into a Delta table: each of them is there once.

Each flush starts a JVM. ONDATRA_TEST_EVENTS says how many events; a smaller form: tests/faults.
"""

import collections
import os
import signal
import subprocess
import sys
from pathlib import Path

import orjson
import pytest
from support.collecting import EventProject
from support.dying_run import POINTS
from support.event_senders import BATCH, CollectorProcess, Senders, environ, expected

from ondatra_dagster.collector.event_file import event_path, page_after
from ondatra_dagster.orchestration.workspace import load_workspace
from ondatra_dagster.planning.named_tables import named_table
from ondatra_dagster.warehouse.stored_rows import stored_rows

pytestmark = pytest.mark.soak

EVENTS = int(os.environ.get("ONDATRA_TEST_EVENTS", "100000"))
SENDERS, KILLS = 16, 5
WAVES = [point for point in POINTS if point != "in the middle of forgetting"]  # a collector does that
REQUESTS = (
    EVENTS * 4 // (len(WAVES) * SENDERS * (BATCH + 3)) // 4 * 4 + 4
)  # three single events, then a batch
RUN_SECONDS = 900


def run(root: Path, *module: str) -> int:
    """A run in a process of its own; how that ended."""
    command = [sys.executable, "-m", *(module or ("ondatra_dagster.cli.main", "run"))]
    return subprocess.run(command, cwd=root, env=environ(), check=False, timeout=RUN_SECONDS).returncode


def pages(root: Path) -> list[str]:
    """What the table has."""
    project = load_workspace(root).project
    found = stored_rows(project.settings, named_table(project, "events.views"), limit=None)
    return [orjson.loads(row)["page"] for row in found.objects()]


def test_every_acknowledged_event_is_in_the_delta_table_once(tmp_path: Path) -> None:
    """Whatever is killed, and while the JVM of a killed run lives on."""
    project = EventProject.at(tmp_path)
    collector = CollectorProcess(project.root)
    collector.start()
    acknowledged: list[str] = []
    for wave, point in enumerate(WAVES):
        senders = Senders(collector.port, senders=SENDERS, requests=REQUESTS, name=f"{wave}-")
        senders.start()
        senders.wait_for(SENDERS)  # so that there is something to flush
        flush = subprocess.Popen(
            [sys.executable, "-m", "support.dying_run", point], cwd=project.root, env=environ()
        )
        if wave < KILLS:
            senders.wait_for(expected(senders=SENDERS, requests=REQUESTS) // 2)
            collector.kill()
            collector.start()
        assert -signal.SIGKILL == flush.wait(RUN_SECONDS)
        senders.join()
        acknowledged += senders.acknowledged
    assert 0 == run(project.root)
    assert 0 == collector.end()
    collector.start()
    assert 0 == collector.end()  # drops what the table has
    counts = collections.Counter(pages(project.root))
    assert [] == [page for page, times in counts.items() if times != 1]
    assert sorted(acknowledged) == sorted(counts)
    assert len(WAVES) * expected(senders=SENDERS, requests=REQUESTS) == len(counts)
    assert len(counts) >= EVENTS
    assert [] == page_after(event_path(project.settings), "events.views", 0, most=1)


def test_a_run_killed_while_it_forgets_is_made_good_by_the_next(tmp_path: Path) -> None:
    """Without a collector the run itself drops what is in the table."""
    project = EventProject.at(tmp_path)
    with project.serving() as serving:
        for number in range(5):
            serving.send.post({"page": str(number)})
    assert -signal.SIGKILL == run(project.root, "support.dying_run", "in the middle of forgetting")
    with project.serving() as serving:
        serving.send.post({"page": "5"})
    assert 0 == run(project.root)
    assert [str(number) for number in range(6)] == sorted(pages(project.root))
    assert [] == page_after(event_path(project.settings), "events.views", 0, most=1)
