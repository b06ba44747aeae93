"""An HTTP server on a loopback port, in a thread of the process that starts it."""

import socket
import threading
from collections.abc import Callable

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from uvicorn.protocols.http.h11_impl import H11Protocol

LOOPBACK_HOST = "127.0.0.1"
DisconnectFunction = Callable[[Request], None]


class LoopbackServer:
    """A server that begins to answer with start(); its port listens already."""

    def __init__(self, listener: socket.socket, app: Callable[[DisconnectFunction], Starlette]) -> None:
        self.url = f"http://{LOOPBACK_HOST}:{listener.getsockname()[1]}"
        config = uvicorn.Config(
            app(self._disconnect), http="h11", ws="none", lifespan="off", log_config=None, timeout_graceful_shutdown=1
        )
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._server.run, args=([listener],), name="pretend-api")

    def start(self) -> None:
        self._thread.start()  # the port listens already: early callers wait in its queue

    def stop(self) -> None:
        self._server.should_exit = True
        self._thread.join()

    def _disconnect(self, request: Request) -> None:
        """End the caller's connection, as a lost one ends."""
        caller = tuple(request.scope["client"])
        for connection in list(self._server.server_state.connections):
            if isinstance(connection, H11Protocol) and connection.client == caller:
                connection.transport.abort()
