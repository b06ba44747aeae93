"""A load of events whose acknowledgements are recorded, and a collector process that a test can kill."""

import http.client
import os
import select
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import orjson
from support.projects.event_project import EVENTS_PATH, JSON_HEADERS

START_SECONDS = 60
RETRY_SECONDS = 0.05  # before a sender tries again
BATCH_EVENTS = 10


class CollectorProcess:
    """A process of `ondatra events`, which keeps its port when it is restarted."""

    def __init__(self, root: Path, port: int = 0) -> None:
        self.root = root
        self.port = port
        self._process: subprocess.Popen[str] | None = None

    def start(self) -> None:
        """Start the process and wait until it listens."""
        self._process = subprocess.Popen(
            [sys.executable, "-m", "ondatra_dagster.cli.main", "events", "--port", str(self.port)],
            cwd=self.root,
            stderr=subprocess.PIPE,
            text=True,
            preexec_fn=_enable_interrupts,
        )
        assert self._process.stderr
        assert select.select([self._process.stderr], [], [], START_SECONDS)[0], "the collector doesn't start"
        line = self._process.stderr.readline()
        assert line.startswith("accepting events for"), line + self._process.stderr.read()
        self.port = int(line.partition("127.0.0.1:")[2].partition("/")[0])

    def kill(self) -> None:
        assert self._process
        self._process.kill()
        self._wait()

    def stop(self) -> int:
        """Send SIGTERM and return the exit code."""
        assert self._process
        self._process.send_signal(signal.SIGTERM)
        return self._wait()

    def _wait(self) -> int:
        assert self._process
        code = self._process.wait(START_SECONDS)
        assert self._process.stderr
        self._process.stderr.close()
        return code


def _enable_interrupts() -> None:
    """Restore the SIGINT handler: a shell's background jobs and their children ignore SIGINT."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


class EventSenders:
    """A group of threads that send requests, every fourth of them a batch, until each is acknowledged."""

    def __init__(self, port: int, *, senders: int, requests: int, name: str = "") -> None:
        self.acknowledged_pages: list[str] = []
        self._port = port
        self._requests = requests
        self._name = name  # of this group: its pages begin with it
        self._lock = threading.Condition()
        self._threads = [threading.Thread(target=self._send_all, args=(n,)) for n in range(senders)]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def wait_for(self, events: int) -> None:
        """Wait until so many events are acknowledged."""
        with self._lock:
            assert self._lock.wait_for(lambda: len(self.acknowledged_pages) >= events, timeout=600)

    def join(self) -> None:
        for thread in self._threads:
            thread.join()

    @property
    def is_busy(self) -> bool:
        return any(thread.is_alive() for thread in self._threads)

    def _send_all(self, sender: int) -> None:
        for number in range(self._requests):
            pages = [f"{self._name}{sender}-{number}"]
            if number % 4 == 3:
                pages += [f"{pages[0]}-{n}" for n in range(1, BATCH_EVENTS)]
            self._send(pages)
            with self._lock:
                self.acknowledged_pages += pages
                self._lock.notify_all()

    def _send(self, pages: list[str]) -> None:
        """Send the request under one key, again and again, until it is acknowledged."""
        is_batch = len(pages) > 1
        events = [{"page": page} for page in pages]
        body = orjson.dumps(events if is_batch else events[0])
        headers = {**JSON_HEADERS, "idempotency-key": pages[0]}
        while True:
            connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=60)
            try:
                connection.request("POST", f"{EVENTS_PATH}/batch" if is_batch else EVENTS_PATH, body, headers)
                with connection.getresponse() as answer:
                    answer.read()
                    if answer.status == 202:
                        return
            except (OSError, http.client.HTTPException):
                time.sleep(RETRY_SECONDS)
            finally:
                connection.close()


def count_events(*, senders: int, requests: int) -> int:
    """Return the number of events that all senders send together."""
    return senders * (requests + requests // 4 * (BATCH_EVENTS - 1))


def child_environment() -> dict[str, str]:
    """Return the environment of a child process that imports the tests' support modules."""
    tests = Path(__file__).parents[2]
    return {**os.environ, "PYTHONPATH": os.pathsep.join([str(tests), str(tests.parent)])}
