"""An API that keeps what it is sent under its path: a real server with a state."""

import contextlib
import http.server
import json
import threading
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple


class Made(NamedTuple):
    """A call as it arrived."""

    method: str
    path: str
    body: Any  # decoded; None without one


Answer = tuple[int, Any]  # a status, and what is sent as JSON


class Shelf:
    """POST adds, PUT sets, PATCH changes, DELETE removes; `answer` may say something else."""

    def __init__(self) -> None:
        self.url = ""
        self.kept: dict[str, Any] = {}
        self.made: list[Made] = []
        self.answer: Callable[[Made], Answer | None] = lambda made: None
        self._lock = threading.Lock()

    def take(self, made: Made) -> Answer:
        with self._lock:
            self.made.append(made)
            return self.answer(made) or getattr(self, f"_{made.method.lower()}")(made)

    def calls(self) -> list[tuple[str, str]]:
        """Methods and paths since the last time, sorted: the order of keys isn't promised."""
        made, self.made = self.made, []
        return sorted((call.method, call.path) for call in made)

    def _get(self, made: Made) -> Answer:
        return (200, self.kept[made.path]) if made.path in self.kept else (404, {})

    def _post(self, made: Made) -> Answer:
        place = f"{made.path}/{made.body['id']}"
        if place in self.kept:
            return 409, {"error": "it is there already"}
        self.kept[place] = made.body
        return 201, {"id": made.body["id"]}

    def _put(self, made: Made) -> Answer:
        self.kept[made.path] = made.body
        return 200, {}

    def _patch(self, made: Made) -> Answer:
        if made.path not in self.kept:
            return 404, {"error": "unknown"}
        self.kept[made.path] |= made.body
        return 200, {}

    def _delete(self, made: Made) -> Answer:
        return (404, {}) if self.kept.pop(made.path, None) is None else (204, None)


def _handler(shelf: Shelf) -> type[http.server.BaseHTTPRequestHandler]:
    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def answer_any(self) -> None:
            text = self.rfile.read(int(self.headers.get("content-length", 0)))
            status, body = shelf.take(Made(self.command, self.path, json.loads(text) if text else None))
            said = b"" if body is None else json.dumps(body).encode()
            self.send_response(status)
            if status != http.HTTPStatus.NO_CONTENT:
                self.send_header("Content-Length", str(len(said)))
            self.end_headers()
            self.wfile.write(said)

        do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = answer_any  # noqa: N815

        def log_message(self, *_: object) -> None:
            pass

    return Handler


@contextlib.contextmanager
def running_shelf() -> Iterator[Shelf]:
    shelf = Shelf()
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _handler(shelf))
    server.daemon_threads = True
    shelf.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    yield shelf
    server.shutdown()
    server.server_close()
    thread.join()
