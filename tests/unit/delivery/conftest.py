"""An HTTP server on the loopback interface for tests that need a real socket; `.star` files on disk."""

import contextlib
import dataclasses
import http.server
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest


@dataclasses.dataclass(frozen=True)
class LoopbackRequest:
    """A request as the server received it."""

    method: str
    path: str
    headers: dict[str, str]  # by lower-case name
    body: str


class LoopbackApi:
    """A server that answers through `reply_function` and stores the requests it received."""

    def __init__(self) -> None:
        self.requests: list[LoopbackRequest] = []
        self.reply_function: Callable[[http.server.BaseHTTPRequestHandler, LoopbackRequest], None] = build_reply(
            200, b"{}"
        )
        self.url = ""


def build_reply(
    status: int, body: bytes = b"", **headers: str
) -> Callable[[http.server.BaseHTTPRequestHandler, LoopbackRequest], None]:
    """Return a reply function that sends this status, this body and these headers."""

    def reply(handler: http.server.BaseHTTPRequestHandler, _seen: LoopbackRequest) -> None:
        handler.send_response(status)
        for name, value in headers.items():
            handler.send_header(name.replace("_", "-"), value)
        handler.send_header("Content-Length", str(len(body)))
        handler.end_headers()
        handler.wfile.write(body)

    return reply


def _handler(api: LoopbackApi) -> type[http.server.BaseHTTPRequestHandler]:
    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def answer_any(self) -> None:
            body = self.rfile.read(int(self.headers.get("content-length", 0))).decode()
            headers = {name.lower(): value for name, value in self.headers.items()}
            request = LoopbackRequest(self.command, self.path, headers, body)
            api.requests.append(request)
            with contextlib.suppress(ConnectionError):  # the client has closed the connection
                api.reply_function(self, request)

        do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = answer_any  # noqa: N815

        def log_message(self, *_: object) -> None:
            pass

    return Handler


class _Server(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, *_: object) -> None:
        """Ignore clients that close the connection: some tests do that on purpose."""


@pytest.fixture
def loopback_api() -> Iterator[LoopbackApi]:
    api = LoopbackApi()
    server = _Server(("127.0.0.1", 0), _handler(api))
    api.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    yield api
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.fixture
def make_reply() -> Callable[..., Callable[[http.server.BaseHTTPRequestHandler, LoopbackRequest], None]]:
    return build_reply


@pytest.fixture
def write_library(tmp_path: Path) -> Callable[..., Path]:
    """Return a function that writes `.star` files into `lib/` and returns the path of the first."""

    def write(**files: str) -> Path:
        folder = tmp_path / "lib"
        folder.mkdir(exist_ok=True)
        for name, text in files.items():
            (folder / f"{name}.star").write_text(text, encoding="utf-8")
        return folder / f"{next(iter(files))}.star"

    return write
