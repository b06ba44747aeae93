"""A collector that is killed while many clients send, and flushes that are killed at any point.

The table is plain files here. tests/soak/test_killed_event_flushes.py has Spark, Delta and more events.
"""

import collections
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from support.processes.collector_load import CollectorProcess, EventSenders, child_environment, count_events
from support.processes.plain_flush_kill_points import FLUSH_KILL_POINTS, read_plain_rows
from support.projects.event_project import EventProject

from ondatra_dagster.collector.event_store import event_store_path, read_page_after

pytestmark = pytest.mark.faults

SENDERS, REQUESTS, KILLS = 16, 40, 5


def flush(root: Path, point: str = "") -> int:
    """Flush in a separate process, and return its exit code."""
    command = [sys.executable, "-m", "support.processes.plain_flush_kill_points", str(root), point]
    return subprocess.run(command, env=child_environment(), check=False).returncode


def test_every_acknowledged_event_is_in_the_table_once(tmp_path: Path) -> None:
    """An answer is a promise, whatever is killed. A client that got no answer may send the event again."""
    project = EventProject.create(tmp_path)
    collector = CollectorProcess(project.root)
    collector.start()
    senders = EventSenders(collector.port, senders=SENDERS, requests=REQUESTS)
    senders.start()
    total = count_events(senders=SENDERS, requests=REQUESTS)
    for place, point in zip(range(KILLS), FLUSH_KILL_POINTS, strict=True):
        senders.wait_for(total * (place + 1) // (KILLS + 2))
        collector.kill()
        flush(project.root, point)  # a flush without a collector also cleans up the file
        collector.start()
        flush(project.root, point)  # a flush next to a running collector
    senders.join()
    assert 0 == collector.stop()
    assert 0 == flush(project.root)
    counts = collections.Counter(read_plain_rows(project.root))
    assert [] == [page for page, times in counts.items() if times != 1]
    assert sorted(senders.acknowledged_pages) == sorted(counts)
    assert total == len(counts)
    assert [] == read_page_after(event_store_path(project.settings), "events.views", 0, limit=1)


@pytest.mark.parametrize("point", FLUSH_KILL_POINTS)
def test_a_flush_killed_at_any_point_is_completed_by_the_next_one(tmp_path: Path, point: str) -> None:
    """There is no collector, so the flush also drops the events that are in the table."""
    project = EventProject.create(tmp_path)
    with project.running_collector() as serving:
        for number in range(5):
            serving.client.post({"page": str(number)})
    assert -signal.SIGKILL == flush(project.root, point)
    assert 0 == flush(project.root)
    assert ["0", "1", "2", "3", "4"] == read_plain_rows(project.root)
    assert [] == read_page_after(event_store_path(project.settings), "events.views", 0, limit=1)


def test_the_events_of_each_sender_stay_in_order(tmp_path: Path) -> None:
    """A sender that waits for each answer finds its events in the table in the same order."""
    project = EventProject.create(tmp_path)
    collector = CollectorProcess(project.root)
    collector.start()
    senders = EventSenders(collector.port, senders=4, requests=30)
    senders.start()
    senders.join()
    collector.stop()
    flush(project.root)
    for sender in range(4):
        numbers = [int(page.split("-")[1]) for page in read_plain_rows(project.root) if page.startswith(f"{sender}-")]
        assert sorted(numbers) == numbers
