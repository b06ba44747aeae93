"""A collector that is killed while many send, and flushes that are killed wherever they are.

The table is plain files here; with Spark and Delta, and more of all: tests/soak/test_events_and_kills.py.
"""

import collections
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from support.collecting import EventProject
from support.event_senders import CollectorProcess, Senders, environ, expected
from support.plain_flush import POINTS, rows

from ondatra_dagster.collector.event_file import event_path, page_after

pytestmark = pytest.mark.faults

SENDERS, REQUESTS, KILLS = 16, 40, 5


def flush(root: Path, point: str = "") -> int:
    """In a process of its own; how that ended."""
    command = [sys.executable, "-m", "support.plain_flush", str(root), point]
    return subprocess.run(command, env=environ(), check=False).returncode


def test_every_acknowledged_event_is_in_the_table_once(tmp_path: Path) -> None:
    """Whatever is killed: an answer is a promise, and one who got none may ask again."""
    project = EventProject.at(tmp_path)
    collector = CollectorProcess(project.root)
    collector.start()
    senders = Senders(collector.port, senders=SENDERS, requests=REQUESTS)
    senders.start()
    total = expected(senders=SENDERS, requests=REQUESTS)
    for place, point in zip(range(KILLS), POINTS, strict=True):
        senders.wait_for(total * (place + 1) // (KILLS + 2))
        collector.kill()
        flush(project.root, point)  # one beside a dead collector, where it looks after the file too
        collector.start()
        flush(project.root, point)  # one beside a living one
    senders.join()
    assert 0 == collector.end()
    assert 0 == flush(project.root)
    counts = collections.Counter(rows(project.root))
    assert [] == [page for page, times in counts.items() if times != 1]
    assert sorted(senders.acknowledged) == sorted(counts)
    assert total == len(counts)
    assert [] == page_after(event_path(project.settings), "events.views", 0, most=1)


@pytest.mark.parametrize("point", POINTS)
def test_a_flush_that_is_killed_anywhere_is_made_good_by_the_next(tmp_path: Path, point: str) -> None:
    """Without a collector: then it also drops what is in the table."""
    project = EventProject.at(tmp_path)
    with project.serving() as serving:
        for number in range(5):
            serving.send.post({"page": str(number)})
    assert -signal.SIGKILL == flush(project.root, point)
    assert 0 == flush(project.root)
    assert ["0", "1", "2", "3", "4"] == rows(project.root)
    assert [] == page_after(event_path(project.settings), "events.views", 0, most=1)


def test_each_sender_s_events_stay_in_order(tmp_path: Path) -> None:
    """One who waits for each answer sees its events in the table as it sent them."""
    project = EventProject.at(tmp_path)
    collector = CollectorProcess(project.root)
    collector.start()
    senders = Senders(collector.port, senders=4, requests=30)
    senders.start()
    senders.join()
    collector.end()
    flush(project.root)
    for sender in range(4):
        numbers = [int(page.split("-")[1]) for page in rows(project.root) if page.startswith(f"{sender}-")]
        assert sorted(numbers) == numbers
