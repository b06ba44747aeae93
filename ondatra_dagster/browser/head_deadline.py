"""A deadline for the heads of requests: a connection on which one is begun and not ended is closed.

uvicorn waits for the rest of a head for ever. This class stands between it and asyncio, and uses asyncio's
interface only. It takes all that comes for heads: the page answers GET and HEAD, which have no body.
"""

import asyncio
import re
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

HEAD_SECONDS = 30.0
LONGEST_END = len(b"\n\r\n")
HEAD_END = re.compile(rb"\n\r?\n\Z")


class HeadDeadline(asyncio.Protocol):
    """A connection that uvicorn serves, and that is closed when a head isn't there in time."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        self._served = H11Protocol(*arguments, **named)
        self._end = b""  # of what has come
        self._deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override] # as uvicorn's
        self._transport = transport
        self._start()
        self._served.connection_made(transport)

    def data_received(self, data: bytes) -> None:
        self._end = (self._end + data)[-LONGEST_END:]
        if HEAD_END.search(self._end):
            self._stop()
        else:
            self._start()
        self._served.data_received(data)

    def eof_received(self) -> None:
        self._served.eof_received()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop()
        self._served.connection_lost(exc)

    def pause_writing(self) -> None:
        self._served.pause_writing()

    def resume_writing(self) -> None:
        self._served.resume_writing()

    def _start(self) -> None:
        if self._deadline is None:
            self._deadline = asyncio.get_running_loop().call_later(HEAD_SECONDS, self._transport.close)

    def _stop(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
