"""Serving the records page on this machine, from a thread of the process that wants it."""

import socket
import threading

import uvicorn

from ondatra_dagster.browser.app import records_app
from ondatra_dagster.browser.head_deadline import HeadDeadline
from ondatra_dagster.browser.page_token import page_token
from ondatra_dagster.orchestration.project_reader import ProjectReader
from ondatra_dagster.orchestration.records_page import HOST, page_address


def listen(port: int) -> socket.socket:
    """A port of this machine's, 0 for any; raises OSError where it can't be had."""
    return socket.create_server((HOST, port))


class PageServer:
    """A page whose port listens already: who asks early waits for start()."""

    def __init__(self, project: ProjectReader, listener: socket.socket) -> None:
        settings = project.read()[0].settings
        self._listener = listener
        self.port: int = listener.getsockname()[1]
        token = page_token(settings.state)
        self.address = f"{page_address(self.port)}?token={token}"  # whoever has it may look
        config = uvicorn.Config(
            records_app(project, port=self.port, token=token),
            http=HeadDeadline,
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
        """End it: who is being answered has a second more."""
        self._server.should_exit = True
        self._thread.join()
