"""An API on loopback that answers so many calls and then lets callers wait, until a test lets them go."""

import contextlib
import http.server
import json
import threading
from collections.abc import Iterator
from typing import NamedTuple


class Call(NamedTuple):
    path: str
    body: object
    idempotency_key: str | None


class HeldApi:
    """Counts its calls; those after `answers` wait for let_go()."""

    def __init__(self, answers: int) -> None:
        self.answers = answers
        self.calls: list[Call] = []
        self.url = ""
        self._changed = threading.Condition()
        self._is_open = False

    def take(self, call: Call) -> None:
        """Note a call, and return when it may be answered."""
        with self._changed:
            self.calls.append(call)
            number = len(self.calls)
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._is_open or number <= self.answers)

    def wait_for(self, calls: int) -> None:
        with self._changed:
            assert self._changed.wait_for(lambda: len(self.calls) >= calls, timeout=60)

    def answer_one(self) -> None:
        """Answer the next call that waits, and no other."""
        with self._changed:
            self.answers += 1
            self._changed.notify_all()

    def let_go(self) -> None:
        """Answer all calls that wait, and those to come."""
        with self._changed:
            self._is_open = True
            self._changed.notify_all()


@contextlib.contextmanager
def held_api(answers: int) -> Iterator[HeldApi]:
    """The API, until its test ends."""
    api = HeldApi(answers)

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            text = self.rfile.read(int(self.headers["content-length"]))
            api.take(Call(self.path, json.loads(text), self.headers["idempotency-key"]))
            with contextlib.suppress(ConnectionError):  # whoever asked may have ended meanwhile
                self.send_response(200)
                self.send_header("content-length", "0")
                self.end_headers()

        def log_message(self, *_: object) -> None:
            """Nobody reads it."""

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    api.url = f"http://127.0.0.1:{server.server_port}"
    try:
        yield api
    finally:
        api.let_go()
        server.shutdown()
        server.server_close()
