"""Syncs of one API that send as fast as their rate limits allow, and the call times by the server's clock."""

import contextlib
import http.server
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

ROOT = Path(__file__).parents[3]
SENDER_SCRIPT = Path(__file__).with_name("rate_limited_sender.py")
API = """
API = {"base_url": "%s", "retry": 0, "rate_limit": {"requests": %d, "per": "1s"}}
def push(rows):
    pass
"""
PATIENCE_SECONDS = 60  # added to the measured time, because the machine may be busy


class CallTimes:
    """The times and paths of a server's calls."""

    def __init__(self) -> None:
        self.calls: list[tuple[float, str]] = []
        self._news = threading.Condition()

    def add(self, path: str) -> None:
        with self._news:
            self.calls.append((time.monotonic(), path))
            self._news.notify_all()

    def wait_for(self, seconds: float) -> None:
        """Wait until a call arrives so many seconds after the first."""
        with self._news:
            there = self._news.wait_for(lambda: self._span() >= seconds, seconds + PATIENCE_SECONDS)
        assert there, f"the last of {len(self.calls)} calls came after {self._span():.1f} s"

    def _span(self) -> float:
        return self.calls[-1][0] - self.calls[0][0] if self.calls else 0.0


@contextlib.contextmanager
def running_timing_server() -> Iterator[tuple[str, CallTimes]]:
    """Serve on loopback until the block ends; yield the address and the times of its calls."""
    stamps = CallTimes()

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            stamps.add(self.path)
            self.send_response(204)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    class Server(http.server.ThreadingHTTPServer):
        daemon_threads = True

        def handle_error(self, *_: object) -> None:
            """Ignore errors: the server's clients are killed."""

    server = Server(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}", stamps
    server.shutdown()
    server.server_close()
    thread.join()


@contextlib.contextmanager
def running_sender(library: Path, rates: Path) -> Iterator[None]:
    """Run a process that sends calls; kill it when the block ends."""
    process = subprocess.Popen(
        [sys.executable, str(SENDER_SCRIPT), str(library), str(rates)], env={**os.environ, "PYTHONPATH": str(ROOT)}
    )
    try:
        yield
        assert process.poll() is None, "the sender has ended by itself"
    finally:
        process.kill()
        process.wait()


def record_calls_of_two_syncs(folder: Path, *, seconds: float) -> Sequence[tuple[float, str]]:
    """Return the calls of two syncs at once, one of them killed and restarted halfway; the stricter limit is 20."""
    lib, rates = folder / "lib", folder / "state" / "rates.sqlite"
    lib.mkdir()
    with running_timing_server() as (url, stamps):
        for name, requests in (("one", 20), ("two", 50)):
            (lib / f"{name}.star").write_text(API % (url, requests), encoding="utf-8")
        with running_sender(lib / "one.star", rates):
            with running_sender(lib / "two.star", rates):
                stamps.wait_for(seconds / 2)
            with running_sender(lib / "two.star", rates):
                stamps.wait_for(seconds)
        return list(stamps.calls)


def max_calls_in_window(stamps: Sequence[float], *, seconds: float) -> int:
    """Return the most calls in any window of that length."""
    most = first = 0
    for last, stamp in enumerate(stamps):
        while stamp - stamps[first] >= seconds:
            first += 1
        most = max(most, last - first + 1)
    return most
