"""An API with Stripe's rule: it stores the first answer to an Idempotency-Key and repeats it, also a failure.

It refuses a key that is repeated with another body.
"""

import contextlib
import dataclasses
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

CONFLICT_STATUS = 409


@dataclasses.dataclass
class IdempotencyKeyApi:
    url: str = ""
    next_statuses: list[int] = dataclasses.field(default_factory=list)  # for new keys; 0: carried out, no answer
    received_keys: list[str] = dataclasses.field(default_factory=list)  # of each call
    received_bodies: list[Any] = dataclasses.field(default_factory=list)
    applied_bodies: list[Any] = dataclasses.field(default_factory=list)  # bodies of calls that weren't repeats
    conflicting_keys: list[str] = dataclasses.field(default_factory=list)  # keys that were repeated with another body
    stored_responses: dict[str, tuple[str, int]] = dataclasses.field(default_factory=dict)  # by key: body, status
    lock: threading.Lock = dataclasses.field(default_factory=threading.Lock)

    def handle_call(self, key: str, text: str) -> int:
        """Return the status of a call; 0 when it gets no answer."""
        with self.lock:
            self.received_keys.append(key)
            self.received_bodies.append(json.loads(text))
            if key in self.stored_responses:
                body, status = self.stored_responses[key]
                if body != text:
                    self.conflicting_keys.append(key)
                    return CONFLICT_STATUS
                return status
            status = self.next_statuses.pop(0) if self.next_statuses else 200
            self.stored_responses[key] = (text, status or 200)
            if status in (0, 200):
                self.applied_bodies.append(json.loads(text))
            return status


@contextlib.contextmanager
def running_idempotency_key_api() -> Iterator[IdempotencyKeyApi]:
    """Serve the API on a free port until the block ends."""
    api = IdempotencyKeyApi()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            text = self.rfile.read(int(self.headers["Content-Length"])).decode()
            status = api.handle_call(self.headers["Idempotency-Key"], text)
            if not status:
                self.close_connection = True
                return
            self.send_response(status)
            self.send_header("Content-Length", "2")
            self.end_headers()
            self.wfile.write(b"{}")

        def log_message(self, *_: object) -> None:
            """Write no log."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = False
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    api.url = f"http://127.0.0.1:{server.server_address[1]}"
    try:
        yield api
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
