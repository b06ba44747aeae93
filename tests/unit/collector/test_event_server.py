"""The start and the end of a collector, with its real server and file."""

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


def test_tables_that_can_not_be_read_are_reported_at_the_start(project: EventProject) -> None:
    """The operator needs to know what to do, and not only that the collector has ended."""
    (project.root / "pyproject.toml").write_text('[tool.ondatra]\nwarehouse = "hdfs://there/is/none"\n')
    with pytest.raises(WarehouseError, match="can't be read without Spark"):
        server_of(project).run()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_during_the_start_ends_the_collector(project: EventProject, number: signal.Signals) -> None:
    """A deployment that is undone immediately must not wait until the collector is killed."""
    collector = server_of(project)
    at_last = threading.Timer(10, collector.stop)
    at_last.start()
    collector.run(lambda: signal.raise_signal(number))
    assert at_last.is_alive()
    at_last.cancel()


def test_a_slow_sender_gets_a_503_when_the_collector_ends(
    project: EventProject, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """This isn't an error of the collector, so the log has no traceback."""
    monkeypatch.setattr(event_server, "SHUTDOWN_SECONDS", 0)
    with project.running_collector() as serving, socket.create_connection((LOOPBACK, serving.port), timeout=30) as raw:
        raw.sendall(b"POST %s HTTP/1.1\r\nhost: [::1]\r\ncontent-type: application/json\r\n" % EVENTS_PATH.encode())
        raw.sendall(b'content-length: 100\r\n\r\n{"page"')
        serving.client("GET", "/health")  # by its answer, the collector has read the first request too
        serving.server.stop()
        answer = raw.makefile("rb").read()
    assert answer.startswith(b"HTTP/1.1 503")
    assert answer.endswith(b'{"error":"the collector is shutting down; send it again"}')
    assert "Traceback" not in caplog.text


def test_a_table_that_can_not_be_read_does_not_stop_the_collector(project: EventProject) -> None:
    """It can still accept events. It drops the flushed ones when the table can be read again."""
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


def test_a_model_that_is_added_again_with_an_older_file_loses_no_event(project: EventProject) -> None:
    """The table has higher numbers than the file. A new event with such a number would count as already written."""
    log = project.settings.state / "warehouse" / "events" / "clicks" / "_delta_log"
    log.mkdir(parents=True)
    commit = log / f"{0:020}.json"
    with project.running_collector() as serving:
        numbering = ModelEvents(project.settings, project.model()).sequence_id
        commit.mkdir()  # a folder, so the log can't be read yet
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
def test_a_token_is_read_without_white_space_around_it(project: EventProject, given: str, token: str | None) -> None:
    """A header can't end with a blank, so every sender would be refused. A blank token counts as no token."""
    assert token == read_token(read_settings(project.root, {EVENTS_TOKEN_VARIABLE: given}))
