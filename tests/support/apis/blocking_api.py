"""An API on loopback that answers a given number of calls, then blocks callers until a test releases them."""

import contextlib
import http.server
import json
import threading
from collections.abc import Iterator
from typing import NamedTuple


class ReceivedCall(NamedTuple):
    path: str
    body: object
    idempotency_key: str | None


class BlockingApi:
    """A counter of calls; those after the first `answers` wait for answer_one() or answer_all()."""

    def __init__(self, answers: int) -> None:
        self.answer_limit = answers
        self.calls: list[ReceivedCall] = []
        self.url = ""
        self._changed = threading.Condition()
        self._answers_all = False

    def record_call(self, call: ReceivedCall) -> None:
        """Record a call, and return when it may be answered."""
        with self._changed:
            self.calls.append(call)
            number = len(self.calls)
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._answers_all or number <= self.answer_limit)

    def wait_for_calls(self, calls: int) -> None:
        with self._changed:
            assert self._changed.wait_for(lambda: len(self.calls) >= calls, timeout=60)

    def answer_one(self) -> None:
        """Answer only the next call that waits."""
        with self._changed:
            self.answer_limit += 1
            self._changed.notify_all()

    def answer_all(self) -> None:
        """Answer all waiting and later calls."""
        with self._changed:
            self._answers_all = True
            self._changed.notify_all()


@contextlib.contextmanager
def running_blocking_api(answers: int) -> Iterator[BlockingApi]:
    """Serve the API until the block ends."""
    api = BlockingApi(answers)

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            text = self.rfile.read(int(self.headers["content-length"]))
            api.record_call(ReceivedCall(self.path, json.loads(text), self.headers["idempotency-key"]))
            with contextlib.suppress(ConnectionError):  # the caller may have ended meanwhile
                self.send_response(200)
                self.send_header("content-length", "0")
                self.end_headers()

        def log_message(self, *_: object) -> None:
            """Write no log."""

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    api.url = f"http://127.0.0.1:{server.server_port}"
    try:
        yield api
    finally:
        api.answer_all()
        server.shutdown()
        server.server_close()
