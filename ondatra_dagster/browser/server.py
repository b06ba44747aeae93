"""Serving the records page on this machine, until somebody ends it."""

import contextlib
import socket

import uvicorn

from ondatra_dagster.browser.app import records_app
from ondatra_dagster.browser.page_token import page_token
from ondatra_dagster.browser.project_reader import ProjectReader
from ondatra_dagster.orchestration.records_page import HOST, page_address


def listen(port: int) -> socket.socket:
    """A port of this machine's, 0 for any; raises OSError where it can't be had."""
    return socket.create_server((HOST, port))


class PageServer:
    """A page whose port listens already: who asks early waits for serve()."""

    def __init__(self, project: ProjectReader, listener: socket.socket) -> None:
        settings = project.read()[0].settings
        self._listener = listener
        self.port: int = listener.getsockname()[1]
        token = page_token(settings.state)
        self.address = f"{page_address(self.port)}?token={token}"  # whoever has it may look
        config = uvicorn.Config(
            records_app(project, port=self.port, token=token),
            http="h11",
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,  # addresses hold identifiers
            server_header=False,
            timeout_graceful_shutdown=1,
        )
        self._server = uvicorn.Server(config)

    def serve(self) -> None:
        """Answer until Ctrl-C, or until end() is called from another thread."""
        with contextlib.suppress(KeyboardInterrupt):
            self._server.run(sockets=[self._listener])

    def end(self) -> None:
        self._server.should_exit = True
