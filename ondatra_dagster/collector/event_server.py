"""The collector's HTTP server, which limits a request's head. Before it stops, it commits and answers requests."""

import asyncio
import signal
import socket
import threading
from collections.abc import Callable
from typing import Any

import httptools
import orjson
import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from ondatra_dagster.collector.asgi_app import CollectorApp
from ondatra_dagster.collector.event_intake_and_model_reload import Collector
from ondatra_dagster.collector.http_messages import is_loopback
from ondatra_dagster.errors import SettingsError, StateError
from ondatra_dagster.project.project import Project
from ondatra_dagster.project.settings.read_raw_setting_entries import EVENTS_TOKEN_VARIABLE
from ondatra_dagster.project.settings.read_settings_and_defaults import Settings

HEAD_SECONDS = 30.0  # for a head to arrive: a silent client must not keep a connection from others
MAX_HEAD_BYTES = 65_536  # of a head, without the bytes that arrive together with the end of an earlier request
TOO_LARGE_MESSAGE = f"the head of a request has at most {MAX_HEAD_BYTES} bytes; send fewer or shorter headers"
INVALID_HTTP_MESSAGE = "Invalid HTTP request received."


class LimitedHttpProtocol(HttpToolsProtocol):
    """A client's connection. It limits the time and the size of a request's head, which uvicorn doesn't do.

    The application reads the body and answers. A client may offer another protocol; Java's HTTP client does so by
    default (Upgrade: h2c). The offer is ignored.
    """

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._is_reading_head = True  # also True between two requests
        self._head_count = 0  # complete heads
        self._head_bytes = 0
        self._head_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override] # as uvicorn's
        super().connection_made(transport)
        self._start_head_timer()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_head_timer()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        was_head, head_count = self._is_reading_head, self._head_count
        self._unset_keepalive_if_required()
        self._feed_parser(data)
        if self.transport.is_closing():
            return
        is_all_head = was_head and self._is_reading_head and head_count == self._head_count
        self._head_bytes = self._head_bytes + len(data) if is_all_head else 0
        if self._head_bytes > MAX_HEAD_BYTES:
            self._reject_head()
        elif self.cycle is None or self.cycle.response_complete:
            self._start_head_timer()

    def on_headers_complete(self) -> None:
        self._is_reading_head = False
        self._head_count += 1
        self._stop_head_timer()
        if not self._is_upgrade_offer():
            super().on_headers_complete()

    def on_message_complete(self) -> None:
        self._is_reading_head = True
        if not self._is_upgrade_offer():
            super().on_message_complete()

    def _is_upgrade_offer(self) -> bool:
        return self.parser.should_upgrade() and self.parser.get_method() != b"CONNECT"

    def _feed_parser(self, data: bytes) -> None:
        """Feed data to the parser. A request that offers another protocol is parsed again without the offer."""
        try:
            while data:
                data = self._feed_until_upgrade(data)
        except httptools.HttpParserError:
            self.logger.warning(INVALID_HTTP_MESSAGE)
            self.send_400_response(INVALID_HTTP_MESSAGE)

    def _feed_until_upgrade(self, data: bytes) -> bytes:
        """Feed data to the parser; return the bytes that still have to be parsed."""
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade as offer:
            if not self._is_upgrade_offer():
                raise httptools.HttpParserError(INVALID_HTTP_MESSAGE) from offer
            head = self._head_without_upgrade()
            self.parser = httptools.HttpRequestParser(self)
            return head + data[offer.args[0] :]
        return b""

    def _head_without_upgrade(self) -> bytes:
        request_line = b"%s %s HTTP/%s" % (self.parser.get_method(), self.url, self.parser.get_http_version().encode())
        headers = [b"%s: %s" % header for header in self.headers if header[0] != b"upgrade"]
        return b"\r\n".join([request_line, *headers, b"", b""])

    def _start_head_timer(self) -> None:
        if self._head_timer is None:
            self._head_timer = self.loop.call_later(HEAD_SECONDS, self.transport.close)

    def _stop_head_timer(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _reject_head(self) -> None:
        body = orjson.dumps({"error": TOO_LARGE_MESSAGE})
        self.transport.write(
            b"HTTP/1.1 431 Request Header Fields Too Large\r\ncontent-type: application/json\r\n"
            b"content-length: %d\r\nconnection: close\r\n\r\n%s" % (len(body), body)
        )
        self.transport.close()


LOOPBACK = "127.0.0.1"
LISTEN_BACKLOG = 512
MAX_CONNECTIONS = 1000
SHUTDOWN_SECONDS = 10
KEEP_ALIVE_SECONDS = 65


def open_listener(host: str, port: int, *, token: str | None) -> socket.socket:
    """Open a listening port; raise SettingsError if other machines can reach it and no token is set."""
    if token is None and not is_loopback(host):
        raise SettingsError(
            f"{host} can be reached by others, and no token is set:"
            f" put {EVENTS_TOKEN_VARIABLE}=… into .env, or leave out --host"
        )
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=LISTEN_BACKLOG)
    except OSError as error:
        raise StateError(f"{host}:{port} can't be used ({error}); choose another --port or --host") from error


