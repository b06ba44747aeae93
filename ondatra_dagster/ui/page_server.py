"""The HTTP server of the UI, in a thread. It closes connections whose request head comes too slowly."""

import socket
import threading

import uvicorn

from ondatra_dagster.app.project_cache import ProjectCache
from ondatra_dagster.app.ui_urls import UI_HOST, page_url
from ondatra_dagster.collector.event_server import LimitedHttpProtocol
from ondatra_dagster.ui.access_control import read_or_create_token
from ondatra_dagster.ui.web_app import create_app


def open_listener(port: int) -> socket.socket:
    """Listen on a port of this machine (0: any free one); raise OSError if that fails."""
    return socket.create_server((UI_HOST, port))


class PathRequestProtocol(LimitedHttpProtocol):
    """A connection that refuses a request for an address in place of a path, such as http://evil.example/."""

    def on_url(self, url: bytes) -> None:
        if not url.startswith(b"/"):
            raise ValueError(url)  # the response is 400
        super().on_url(url)


class PageServer:
    """A server of the UI. Its port listens already: early requests wait for start()."""

    def __init__(self, project: ProjectCache, listener: socket.socket) -> None:
        settings = project.load_current_project()[0].settings
        self._listener = listener
        self.port: int = listener.getsockname()[1]
        token = read_or_create_token(settings.state)
        self.url = f"{page_url(self.port)}?token={token}"  # whoever has it may look
        config = uvicorn.Config(
            create_app(project, port=self.port, token=token),
            http=PathRequestProtocol,
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,  # addresses hold identifiers
            server_header=False,
            log_level="critical",  # faults are told where they are met, in sentences
            timeout_graceful_shutdown=1,
        )
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._server.run, args=([listener],), name="records-page")

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Stop the server; requests in progress have one more second."""
        self._server.should_exit = True
        self._thread.join()
