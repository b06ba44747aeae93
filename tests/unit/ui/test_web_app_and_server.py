"""The UI's server over a real connection: requests of a browser, and errors in the middle of a response."""

import contextlib
import http.client
import re
import select
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO
from urllib.parse import parse_qs, urlsplit

import pytest
from support.files.sample_records import build_record
from support.projects.shop_project import ShopProject

from ondatra_dagster.app.ui_urls import STYLE_URL
from ondatra_dagster.app.workspace import ProjectCache
from ondatra_dagster.collector import event_server
from ondatra_dagster.records.file_paths import RecordFileType
from ondatra_dagster.testing.demo_api import DemoApi
from ondatra_dagster.ui.web_app_and_server import PageServer, open_listener

PATIENCE_SECONDS = 60  # long, because a machine may be busy
RUNS = [f"20261118T12{number:02}00Z-abcdef" for number in range(3)]
CSV = "/syncs/sync.crm/records.csv"


@pytest.fixture
def shop(tmp_path: Path, api: DemoApi) -> ShopProject:
    """Return a project with three runs of some megabytes."""
    shop = ShopProject.create(tmp_path / "shop", url=api.url)
    for run in RUNS:
        records = [build_record(str(number), payload=f'{{"x":"{"y" * 500}"}}') for number in range(10_000)]
        shop.workspace.tracking.publish_records("sync.crm", run, RecordFileType.UPDATED, 0, records)
    return shop


@pytest.fixture
def server(shop: ShopProject) -> Iterator[PageServer]:
    server = PageServer(ProjectCache(shop.root), open_listener(0))
    server.start()
    yield server
    server.stop()


def connected(server: PageServer) -> socket.socket:
    return socket.create_connection(("127.0.0.1", server.port), timeout=PATIENCE_SECONDS)


def ask(server: PageServer, path: str) -> http.client.HTTPResponse:
    parts = urlsplit(server.url)
    connection = http.client.HTTPConnection(parts.netloc, timeout=PATIENCE_SECONDS)
    cookie = f"ondatra_ui_{server.port}={parse_qs(parts.query)['token'][0]}"
    connection.request("GET", path, headers={"Cookie": cookie, "Connection": "close"})
    return connection.getresponse()


@pytest.mark.parametrize("target", ["http://evil.example/", "//evil.example/", "*", "/%00", "/\\x", "@x", "["])
def test_a_target_that_is_not_a_path_is_refused(server: PageServer, target: str) -> None:
    """No browser sends such a request, but a proxy in front of the server may."""
    with socket.create_connection(("127.0.0.1", server.port), timeout=PATIENCE_SECONDS) as connection:
        head = f"GET {target} HTTP/1.1\r\nHost: 127.0.0.1:{server.port}\r\nConnection: close\r\n\r\n"
        connection.sendall(head.encode())
        answer = connection.makefile("rb").read()
    assert answer.startswith(b"HTTP/1.1 400 Bad Request\r\n")
    assert b"location:" not in answer.lower()


def test_a_path_may_come_in_two_parts(server: PageServer) -> None:
    """A proxy may send it so. The answer to the first request shows that the server has read the first part."""
    request = f"GET {STYLE_URL} HTTP/1.1\r\nHost: 127.0.0.1:{server.port}\r\n\r\n".encode()
    with connected(server) as connection:
        answers = connection.makefile("rb")
        connection.sendall(request + request[:8])
        first = read_answer(answers)
        connection.sendall(request[8:])
        assert first == read_answer(answers)
    assert first.startswith(b"HTTP/1.1 200 OK\r\n")


def read_answer(answers: BinaryIO) -> bytes:
    head = b"".join(iter(answers.readline, b"\r\n"))
    length = re.search(rb"content-length: (\d+)", head)
    assert length
    return re.sub(rb"\r\ndate: [^\r]*", b"", head) + answers.read(int(length[1]))


@pytest.mark.parametrize(
    "begun",
    [
        b"",
        b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n",
        b"GET /page.css HTTP/1.1\r\n\r\nGET / HTTP/1.1\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n",
    ],
)
def test_an_unfinished_request_is_closed(server: PageServer, begun: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    """A thousand open ones would block the page for all users."""
    monkeypatch.setattr(event_server, "HEAD_SECONDS", 0.2)
    with contextlib.ExitStack() as opened:
        silent = [opened.enter_context(connected(server)) for _ in range(50)]
        for connection in silent:
            connection.sendall(begun)
        for connection in silent:
            connection.makefile("rb").read()  # until the server closes it
    with ask(server, "/") as answer:
        assert 200 == answer.status


def test_a_slowly_sent_head_has_one_deadline(server: PageServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise a client that sends one line now and then would keep the connection."""
    monkeypatch.setattr(event_server, "HEAD_SECONDS", 0.2)
    with connected(server) as connection:
        connection.sendall(b"GET / HTTP/1.1\r\n")
        for _ in range(PATIENCE_SECONDS):
            with contextlib.suppress(BrokenPipeError):
                connection.sendall(b"a: b\r\n")
            readable, _, _ = select.select([connection], [], [], 0.1)
            if readable:
                break
        with contextlib.suppress(ConnectionResetError):  # the server closed the connection while a line was on its way
            assert b"" == connection.recv(100)
        assert readable


def test_a_response_may_take_longer_than_the_deadline_of_a_head(
    server: PageServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    with ask(server, CSV) as answer:
        assert answer.read(1000)
        monkeypatch.setattr(event_server, "HEAD_SECONDS", 0.2)
        with connected(server) as later:
            assert b"" == later.recv(100)
        assert answer.read().endswith(b"\n")


def test_a_download_is_complete(server: PageServer) -> None:
    """It is larger than one chunk of the response."""
    with ask(server, CSV) as answer:
        assert 30_001 == len(answer.read().splitlines())


def test_a_client_that_stops_a_download_does_no_harm(server: PageServer) -> None:
    with ask(server, CSV) as answer:
        assert answer.read(1000)
    with ask(server, CSV) as answer:
        assert 30_001 == len(answer.read().splitlines())


def test_an_interrupted_download_is_not_taken_for_a_complete_one(
    server: PageServer, shop: ShopProject, captured_output: Callable[[], str]
) -> None:
    """A damaged file of an older run is found only after the newer runs are sent."""
    folder = Path(shop.workspace.tracking.run_address("sync.crm", RUNS[0]))
    (folder / "records_updated.0.parquet").write_bytes(b"no Parquet")
    with ask(server, CSV) as answer:
        assert 200 == answer.status
        with pytest.raises(http.client.IncompleteRead):
            answer.read()
    output = captured_output()
    assert "a download was cut off: " in output
    assert "bring it back from a backup" in output
    assert "Traceback" not in output


def test_many_clients_can_read_at_the_same_time(server: PageServer) -> None:
    """A browser opens several pages, and each page reads queue, history and files."""
    answers: list[int] = []

    def look() -> None:
        for path in ("/", "/syncs/sync.crm", "/syncs/sync.crm/records", "/syncs/sync.crm/queue"):
            with ask(server, path) as answer:
                answer.read()
                answers.append(answer.status)

    lookers = [threading.Thread(target=look) for _ in range(8)]
    for looker in lookers:
        looker.start()
    for looker in lookers:
        looker.join()
    assert [200] * 32 == answers
