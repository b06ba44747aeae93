"""The command `ondatra events` as the user sees it: a process with a port, a message, and an end."""

import signal
import subprocess
import sys
from pathlib import Path

import orjson
import pytest
from prometheus_client.parser import text_string_to_metric_families
from support.processes.cli_terminal import CommandLine
from support.processes.collector_load import CollectorProcess
from support.projects.event_project import EVENTS_PATH, VIEWS_MODEL, CollectorClient, EventProject

from ondatra_dagster.collector.event_store import event_store_path, read_page_after


def test_the_collector_takes_events_until_it_is_stopped(tmp_path: Path) -> None:
    """It ends without an error. The acknowledged event is in the file, which is complete without its log."""
    project = EventProject.create(tmp_path / "my shop")
    collector = CollectorProcess(project.root)
    collector.start()
    send = CollectorClient(collector.port)
    assert 202 == send.post({"page": "/a"}).status
    assert 0 == collector.stop()
    send.close()
    assert ["events.sqlite"] == [path.name for path in (project.root / ".ondatra").glob("events*")]
    (intake,) = read_page_after(event_store_path(project.settings), "events.views", 0, limit=9)
    assert {"page": "/a"} == orjson.loads(intake.body)


def test_the_collectors_metrics_cover_the_whole_project(tmp_path: Path) -> None:
    """Prometheus needs one address. A broken push function doesn't stop the collector."""
    project = EventProject.create(
        tmp_path, models={"events/views": VIEWS_MODEL, "sync/crm": "-- @sink: crm\nSELECT 1 AS id\n"}
    )
    sink = project.root / "lib" / "crm.star"
    sink.write_text("def push(rows:\n")
    collector = CollectorProcess(project.root)
    collector.start()
    send = CollectorClient(collector.port)
    assert 202 == send.post({"page": "/a"}).status
    broken = families(send("GET", "/metrics").body)
    sink.write_text("def push(rows):\n    return {}\n")
    whole = families(send("GET", "/metrics").body)
    assert 0 == collector.stop()
    send.close()
    assert {"ondatra_events_accepted", "ondatra_events_waiting"} <= broken
    assert broken | {"ondatra_sync_queue_depth", "ondatra_table_disk_bytes"} <= whole


def families(text: str) -> set[str]:
    """Return the names of the metrics, as Prometheus parses them."""
    return {family.name for family in text_string_to_metric_families(text)}


def test_a_request_in_progress_is_answered_before_the_collector_ends(tmp_path: Path) -> None:
    """A deployment causes no error for the sender: the request in progress is completed first."""
    project = EventProject.create(tmp_path)
    collector = CollectorProcess(project.root)
    collector.start()
    half = subprocess.Popen(
        [sys.executable, "-c", HALF, str(collector.port)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert half.stdout
    assert half.stdin
    assert "sent half\n" == half.stdout.readline()
    assert collector._process
    collector._process.send_signal(signal.SIGTERM)
    out, _ = half.communicate("go on\n")
    assert out.startswith("HTTP/1.1 202")
    assert 0 == collector._wait()


HALF = f"""
import socket, sys
with socket.create_connection(("127.0.0.1", int(sys.argv[1]))) as raw:
    raw.sendall(b'POST {EVENTS_PATH} HTTP/1.1\\r\\nhost: localhost\\r\\ncontent-type: application/json\\r\\n')
    raw.sendall(b'content-length: 13\\r\\n\\r\\n{{"page"')
    print("sent half", flush=True)
    sys.stdin.readline()
    raw.sendall(b':"/a"}}')
    print(raw.recv(1000).decode())
"""


def test_a_second_collector_reports_which_process_has_the_file(
    tmp_path: Path, ondatra: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise it would give the same numbers to other events."""
    project = EventProject.create(tmp_path)
    monkeypatch.chdir(project.root)
    with project.running_collector() as serving:
        result = ondatra("events", "--port", "0")
        assert 1 == result.exit_code
        assert f"(ondatra events at http://127.0.0.1:{serving.port}); wait for it to end" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (["--host", "0.0.0.0"], 1, "0.0.0.0 can be reached by others, and no token is set: put ONDATRA_EVENTS_TOKEN=…"),
        (["--port", "70000"], 2, "70000 is not in the range"),
        (["--host", "192.0.2.1"], 1, "no token is set"),
    ],
)
def test_an_address_that_cannot_be_served_is_an_error_message(
    tmp_path: Path, ondatra: CommandLine, monkeypatch: pytest.MonkeyPatch, arguments: list[str], code: int, says: str
) -> None:
    monkeypatch.chdir(EventProject.create(tmp_path).root)
    result = ondatra("events", *arguments)
    assert code == result.exit_code
    assert says in result.stderr
    assert "Traceback" not in result.stderr


def test_a_port_in_use_is_an_error_message(
    tmp_path: Path, ondatra: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    project, other = EventProject.create(tmp_path / "one"), EventProject.create(tmp_path / "two")
    monkeypatch.chdir(other.root)
    with project.running_collector() as serving:
        result = ondatra("events", "--port", str(serving.port))
        assert (1, True) == (result.exit_code, "choose another --port or --host" in result.stderr)


def test_in_a_project_without_events_the_message_says_how_to_begin(
    tmp_path: Path, ondatra: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(EventProject.create(tmp_path, models={"mart/one": "SELECT 1 AS id"}).root)
    result = ondatra("events", "--port", "0")
    assert "the project has no model of kind events; write one, such as models/events/page_views.sql" in result.stderr


def test_status_shows_waiting_events(tmp_path: Path, ondatra: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    """This works while the collector runs, and for a model that was removed."""
    project = EventProject.create(tmp_path)
    monkeypatch.chdir(project.root)
    with project.running_collector() as serving:
        serving.client.post([{"page": "/a"}, {"page": "/b"}], f"{EVENTS_PATH}/batch")
        (line,) = map(orjson.loads, ondatra("status", "--json").stdout.splitlines())
        assert (2, "it has no table yet") == (line["events_waiting"], line["plan"])
        assert 0 <= line["oldest_event_seconds"] < 60
        (project.root / "models/events/views.sql").rename(project.root / "models/events/seen.sql")
        assert "2 events wait for events.views, which is no longer a model" in ondatra("status").stderr
