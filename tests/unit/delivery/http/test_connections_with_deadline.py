"""Deadlines, sizes and connections, tested over real sockets."""

import gzip
import http.server
import socket
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from ondatra_dagster.delivery.http.api_client import ApiClient, BatchCalls, SyncStoppedError
from ondatra_dagster.delivery.http.request_builder import HttpCall
from ondatra_dagster.delivery.push.push_config import PushConfig
from ondatra_dagster.delivery.response_journal import ResponseJournal

GET = HttpCall(method="GET", url="/x")


@pytest.fixture
def calls(loopback_api: Any) -> Any:
    config = PushConfig(name="x", file="lib/x.star", destination="x", object="x", base_url=loopback_api.url, retry=0)
    with ApiClient(config, secrets={}.get) as api:
        yield api.begin_calls()


def drip(part: bytes, *, before: bytes) -> Callable[..., None]:
    """Return a reply that always sends one more byte."""

    def reply(handler: http.server.BaseHTTPRequestHandler, _seen: object) -> None:
        handler.wfile.write(before)
        for _ in range(200):
            handler.wfile.write(part)
            handler.wfile.flush()
            time.sleep(0.05)

    return reply


@pytest.mark.parametrize(
    ("before", "part"),
    [
        (b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n", b"x"),
        (b"HTTP/1.1 200 OK\r\nX-Slow: ", b"x"),
        (b"HTTP/1.1 200 OK\r\n", b"X-Slow: x\r\n"),
    ],
    ids=["body", "header", "headers"],
)
def test_an_answer_that_arrives_byte_by_byte_times_out(
    loopback_api: Any, calls: BatchCalls, before: bytes, part: bytes
) -> None:
    """The timeout is for the whole answer, and not for one read."""
    loopback_api.reply_function = drip(part, before=before)
    began_at = time.monotonic()
    answer = calls.send_call(HttpCall(method="GET", url="/x", timeout=0.3))

    assert (0, "no answer: timed out (ReadTimeout)") == (answer.status_code, answer.text)
    assert 0.25 < time.monotonic() - began_at < 8


def test_a_server_that_reads_nothing_times_out(calls: BatchCalls) -> None:
    """A large body is written in pieces, and each piece has the rest of the time."""
    with socket.create_server(("127.0.0.1", 0)) as deaf:
        config = PushConfig(
            name="x",
            file="f",
            destination="x",
            object="x",
            base_url=f"http://127.0.0.1:{deaf.getsockname()[1]}",
            timeout_seconds=0.3,
            retry=0,
        )
        with ApiClient(config, secrets={}.get) as api:
            began_at = time.monotonic()
            answer = api.begin_calls().send_call(HttpCall(method="PUT", url="/x", data="x" * 30_000_000))

    assert 0 == answer.status_code
    assert time.monotonic() - began_at < 8


def test_a_gzip_bomb_is_not_decompressed(loopback_api: Any, make_reply: Callable[..., Any], calls: BatchCalls) -> None:
    """200 kB on the network would take 200 MB of memory."""
    bomb = gzip.compress(bytes(200_000_000), 1)
    loopback_api.reply_function = make_reply(200, bomb, Content_Encoding="gzip")
    answer = calls.send_call(GET)

    assert (False, 0) == (answer.is_success, answer.status_for_push)
    assert "the response has more than 50 MB and was not read" == answer.text
    assert not calls.call_counts.is_outage


@pytest.mark.parametrize("encoding", ["gzip", "deflate", "br"])
def test_an_empty_answer_is_complete_with_any_content_encoding(
    encoding: str, loopback_api: Any, make_reply: Callable[..., Any], calls: BatchCalls
) -> None:
    """Some servers compress each answer, even a 204. If it counted as no answer, the call would be repeated forever."""
    loopback_api.reply_function = make_reply(204, b"", Content_Encoding=encoding)
    answer = calls.send_call(GET)

    assert (True, 204, "") == (answer.is_success, answer.status_for_push, answer.text)
    assert 1 == len(loopback_api.requests)


def test_a_connection_is_reused(loopback_api: Any, calls: BatchCalls) -> None:
    """A new connection for each row would take longer than the row."""
    ports = set()
    answered = loopback_api.reply_function

    def note_port(handler: http.server.BaseHTTPRequestHandler, seen: object) -> None:
        ports.add(handler.client_address[1])
        answered(handler, seen)

    loopback_api.reply_function = note_port
    for _ in range(5):
        assert calls.send_call(GET).is_success

    assert 1 == len(ports)


def test_a_redirect_is_not_followed(loopback_api: Any, make_reply: Callable[..., Any], calls: BatchCalls) -> None:
    loopback_api.reply_function = make_reply(302, Location=f"{loopback_api.url}/secret")
    answer = calls.send_call(GET)

    assert (False, 302) == (answer.is_success, answer.status_code)
    assert ["/x"] == [request.path for request in loopback_api.requests]


def test_a_refused_connection_is_no_answer(calls: BatchCalls) -> None:
    """The answer has the reason, because users read it."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    config = PushConfig(name="x", file="f", destination="x", object="x", base_url=f"http://127.0.0.1:{port}", retry=0)
    with ApiClient(config, secrets={}.get) as api:
        answer = api.begin_calls().send_call(GET)

    assert 0 == answer.status_code
    assert "refused" in answer.text


def test_an_incomplete_answer_is_no_answer(loopback_api: Any, calls: BatchCalls) -> None:
    """The rest of it is unknown."""

    def cut(handler: http.server.BaseHTTPRequestHandler, _seen: object) -> None:
        handler.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf")
        handler.close_connection = True

    loopback_api.reply_function = cut

    assert (0, 1) == (calls.send_call(GET).status_code, calls.call_counts.unanswered_calls)


def test_threads_share_the_connections(loopback_api: Any, calls: BatchCalls) -> None:
    """Each thread has its own batch, deadline and counts."""
    loopback_api.reply_function = lambda handler, request: _echo(handler, request.path)
    config = PushConfig(name="x", file="f", destination="x", object="x", base_url=loopback_api.url)
    wrong: list[str] = []
    with ApiClient(config, secrets={}.get) as api:

        def work(name: str) -> None:
            batch = api.begin_calls()
            for number in range(20):
                path = f"/{name}/{number}"
                if batch.send_call(HttpCall(method="GET", url=path)).text != path:
                    wrong.append(path)
            if batch.call_counts.calls != 20:
                wrong.append(name)

        threads = [threading.Thread(target=work, args=(name,)) for name in "abcd"]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    assert [] == wrong
    assert 80 == len(loopback_api.requests)


def test_closing_the_client_ends_a_call_that_another_thread_waits_for(loopback_api: Any) -> None:
    """A user who presses Ctrl-C must not wait until an API answers. The call then has no answer."""
    is_away, may_end = threading.Event(), threading.Event()

    def never(_handler: object, _seen: object) -> None:
        is_away.set()
        may_end.wait(30)

    loopback_api.reply_function = never
    api = ApiClient(
        PushConfig(name="x", file="f", destination="x", object="x", base_url=loopback_api.url), secrets={}.get
    )
    journal = ResponseJournal.in_memory("seed")
    ended: list[object] = []

    def wait_for_an_answer() -> None:
        try:
            ended.append(api.begin_calls(journal).send_call(HttpCall(method="POST", url="/", json="1")))
        except SyncStoppedError as error:
            ended.append(error)

    thread = threading.Thread(target=wait_for_an_answer)
    thread.start()
    is_away.wait(30)
    api.close()
    thread.join()
    may_end.set()
    assert [SyncStoppedError] == [type(end) for end in ended]
    assert (0, 1) == (journal.response_count, len(loopback_api.requests))  # it isn't retried either


def _echo(handler: http.server.BaseHTTPRequestHandler, text: str) -> None:
    handler.send_response(200)
    handler.send_header("Content-Length", str(len(text)))
    handler.end_headers()
    handler.wfile.write(text.encode())
