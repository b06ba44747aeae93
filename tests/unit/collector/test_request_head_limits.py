"""What a connection takes before there is a request, over a real server on a loopback port."""

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
    """Those of so many answers."""
    found = []
    with raw.makefile("rb") as answer:
        for _ in range(answers):
            found.append(int(answer.readline().split()[1]))
            length = 0
            while (line := answer.readline()) != b"\r\n":
                name, _, value = line.partition(b":")
                length = int(value) if name == b"content-length" else length
            answer.read(length)
    return found


@pytest.mark.parametrize(
    "parts",
    [
        (HEAD + OFFER + b"\r\n" + BODY + HEAD + b"\r\n" + BODY,),
        (HEAD + OFFER, b"\r\n" + BODY[:5], BODY[5:] + HEAD, b"\r\n" + BODY),
        (HEAD + OFFER + b"\r\n" + BODY + HEAD + OFFER + b"\r\n" + BODY,),
    ],
)
def test_an_offer_of_another_protocol_costs_no_event(project: EventProject, parts: tuple[bytes, ...]) -> None:
    """Java's HTTP client and curl --http2 make it with their first request."""
    with project.running_collector() as serving, connected(serving) as raw:
        raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for part in parts:
            raw.sendall(part)
            serving.client("GET", "/health")  # it has been there by now
        assert [202, 202] == statuses(raw, 2)


@pytest.mark.parametrize("begun", [b"", HEAD])
def test_who_begins_no_request_leaves_the_place_to_others(
    project: EventProject, begun: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A thousand of them would keep everybody out, for as long as they like."""
    monkeypatch.setattr(event_server, "HEAD_SECONDS", 0.2)
    with project.running_collector() as serving, connected(serving) as raw:
        raw.sendall(begun)
        while raw.recv(1000):
            pass
        assert 202 == serving.client.post({"page": "/a"}).status


def test_a_line_between_requests_begins_none(project: EventProject, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is one that nobody need send, and it must not keep a connection for ever."""
    monkeypatch.setattr(event_server, "HEAD_SECONDS", 0.2)
    with project.running_collector() as serving, connected(serving) as raw:
        raw.sendall(HEAD + b"\r\n" + BODY)
        assert [202] == statuses(raw, 1)
        raw.sendall(b"\r\n")
        assert b"" == raw.recv(1000)


def test_a_head_that_does_not_end_is_refused(project: EventProject) -> None:
    """Nobody may fill the memory, least of all without a token."""
    with project.running_collector() as serving:
        with connected(serving) as raw:
            raw.sendall(HEAD + b"x-more: " + b"a" * 65_536)
            assert [431] == statuses(raw, 1)
        # one that doesn't read the refusal is cut off; the answer may be lost with what was on its way
        with connected(serving) as raw, contextlib.suppress(OSError):
            for _ in range(100):
                raw.sendall(b"x-more: " + b"a" * 100_000)
        assert 202 == serving.client.post({"page": "/a"}).status


def test_a_long_head_is_none_too_long(project: EventProject) -> None:
    """Nor are bodies counted, whatever begins in one piece with their end."""
    with project.running_collector() as serving, connected(serving) as raw:
        long = HEAD + b"x-more: " + b"a" * 60_000 + b"\r\n\r\n" + BODY
        raw.sendall(long + long + long)
        assert [202, 202, 202] == statuses(raw, 3)
