"""What only a socket can show: deadlines, sizes, connections."""

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
    """A server that always has one more byte."""

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
def test_a_drip_does_not_pass_the_deadline(loopback_api: Any, calls: BatchCalls, before: bytes, part: bytes) -> None:
    """The timeout is that of a whole answer, not of a read."""
    loopback_api.reply_function = drip(part, before=before)
    began_at = time.monotonic()
    answer = calls.send_call(HttpCall(method="GET", url="/x", timeout=0.3))

    assert (0, "no answer: timed out (ReadTimeout)") == (answer.status_code, answer.text)
    assert 0.25 < time.monotonic() - began_at < 8


def test_a_server_that_takes_nothing_does_not_pass_the_deadline(calls: BatchCalls) -> None:
    """A large body is written in pieces, each under what is left of the time."""
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


def test_a_gzip_bomb_is_not_unpacked(loopback_api: Any, make_reply: Callable[..., Any], calls: BatchCalls) -> None:
    """200 kB on the wire, 200 MB in memory."""
    bomb = gzip.compress(bytes(200_000_000), 1)
    loopback_api.reply_function = make_reply(200, bomb, Content_Encoding="gzip")
    answer = calls.send_call(GET)

    assert (False, 0) == (answer.is_success, answer.status_for_push)
    assert "the response has more than 50 MB and was not read" == answer.text
    assert not calls.call_counts.is_outage


@pytest.mark.parametrize("encoding", ["gzip", "deflate", "br"])
def test_an_empty_answer_is_a_whole_one_whatever_it_is_packed_as(
    encoding: str, loopback_api: Any, make_reply: Callable[..., Any], calls: BatchCalls
) -> None:
    """Some servers pack each answer, also a 204; taken for none, what they did is done again and again."""
    loopback_api.reply_function = make_reply(204, b"", Content_Encoding=encoding)
    answer = calls.send_call(GET)

    assert (True, 204, "") == (answer.is_success, answer.status_for_push, answer.text)
    assert 1 == len(loopback_api.requests)


def test_a_connection_is_kept(loopback_api: Any, calls: BatchCalls) -> None:
    """A new one for each row would cost more than the row."""
    ports = set()
    answered = loopback_api.reply_function

    def note_port(handler: http.server.BaseHTTPRequestHandler, seen: object) -> None:
        ports.add(handler.client_address[1])
        answered(handler, seen)

    loopback_api.reply_function = note_port
    for _ in range(5):
        assert calls.send_call(GET).is_success

    assert 1 == len(ports)


def test_a_redirect_is_an_answer(loopback_api: Any, make_reply: Callable[..., Any], calls: BatchCalls) -> None:
    """It isn't followed."""
    loopback_api.reply_function = make_reply(302, Location=f"{loopback_api.url}/secret")
    answer = calls.send_call(GET)

    assert (False, 302) == (answer.is_success, answer.status_code)
    assert ["/x"] == [seen.path for seen in loopback_api.requests]


def test_nobody_there_is_no_answer(calls: BatchCalls) -> None:
    """With the reason, since people will read it."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    config = PushConfig(name="x", file="f", destination="x", object="x", base_url=f"http://127.0.0.1:{port}", retry=0)
    with ApiClient(config, secrets={}.get) as api:
        answer = api.begin_calls().send_call(GET)

    assert 0 == answer.status_code
    assert "refused" in answer.text


def test_an_answer_cut_short_is_no_answer(loopback_api: Any, calls: BatchCalls) -> None:
    """What is there of it might be anything."""

    def cut(handler: http.server.BaseHTTPRequestHandler, _seen: object) -> None:
        handler.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf")
        handler.close_connection = True

    loopback_api.reply_function = cut

    assert (0, 1) == (calls.send_call(GET).status_code, calls.call_counts.unanswered_calls)


def test_threads_share_the_connections(loopback_api: Any, calls: BatchCalls) -> None:
    """Each with its own batch, its own deadline and its own counts."""
    loopback_api.reply_function = lambda handler, seen: _echo(handler, seen.path)
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


def test_closing_ends_a_call_that_another_thread_waits_in(loopback_api: Any) -> None:
    """Who presses Ctrl-C shouldn't have to wait until an API answers; the call has no answer then."""
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
    assert (0, 1) == (journal.response_count, len(loopback_api.requests))  # it isn't tried again either


def _echo(handler: http.server.BaseHTTPRequestHandler, text: str) -> None:
    handler.send_response(200)
    handler.send_header("Content-Length", str(len(text)))
    handler.end_headers()
    handler.wfile.write(text.encode())
