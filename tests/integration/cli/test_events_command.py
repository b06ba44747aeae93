"""`ondatra events` as its users meet it: a process with a port, a message, and an end."""

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


def test_it_takes_events_until_it_is_told_to_end(tmp_path: Path) -> None:
    """And ends well: what was acknowledged is in the file, which is whole without its log."""
    project = EventProject.create(tmp_path / "my shop")
    collector = CollectorProcess(project.root)
    collector.start()
    send = CollectorClient(collector.port)
    assert 202 == send.post({"page": "/a"}).status
    assert 0 == collector.stop()
    send.close()
    assert ["events.sqlite"] == [path.name for path in (project.root / ".ondatra").glob("events*")]
    (intake,) = read_page_after(event_store_path(project.settings), "events.views", 0, most=9)
    assert {"page": "/a"} == orjson.loads(intake.body)


def test_its_metrics_tell_of_the_whole_project(tmp_path: Path) -> None:
    """One address for Prometheus; a push function that is broken keeps no event out."""
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
    """The metrics' names, as Prometheus reads them."""
    return {family.name for family in text_string_to_metric_families(text)}


def test_it_ends_in_the_middle_of_a_request_with_an_answer(tmp_path: Path) -> None:
    """A deployment costs no sender an error: what is under way is taken first."""
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


def test_a_second_collector_says_who_holds_the_file(
    tmp_path: Path, ondatra: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Instead of giving the same numbers to other events."""
    project = EventProject.create(tmp_path)
    monkeypatch.chdir(project.root)
    with project.running_collector() as serving:
        said = ondatra("events", "--port", "0")
        assert 1 == said.exit_code
        assert f"(ondatra events at http://127.0.0.1:{serving.port}); wait for it to end" in said.stderr


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (["--host", "0.0.0.0"], 1, "0.0.0.0 can be reached by others, and no token is set: put ONDATRA_EVENTS_TOKEN=…"),
        (["--port", "70000"], 2, "70000 is not in the range"),
        (["--host", "192.0.2.1"], 1, "no token is set"),
    ],
)
def test_what_can_not_be_served_is_a_sentence(
    tmp_path: Path, ondatra: CommandLine, monkeypatch: pytest.MonkeyPatch, arguments: list[str], code: int, says: str
) -> None:
    monkeypatch.chdir(EventProject.create(tmp_path).root)
    said = ondatra("events", *arguments)
    assert code == said.exit_code
    assert says in said.stderr
    assert "Traceback" not in said.stderr


def test_a_port_that_is_taken_is_a_sentence(
    tmp_path: Path, ondatra: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    project, other = EventProject.create(tmp_path / "one"), EventProject.create(tmp_path / "two")
    monkeypatch.chdir(other.root)
    with project.running_collector() as serving:
        said = ondatra("events", "--port", str(serving.port))
        assert (1, True) == (said.exit_code, "choose another --port or --host" in said.stderr)


def test_a_project_without_events_says_how_to_begin(
    tmp_path: Path, ondatra: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(EventProject.create(tmp_path, models={"mart/one": "SELECT 1 AS id"}).root)
    said = ondatra("events", "--port", "0")
    assert "the project has no model of kind events; write one, such as models/events/page_views.sql" in said.stderr


def test_status_tells_what_waits(tmp_path: Path, ondatra: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also while the collector runs, and of a model that is no more."""
    project = EventProject.create(tmp_path)
    monkeypatch.chdir(project.root)
    with project.running_collector() as serving:
        serving.client.post([{"page": "/a"}, {"page": "/b"}], f"{EVENTS_PATH}/batch")
        (line,) = map(orjson.loads, ondatra("status", "--json").stdout.splitlines())
        assert (2, "it has no table yet") == (line["events_waiting"], line["plan"])
        assert 0 <= line["oldest_event_seconds"] < 60
        (project.root / "models/events/views.sql").rename(project.root / "models/events/seen.sql")
        assert "2 events wait for events.views, which is no model any more" in ondatra("status").stderr
