"""How a collector begins and ends, with its real server and file."""

import signal
import socket
import threading

import orjson
import pytest
from support.projects.event_project import EVENTS_PATH, VIEWS_MODEL, EventProject

from ondatra_dagster.collector import event_server
from ondatra_dagster.collector.event_server import LOOPBACK, CollectorServer, open_listener, read_token
from ondatra_dagster.collector.event_store import count_stored_events, event_store_path
from ondatra_dagster.collector.pending_events import ModelEvents
from ondatra_dagster.errors import WarehouseError
from ondatra_dagster.project.project_loader import load_project
from ondatra_dagster.project.settings.read_raw_setting_entries import EVENTS_TOKEN_VARIABLE
from ondatra_dagster.project.settings.read_settings_and_defaults import read_settings
from ondatra_dagster.storage.private_files import make_state_folder_private


def server_of(project: EventProject) -> CollectorServer:
    settings = project.settings
    make_state_folder_private(settings.state)
    return CollectorServer(load_project(project.root, settings), open_listener(LOOPBACK, 0, token=None))


def test_tables_that_can_not_be_looked_at_are_told_at_the_start(project: EventProject) -> None:
    """Who starts it wants to know what to do, not that it has ended."""
    (project.root / "pyproject.toml").write_text('[tool.ondatra]\nwarehouse = "hdfs://there/is/none"\n')
    with pytest.raises(WarehouseError, match="can't be read without Spark"):
        server_of(project).run()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_that_comes_while_it_starts_ends_it(project: EventProject, number: signal.Signals) -> None:
    """A deployment that is taken back at once must not wait until it is killed."""
    collector = server_of(project)
    at_last = threading.Timer(10, collector.stop)
    at_last.start()
    collector.run(lambda: signal.raise_signal(number))
    assert at_last.is_alive()
    at_last.cancel()


def test_who_sends_too_slowly_for_an_end_is_told_to_send_again(
    project: EventProject, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It is no fault of the collector's, and none to be looked for in a trace."""
    monkeypatch.setattr(event_server, "SHUTDOWN_SECONDS", 0)
    with project.running_collector() as serving, socket.create_connection((LOOPBACK, serving.port), timeout=30) as raw:
        raw.sendall(b"POST %s HTTP/1.1\r\nhost: [::1]\r\ncontent-type: application/json\r\n" % EVENTS_PATH.encode())
        raw.sendall(b'content-length: 100\r\n\r\n{"page"')
        serving.client("GET", "/health")  # it has been there by now
        serving.server.stop()
        answer = raw.makefile("rb").read()
    assert answer.startswith(b"HTTP/1.1 503")
    assert answer.endswith(b'{"error":"the collector is shutting down; send it again"}')
    assert "Traceback" not in caplog.text


def test_a_table_that_can_not_be_read_ends_no_collector(project: EventProject) -> None:
    """Events can be taken without it; those that it has are dropped when it can be read again."""
    log = project.settings.state / "warehouse" / "events" / "views" / "_delta_log"
    with project.running_collector() as serving:
        assert 202 == serving.client.post({"page": "/a"}).status
        log.mkdir(parents=True)
        commit = log / f"{0:020}.json"
        commit.write_text('{"txn": {"app')
        serving.run_periodic_tasks()
        commit.unlink()
        commit.mkdir()
        serving.run_periodic_tasks()
        commit.rmdir()
        numbering = ModelEvents(project.settings, project.model()).sequence_id
        commit.write_bytes(orjson.dumps({"txn": {"appId": numbering, "version": 1}}))
        serving.run_periodic_tasks()
        assert {"status": "ok", "waiting": 0} == serving.client("GET", "/health").body


def test_a_model_that_comes_back_beside_an_older_file_loses_no_event(project: EventProject) -> None:
    """Its table knows numbers that the file hasn't given yet: no event may be taken for an older one."""
    log = project.settings.state / "warehouse" / "events" / "clicks" / "_delta_log"
    log.mkdir(parents=True)
    commit = log / f"{0:020}.json"
    with project.running_collector() as serving:
        numbering = ModelEvents(project.settings, project.model()).sequence_id
        commit.mkdir()  # nobody can read it yet
        (project.root / "models" / "events" / "clicks.sql").write_text(VIEWS_MODEL)
        serving.run_periodic_tasks()
        assert 404 == serving.client.post({"page": "/a"}, "/collect/events/clicks").status
        commit.rmdir()
        commit.write_bytes(orjson.dumps({"txn": {"appId": numbering, "version": 100}}))
        serving.run_periodic_tasks()
        assert 202 == serving.client.post({"page": "/a"}, "/collect/events/clicks").status
        serving.run_periodic_tasks()
    assert {"events.clicks": 1} == count_stored_events(event_store_path(project.settings))


@pytest.mark.parametrize(("given", "token"), [("s3cret", "s3cret"), (" s3cret\n", "s3cret"), (" \n", None), ("", None)])
def test_a_token_is_read_without_what_nobody_can_send(project: EventProject, given: str, token: str | None) -> None:
    """A header has no blanks at its end: each sender would be refused, with a blank token at any host."""
    assert token == read_token(read_settings(project.root, {EVENTS_TOKEN_VARIABLE: given}))