def read_token(settings: Settings) -> str | None:
    """Return the token that clients have to send. A line break at its end, as from a file, isn't part of it."""
    return (settings.secret(EVENTS_TOKEN_VARIABLE) or "").strip() or None


class CollectorServer:
    """A collector and its HTTP server."""

    def __init__(self, project: Project, listener: socket.socket, *, more_metrics: Callable[[], str] = str) -> None:
        host, port = listener.getsockname()[:2]
        self.url = f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
        self._listener = listener
        self.collector = Collector(project, purpose=f"ondatra events at {self.url}", more_metrics=more_metrics)
        settings = project.settings
        app = CollectorApp(self.collector, settings.events, token=read_token(settings))
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
        self._server = uvicorn.Server(config)

    def run(self, on_start: Callable[[], None] = lambda: None) -> None:
        """Serve until stop(), SIGTERM or SIGINT; raise StateError if the event file can't be used."""
        handlers = self._handle_signals() if threading.current_thread() is threading.main_thread() else {}
        try:
            factory = self._server.config.get_loop_factory()
            with asyncio.Runner(loop_factory=factory) as runner:
                runner.run(self._serve(on_start))
        finally:
            for number, handler in handlers.items():
                signal.signal(number, handler)
            self._listener.close()

    def stop(self) -> None:
        self._server.should_exit = True

    def _handle_signals(self) -> dict[int, Any]:
        """Let signals stop the server; return the previous handlers.

        These handlers are set before uvicorn's. uvicorn raises the signals again after its end, and without these
        handlers the process would die.
        """
        return {
            signal_number: signal.signal(signal_number, lambda *_: self.stop())
            for signal_number in (signal.SIGINT, signal.SIGTERM)
        }

    async def _serve(self, on_start: Callable[[], None]) -> None:
        self.loop = asyncio.get_running_loop()
        try:
            await self.collector.start()
            await self._serve_until_stopped(on_start)
        finally:  # also after a failed start: else the collector's thread keeps the process alive and its error is lost
            await asyncio.to_thread(self.collector.stop)

    async def _serve_until_stopped(self, on_start: Callable[[], None]) -> None:
        periodic_tasks = asyncio.create_task(self.collector.repeat_periodic_tasks())
        periodic_tasks.add_done_callback(lambda _: self.stop())  # the task has failed, or the file can't be written
        try:
            on_start()
            await self._server.serve(sockets=[self._listener])
        finally:
            is_over = periodic_tasks.done()
            periodic_tasks.cancel()
        if is_over:
            periodic_tasks.result()
            raise StateError("the file of events can't be written any more; restart the collector")
