"""A connection as uvicorn keeps it, with an end to what it would wait for and keep: the head of a request.

The application reads the body and answers. When a sender offers another protocol, as Java's HTTP
client does by itself (Upgrade: h2c), its request is read as if it hadn't.
"""

import asyncio
from typing import Any

import httptools
import orjson
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

HEAD_SECONDS = 30.0  # in which a head has to be there: who says nothing leaves the place to others
MAX_HEAD_BYTES = 65_536  # of a head; what came in one piece with its beginning isn't counted
TOO_LARGE_MESSAGE = f"the head of a request has at most {MAX_HEAD_BYTES} bytes; send fewer or shorter headers"
INVALID_HTTP_MESSAGE = "Invalid HTTP request received."


class LimitedHttpProtocol(HttpToolsProtocol):
    """One sender's connection."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._is_reading_head = True  # or between two requests
        self._head_count = 0  # that were whole
        self._head_bytes = 0
        self._head_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override] # as uvicorn's
        super().connection_made(transport)
        self._start_head_timer()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_head_timer()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        was_head, heads = self._is_reading_head, self._head_count
        self._unset_keepalive_if_required()
        self._feed_parser(data)
        if self.transport.is_closing():
            return
        is_all_head = was_head and self._is_reading_head and heads == self._head_count
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
        """Read on; a request that offers another protocol is read anew without the offer."""
        try:
            while data:
                data = self._feed_until_upgrade(data)
        except httptools.HttpParserError:
            self.logger.warning(INVALID_HTTP_MESSAGE)
            self.send_400_response(INVALID_HTTP_MESSAGE)

    def _feed_until_upgrade(self, data: bytes) -> bytes:
        """What is still to be read."""
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
        begin = b"%s %s HTTP/%s" % (self.parser.get_method(), self.url, self.parser.get_http_version().encode())
        headers = [b"%s: %s" % header for header in self.headers if header[0] != b"upgrade"]
        return b"\r\n".join([begin, *headers, b"", b""])

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
