"""The limits of a connection before there is a request, over a real server on a loopback port."""

import contextlib
import socket
from collections.abc import Iterator

import pytest
from support.projects.event_project import EVENTS_PATH, EventProject, RunningCollector

from ondatra_dagster.collector import event_server

TO = f"POST {EVENTS_PATH} HTTP/1.1\r\nhost: localhost\r\n".encode()
HEAD = TO + b"content-type: application/json\r\ncontent-length: 13\r\n"
BODY = b'{"page":"/a"}'
OFFER = b"connection: Upgrade, HTTP2-Settings\r\nupgrade: h2c\r\nhttp2-settings: AAMAAABkAAQ\r\n"


@contextlib.contextmanager
def connected(serving: RunningCollector) -> Iterator[socket.socket]:
    with socket.create_connection(("127.0.0.1", serving.port), timeout=30) as raw:
        yield raw


def statuses(raw: socket.socket, answers: int) -> list[int]:
    """Return the statuses of so many answers."""
    codes = []
    with raw.makefile("rb") as answer:
        for _ in range(answers):
            codes.append(int(answer.readline().split()[1]))
            length = 0
            while (line := answer.readline()) != b"\r\n":
                name, _, value = line.partition(b":")
                length = int(value) if name == b"content-length" else length
            answer.read(length)
    return codes


@pytest.mark.parametrize(
    "parts",
    [
        (HEAD + OFFER + b"\r\n" + BODY + HEAD + b"\r\n" + BODY,),
        (HEAD + OFFER, b"\r\n" + BODY[:5], BODY[5:] + HEAD, b"\r\n" + BODY),
        (HEAD + OFFER + b"\r\n" + BODY + HEAD + OFFER + b"\r\n" + BODY,),
    ],
)
def test_an_offer_of_another_protocol_loses_no_event(project: EventProject, parts: tuple[bytes, ...]) -> None:
    """Java's HTTP client and `curl --http2` send it with their first request."""
    with project.running_collector() as serving, connected(serving) as raw:
        raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for part in parts:
            raw.sendall(part)
            serving.client("GET", "/health")  # by its answer, the collector has read the part
        assert [202, 202] == statuses(raw, 2)


@pytest.mark.parametrize("begun", [b"", HEAD])
def test_a_connection_that_sends_no_whole_head_is_closed(
    project: EventProject, begun: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A thousand such connections could keep out all other senders forever."""
    monkeypatch.setattr(event_server, "HEAD_SECONDS", 0.2)
    with project.running_collector() as serving, connected(serving) as raw:
        raw.sendall(begun)
        while raw.recv(1000):
            pass
        assert 202 == serving.client.post({"page": "/a"}).status


def test_an_empty_line_after_a_request_does_not_keep_the_connection_open(
    project: EventProject, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It isn't the start of a request, and it must not keep a connection open forever."""
    monkeypatch.setattr(event_server, "HEAD_SECONDS", 0.2)
    with project.running_collector() as serving, connected(serving) as raw:
        raw.sendall(HEAD + b"\r\n" + BODY)
        assert [202] == statuses(raw, 1)
        raw.sendall(b"\r\n")
        assert b"" == raw.recv(1000)


def test_a_head_that_does_not_end_is_refused(project: EventProject) -> None:
    """No sender may fill the memory, above all without a token."""
    with project.running_collector() as serving:
        with connected(serving) as raw:
            raw.sendall(HEAD + b"x-more: " + b"a" * 65_536)
            assert [431] == statuses(raw, 1)
        # a sender that doesn't read the refusal is disconnected; the answer may be lost with the unread bytes
        with connected(serving) as raw, contextlib.suppress(OSError):
            for _ in range(100):
                raw.sendall(b"x-more: " + b"a" * 100_000)
        assert 202 == serving.client.post({"page": "/a"}).status


def test_a_long_head_is_accepted(project: EventProject) -> None:
    """The limit doesn't count bodies, nor the bytes of the next request that arrive with the end of one."""
    with project.running_collector() as serving, connected(serving) as raw:
        long = HEAD + b"x-more: " + b"a" * 60_000 + b"\r\n\r\n" + BODY
        raw.sendall(long + long + long)
        assert [202, 202, 202] == statuses(raw, 3)
