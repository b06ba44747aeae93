"""A project with event models, and its collector in a thread of the test, on a loopback port."""

import asyncio
import contextlib
import dataclasses
import http.client
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import orjson

from ondatra_dagster.collector.event_server import LOOPBACK, CollectorServer, open_listener
from ondatra_dagster.project.model import Model
from ondatra_dagster.project.project_loader import load_project
from ondatra_dagster.project.settings.read_settings_and_defaults import Settings, read_settings
from ondatra_dagster.storage.private_files import make_state_folder_private

VIEWS_MODEL = "-- @kind: events\npage STRING NOT NULL,\nseconds INT,\nreceived_at TIMESTAMP\n"
JSON_HEADERS = {"content-type": "application/json"}
EVENTS_PATH = "/collect/events/views"


class ReceivedResponse(NamedTuple):
    """A response of the collector."""

    status: int
    body: Any
    headers: Mapping[str, str]


class CollectorClient:
    """A client with one connection that it keeps open."""

    def __init__(self, port: int) -> None:
        self._connection = http.client.HTTPConnection(LOOPBACK, port, timeout=30)

    def __call__(
        self, method: str, path: str, body: bytes | None = None, headers: Mapping[str, str] | None = None
    ) -> ReceivedResponse:
        self._connection.request(method, path, body, dict(headers or {}))
        with self._connection.getresponse() as answer:
            text = answer.read()
            is_json = answer.headers.get("content-type") == "application/json"
            response_headers = {name.lower(): value for name, value in answer.headers.items()}
            return ReceivedResponse(answer.status, orjson.loads(text) if is_json else text.decode(), response_headers)

    def post(self, event: Any, path: str = EVENTS_PATH, **headers: str) -> ReceivedResponse:
        """Post an event, or any other value, as JSON."""
        more = {name.replace("_", "-"): value for name, value in headers.items()}
        return self("POST", path, orjson.dumps(event), {**JSON_HEADERS, **more})

    def close(self) -> None:
        self._connection.close()


@dataclasses.dataclass(frozen=True)
class EventProject:
    """A project with models of kind events."""

    root: Path

    @classmethod
    def create(cls, root: Path, *, settings: str = "", models: Mapping[str, str] | None = None) -> "EventProject":
        for name, text in (models or {"events/views": VIEWS_MODEL}).items():
            path = root / "models" / f"{name}.sql"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        (root / "lib").mkdir(exist_ok=True)
        (root / "pyproject.toml").write_text(f"[tool.ondatra]\n{settings}\n")
        return cls(root)

    @property
    def settings(self) -> Settings:
        return read_settings(self.root, {})

    def model(self, name: str = "events.views") -> Model:
        return load_project(self.root, self.settings).model(name)

    @contextlib.contextmanager
    def running_collector(self) -> Iterator["RunningCollector"]:
        """Run its collector until the block ends."""
        settings = self.settings
        make_state_folder_private(settings.state)
        listener = open_listener(LOOPBACK, 0, token=None)
        server = CollectorServer(load_project(self.root, settings), listener)
        is_up = threading.Event()
        thread = threading.Thread(target=server.run, args=(is_up.set,), name="collector")
        thread.start()
        serving = RunningCollector(server, listener.getsockname()[1])
        try:
            assert is_up.wait(30)
            yield serving
        finally:
            serving.close()
            server.stop()
            thread.join()


class RunningCollector:
    """A collector that runs, and a client for it."""

    def __init__(self, server: CollectorServer, port: int) -> None:
        self.server = server
        self.port = port
        self.client = CollectorClient(port)

    def run_periodic_tasks(self) -> None:
        """Run now the tasks that the collector runs periodically."""
        collector = self.server.collector
        asyncio.run_coroutine_threadsafe(collector.run_periodic_tasks(), self.server.loop).result(30)

    def close(self) -> None:
        self.client.close()
