"""The transport of HTTP requests: a connection pool that keeps one deadline for a whole answer.

Alone, httpx limits only each single read. It would wait without end for a server that sends a byte a second. Here
every read and write gets the time that is left until the deadline. The deadline includes the TLS handshake and the
headers.
"""

import contextlib
import logging
import socket
import ssl
import time
import weakref
from collections.abc import Callable, Iterable, Iterator
from contextvars import ContextVar
from typing import Any

import httpcore
import httpx

_WRITE_BYTES = 65_536


# for debugging, httpcore logs the headers of each answer, in which an API may return secrets that it was sent
logging.getLogger("httpcore").setLevel(logging.INFO)


ConnectHook = Callable[[], contextlib.AbstractContextManager[None]]  # entered while a connection is made
_deadline: ContextVar[float] = ContextVar("deadline", default=float("inf"))
_connect_hook: ContextVar[ConnectHook] = ContextVar("connecting", default=contextlib.nullcontext)


@contextlib.contextmanager
def limit_response_time(seconds: float, connect_hook: ConnectHook = contextlib.nullcontext) -> Iterator[None]:
    """Set a deadline, `seconds` from now, for everything that is sent and received in the `with` block."""
    deadline, hook = _deadline.set(time.monotonic() + seconds), _connect_hook.set(connect_hook)
    try:
        yield
    finally:
        _connect_hook.reset(hook)
        _deadline.reset(deadline)


def check_deadline() -> None:
    """Raise ReadTimeout if the deadline has passed."""
    if time.monotonic() > _deadline.get():
        raise httpx.ReadTimeout("timed out")


def _remaining_seconds(timeout: float | None, late: type[Exception]) -> float:
    seconds = _deadline.get() - time.monotonic()
    if seconds <= 0:
        raise late("timed out")
    return seconds if timeout is None else min(timeout, seconds)


class _DeadlineStream(httpcore.NetworkStream):
    """A connection that keeps the deadline.

    It sends written data with the next read, so that a request's head and body share a packet.
    """

    def __init__(self, stream: httpcore.NetworkStream, streams: "weakref.WeakSet[_DeadlineStream]") -> None:
        self._stream = stream
        self._unsent_bytes = b""
        self._streams = streams
        streams.add(self)

    def shut_down(self) -> None:
        """Wake a thread that reads from or writes to this connection. A close by another thread wouldn't wake it."""
        with contextlib.suppress(OSError):  # the connection was lost already
            # the plain socket's method: a TLS socket's method removes the state that the reading thread needs
            socket.socket.shutdown(self._stream.get_extra_info("socket"), socket.SHUT_RDWR)

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        # a server may have answered and closed the connection before it read the whole request
        with contextlib.suppress(httpcore.WriteError):
            self._send(timeout)
        return self._stream.read(max_bytes, _remaining_seconds(timeout, httpcore.ReadTimeout))

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        self._unsent_bytes += buffer
        if len(self._unsent_bytes) >= _WRITE_BYTES:
            self._send(timeout)

    def _send(self, timeout: float | None) -> None:
        buffer, self._unsent_bytes = self._unsent_bytes, b""
        # in chunks: the timeout of one large write restarts whenever the server reads a little
        for start in range(0, len(buffer), _WRITE_BYTES):
            chunk = buffer[start : start + _WRITE_BYTES]
            self._stream.write(chunk, _remaining_seconds(timeout, httpcore.WriteTimeout))

    def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore.NetworkStream:
        seconds = _remaining_seconds(timeout, httpcore.ConnectTimeout)
        with _connect_hook.get()():
            return _DeadlineStream(self._stream.start_tls(ssl_context, server_hostname, seconds), self._streams)

    def close(self) -> None:
        self._stream.close()

    def get_extra_info(self, info: str) -> Any:
        return self._stream.get_extra_info(info)


class _DeadlineNetwork(httpcore.SyncBackend):
    def __init__(self) -> None:
        super().__init__()
        self.streams: weakref.WeakSet[_DeadlineStream] = weakref.WeakSet()

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore.NetworkStream:
        seconds = _remaining_seconds(timeout, httpcore.ConnectTimeout)
        with _connect_hook.get()():
            stream = super().connect_tcp(host, port, seconds, local_address, socket_options)
        return _DeadlineStream(stream, self.streams)


class DeadlineTransport(httpx.HTTPTransport):
    """The HTTP transport for httpx, with connections that keep the deadline."""

    def __init__(self, *, connections: int) -> None:
        limits = httpx.Limits(max_connections=connections, max_keepalive_connections=connections)
        super().__init__(limits=limits)
        # the pool accepts another network, but httpx has no argument for it
        self._network = _DeadlineNetwork()
        self._pool._network_backend = self._network  # noqa: SLF001

    def close(self) -> None:
        for stream in list(self._network.streams):
            stream.shut_down()
        super().close()
