"""The collector behind a port. On a stop it commits and answers the requests in progress first."""

import asyncio
import signal
import socket
import threading
from collections.abc import Callable
from typing import Any

import uvicorn

from ondatra_dagster.collector.asgi_app import CollectorApp
from ondatra_dagster.collector.event_collector import Collector
from ondatra_dagster.collector.host_origin_check import is_loopback
from ondatra_dagster.collector.request_head_limits import LimitedHttpProtocol
from ondatra_dagster.errors import SettingsError, StateError
from ondatra_dagster.project.project import Project
from ondatra_dagster.project.settings.setting_readers import EVENTS_TOKEN_VARIABLE
from ondatra_dagster.project.settings.settings import Settings

LOOPBACK = "127.0.0.1"
LISTEN_BACKLOG = 512
MAX_CONNECTIONS = 1000
SHUTDOWN_SECONDS = 10
KEEP_ALIVE_SECONDS = 65


def open_listener(host: str, port: int, *, token: str | None) -> socket.socket:
    """A port that listens already; one that others can reach wants a token."""
    if token is None and not is_loopback(host):
        raise SettingsError(
            f"{host} can be reached by others, and no token is set:"
            f" put {EVENTS_TOKEN_VARIABLE}=… into .env, or leave out --host"
        )
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=LISTEN_BACKLOG)
    except OSError as error:
        raise StateError(f"{host}:{port} can't be listened at ({error}); choose another --port or --host") from error


def read_token(settings: Settings) -> str | None:
    """What senders have to show; a secret that comes from a file may have the end of its line with it."""
    return (settings.secret(EVENTS_TOKEN_VARIABLE) or "").strip() or None


class CollectorServer:
    """One collector, served."""

    def __init__(self, project: Project, listener: socket.socket, *, more_metrics: Callable[[], str] = str) -> None:
        host, port = listener.getsockname()[:2]
        self.url = f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
        self._listener = listener
        self.collector = Collector(project, purpose=f"ondatra events at {self.url}", more_metrics=more_metrics)
        settings = project.settings
        app = CollectorApp(self.collector, settings.events, self.collector.counts, token=read_token(settings))
        config = uvicorn.Config(
            app,
            http=LimitedHttpProtocol,
            ws="none",
            lifespan="off",
            interface="asgi3",
            log_config=None,
            access_log=False,
            proxy_headers=False,
            server_header=False,
            limit_concurrency=MAX_CONNECTIONS,
            timeout_keep_alive=KEEP_ALIVE_SECONDS,
            timeout_graceful_shutdown=SHUTDOWN_SECONDS,
        )
        self._config = config
        self._server = uvicorn.Server(config)

    def run(self, started: Callable[[], None] = lambda: None) -> None:
        """Serve until stop(), SIGTERM or SIGINT; raises StateError when the file can't be had."""
        handlers = self._handle_signals() if threading.current_thread() is threading.main_thread() else {}
        try:
            factory = self._config.get_loop_factory()
            with asyncio.Runner(loop_factory=factory) as runner:
                runner.run(self._serve(started))
        finally:
            for number, handler in handlers.items():
                signal.signal(number, handler)
            self._listener.close()

    def stop(self) -> None:
        self._server.should_exit = True

    def _handle_signals(self) -> dict[int, Any]:
        """Also before uvicorn does, which hands on what it heard when it has ended: nobody may die of it."""
        return {each: signal.signal(each, lambda *_: self.stop()) for each in (signal.SIGINT, signal.SIGTERM)}

    async def _serve(self, started: Callable[[], None]) -> None:
        self.loop = asyncio.get_running_loop()
        try:
            await self.collector.start()
            await self._serve_until_stopped(started)
        finally:  # also when it couldn't start: its thread would keep the process, and knows why
            await asyncio.to_thread(self.collector.stop)

    async def _serve_until_stopped(self, started: Callable[[], None]) -> None:
        sweeping = asyncio.create_task(self.collector.repeat_periodic_tasks())
        sweeping.add_done_callback(lambda _: self.stop())  # nobody looks after it, or it is over
        try:
            started()
            await self._server.serve(sockets=[self._listener])
        finally:
            is_over = sweeping.done()
            sweeping.cancel()
        if is_over:
            sweeping.result()
            raise StateError("the file of events can't be written any more; start it again")
