"""The measurement of events by HTTP: a plain Starlette app that only parses events, and ondatra's collector.

The collector also stores the events. uvicorn serves each of the two in a separate process. The requests are built
before and sent through raw sockets, so that the sender takes as little time as possible.
"""

import contextlib
import datetime
import os
import random
import re
import selectors
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import orjson

HOST = "127.0.0.1"
CONNECTIONS = 64
PATH = "/collect/events/seen"
MODEL = """-- @kind: events
event_name STRING NOT NULL,
user_id BIGINT NOT NULL,
page STRING,
seconds DOUBLE,
at TIMESTAMP,
received_at TIMESTAMP
"""
PAGES = ("/", "/cart", "/checkout/address", "/products/coffee-grinder-1200", "/products/kettle-77")
PLAIN_APP = """
import socket, sys
import orjson, uvicorn
from starlette.applications import Starlette
from starlette.responses import Response
from starlette.routing import Route

async def collect(request):
    orjson.loads(await request.body())
    return Response(b'{"accepted":1}', 202, media_type="application/json")

app = Starlette(routes=[Route("/collect/{schema}/{table}", collect, methods=["POST"]),
                        Route("/collect/{schema}/{table}/batch", collect, methods=["POST"])])
listener = socket.create_server(("127.0.0.1", 0), backlog=512)
print(f"at http://127.0.0.1:{listener.getsockname()[1]}/", file=sys.stderr, flush=True)
config = uvicorn.Config(app, ws="none", lifespan="off", log_config=None, access_log=False)
uvicorn.Server(config).run(sockets=[listener])
"""
_LENGTH = re.compile(rb"content-length: *(\d+)", re.IGNORECASE)


def measure_event_rate(folder: Path, name: str, events: int, size: int) -> float:
    """Return how many events a second the server accepts, with `size` events in each request."""
    body = orjson.dumps(_build_events(size) if size > 1 else _build_events(1)[0])
    path = f"{PATH}/batch" if size > 1 else PATH
    head = f"POST {path} HTTP/1.1\r\nhost: {HOST}\r\ncontent-type: application/json\r\n"
    request = f"{head}content-length: {len(body)}\r\n\r\n".encode() + body
    with SERVERS[name](folder) as port:
        requests = events // size
        _send_requests(port, request, requests // 5)
        return requests * size / _send_requests(port, request, requests)


def _build_events(size: int) -> list[dict[str, object]]:
    """Return page views that all differ, because the server may compress what it stores."""
    generator, first_time = random.Random(1), datetime.datetime(2026, 11, 18, 12, tzinfo=datetime.UTC)
    return [
        {
            "event_name": "page_seen",
            "user_id": generator.randrange(10_000_000),
            "page": generator.choice(PAGES),
            "seconds": round(generator.expovariate(0.05), 3),
            "at": (first_time + datetime.timedelta(seconds=generator.random())).isoformat(timespec="milliseconds"),
        }
        for _ in range(size)
    ]


@contextlib.contextmanager
def _plain_server(_folder: Path) -> Iterator[int]:
    with _running_server([sys.executable, "-c", PLAIN_APP], Path.cwd()) as port:
        yield port


@contextlib.contextmanager
def _ondatra_server(folder: Path) -> Iterator[int]:
    (folder / "models" / "events").mkdir(parents=True)
    (folder / "models" / "events" / "seen.sql").write_text(MODEL, encoding="utf-8")
    (folder / "pyproject.toml").write_text("[tool.ondatra]\n", encoding="utf-8")
    command = [sys.executable, "-m", "ondatra_dagster.cli.main", "events", "--port", "0"]
    with _running_server(command, folder) as port:
        yield port


SERVERS = {"plain": _plain_server, "ours": _ondatra_server}


@contextlib.contextmanager
def _running_server(command: list[str], folder: Path) -> Iterator[int]:
    environ = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])}
    with subprocess.Popen(command, cwd=folder, env=environ, stderr=subprocess.PIPE, text=True) as server:
        assert server.stderr
        port_match = re.search(r"127\.0\.0\.1:(\d+)", server.stderr.readline())
        if port_match is None:
            raise SystemExit(f"{' '.join(command[:4])} doesn't start:\n{server.stderr.read()}")
        try:
            yield int(port_match[1])
        finally:
            server.terminate()


def _send_requests(port: int, request: bytes, requests: int) -> float:
    """Send the requests over several connections, and return how many seconds that took.

    Each connection sends its next request when the last one is answered.
    """
    with contextlib.ExitStack() as connections, selectors.DefaultSelector() as selector:
        for _ in range(min(CONNECTIONS, requests)):
            connection = connections.enter_context(socket.create_connection((HOST, port)))
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            selector.register(connection, selectors.EVENT_READ)
        start_time = time.perf_counter()
        for key in selector.get_map().values():
            _socket_of(key).sendall(request)
        unsent_count, unanswered_count = requests - len(selector.get_map()), requests
        while unanswered_count:
            for key, _ in selector.select():
                _read_response(_socket_of(key))
                unanswered_count -= 1
                if unsent_count:
                    _socket_of(key).sendall(request)
                    unsent_count -= 1
        return time.perf_counter() - start_time


def _socket_of(key: selectors.SelectorKey) -> socket.socket:
    assert isinstance(key.fileobj, socket.socket)
    return key.fileobj


def _read_response(connection: socket.socket) -> None:
    """Read one whole response from the connection."""
    content = connection.recv(65_536)
    while b"\r\n\r\n" not in content:
        content += connection.recv(65_536)
    head, _, body = content.partition(b"\r\n\r\n")
    if b" 202 " not in head[:16]:
        raise SystemExit(f"not taken: {content[:300]!r}")
    length_match = _LENGTH.search(head)
    missing_bytes = (int(length_match[1]) if length_match else 0) - len(body)
    while missing_bytes > 0:
        missing_bytes -= len(connection.recv(65_536))
