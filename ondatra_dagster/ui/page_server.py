"""The HTTP server of the UI, in a thread. It closes connections whose request head comes too slowly."""

import asyncio
import re
import socket
import threading
from typing import Any

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from ondatra_dagster.app.project_cache import ProjectCache
from ondatra_dagster.app.ui_urls import UI_HOST, page_url
from ondatra_dagster.ui.access_control import read_or_create_token
from ondatra_dagster.ui.web_app import create_app


def open_listener(port: int) -> socket.socket:
    """Listen on a port of this machine (0: any free one); raise OSError if that fails."""
    return socket.create_server((UI_HOST, port))


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
            http=HeadTimeoutProtocol,
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


HEAD_SECONDS = 30.0
HEAD_END_BYTES = len(b"\n\r\n")
HEAD_END = re.compile(rb"\n\r?\n\Z")


class HeadTimeoutProtocol(asyncio.Protocol):
    """A connection of uvicorn's that is closed when a request's head is incomplete after HEAD_SECONDS."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        self._uvicorn_protocol = H11Protocol(*arguments, **named)
        self._last_bytes = b""  # of what has come
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override] # as uvicorn's
        self._transport = transport
        self._start_timer()
        self._uvicorn_protocol.connection_made(transport)

    def data_received(self, data: bytes) -> None:
        self._last_bytes = (self._last_bytes + data)[-HEAD_END_BYTES:]
        if HEAD_END.search(self._last_bytes):
            self._stop_timer()
        else:
            self._start_timer()
        self._uvicorn_protocol.data_received(data)

    def eof_received(self) -> None:
        self._uvicorn_protocol.eof_received()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_timer()
        self._uvicorn_protocol.connection_lost(exc)

    def pause_writing(self) -> None:
        self._uvicorn_protocol.pause_writing()

    def resume_writing(self) -> None:
        self._uvicorn_protocol.resume_writing()

    def _start_timer(self) -> None:
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(HEAD_SECONDS, self._transport.close)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
