"""A connection pool that keeps one deadline for a whole answer.

httpx limits each single read, so a server that drips a byte a second is waited for without end. Here every
read and write gets what is left until the deadline, the TLS handshake and the headers included.
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
# it logs the headers of each answer, and an API may give back in them what it was sent
logging.getLogger("httpcore").setLevel(logging.INFO)
Connecting = Callable[[], contextlib.AbstractContextManager[None]]  # is entered while a connection is made
_deadline: ContextVar[float] = ContextVar("deadline", default=float("inf"))
_connecting: ContextVar[Connecting] = ContextVar("connecting", default=contextlib.nullcontext)


@contextlib.contextmanager
def answer_within(seconds: float, connecting: Connecting = contextlib.nullcontext) -> Iterator[None]:
    """What is sent and received inside has to be over after so many seconds."""
    deadline, hook = _deadline.set(time.monotonic() + seconds), _connecting.set(connecting)
    try:
        yield
    finally:
        _connecting.reset(hook)
        _deadline.reset(deadline)


def check_deadline() -> None:
    """Raise ReadTimeout when the answer should have been there by now."""
    if time.monotonic() > _deadline.get():
        raise httpx.ReadTimeout("timed out")


def _left(timeout: float | None, late: type[Exception]) -> float:
    left = _deadline.get() - time.monotonic()
    if left <= 0:
        raise late("timed out")
    return left if timeout is None else min(timeout, left)


class _Stream(httpcore.NetworkStream):
    """A connection. What is written waits for the next read: a head and its body in one packet."""

    def __init__(self, stream: httpcore.NetworkStream, streams: "weakref.WeakSet[_Stream]") -> None:
        self._stream = stream
        self._unsent = b""
        self._streams = streams
        streams.add(self)

    def cut(self) -> None:
        """Wake the thread that reads or writes: to be closed by another one isn't enough for that."""
        with contextlib.suppress(OSError):  # it isn't connected any more
            # not the method of a TLS socket, which takes its state away from the thread that reads
            socket.socket.shutdown(self._stream.get_extra_info("socket"), socket.SHUT_RDWR)

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        # a server may have answered, and hung up, before it took the whole request
        with contextlib.suppress(httpcore.WriteError):
            self._send(timeout)
        return self._stream.read(max_bytes, _left(timeout, httpcore.ReadTimeout))

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        self._unsent += buffer
        if len(self._unsent) >= _WRITE_BYTES:
            self._send(timeout)

    def _send(self, timeout: float | None) -> None:
        buffer, self._unsent = self._unsent, b""
        # in pieces: the timeout of one large write starts anew whenever the server takes a little
        for start in range(0, len(buffer), _WRITE_BYTES):
            piece = buffer[start : start + _WRITE_BYTES]
            self._stream.write(piece, _left(timeout, httpcore.WriteTimeout))

    def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore.NetworkStream:
        left = _left(timeout, httpcore.ConnectTimeout)
        with _connecting.get()():
            return _Stream(self._stream.start_tls(ssl_context, server_hostname, left), self._streams)

    def close(self) -> None:
        self._stream.close()

    def get_extra_info(self, info: str) -> Any:
        return self._stream.get_extra_info(info)


class _Network(httpcore.SyncBackend):
    def __init__(self) -> None:
        super().__init__()
        self.streams: weakref.WeakSet[_Stream] = weakref.WeakSet()

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore.NetworkStream:
        left = _left(timeout, httpcore.ConnectTimeout)
        with _connecting.get()():
            stream = super().connect_tcp(host, port, left, local_address, socket_options)
        return _Stream(stream, self.streams)


class DeadlineTransport(httpx.HTTPTransport):
    """httpx's own transport over a network that looks at the clock."""

    def __init__(self, *, connections: int) -> None:
        limits = httpx.Limits(max_connections=connections, max_keepalive_connections=connections)
        super().__init__(limits=limits)
        # the pool takes a network of one's own, but httpx has no argument to hand it on
        self._network = _Network()
        self._pool._network_backend = self._network  # noqa: SLF001

    def close(self) -> None:
        for stream in list(self._network.streams):
            stream.cut()
        super().close()
