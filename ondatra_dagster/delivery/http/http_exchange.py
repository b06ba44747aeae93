"""One request over the wire and its answer; whatever goes wrong on the way is an answer too.

Whether it is worth another try is decided in http_api.
"""

import contextlib
from typing import cast

import httpx

from ondatra_dagster.delivery.http.http_answer import Answer, UnreadableError, read_text
from ondatra_dagster.delivery.http.http_request import Prepared
from ondatra_dagster.delivery.http.http_transport import (
    Connecting,
    DeadlineTransport,
    answer_within,
    check_deadline,
)
from ondatra_dagster.delivery.http.redaction import Redactor
from ondatra_dagster.delivery.http.retry import NO_ANSWER
from ondatra_dagster.delivery.push.push_config import CONNECTIONS

_SHOWN = 1_000  # characters of a reason; it is cut when it is masked: a part of a secret can't be found
_TIMEOUTS = ("connect", "read", "write", "pool")


class ClosedError(Exception):
    """Somebody has stopped the sync while a call of it was under way."""


class Exchange:
    """The connections of one sink, kept open. Threads may share it."""

    def __init__(self, redactor: Redactor, transport: httpx.BaseTransport | None = None) -> None:
        self._redactor = redactor
        self._transport = transport or DeadlineTransport(connections=CONNECTIONS)
        self._is_closed = False

    def send(self, prepared: Prepared, connecting: Connecting = contextlib.nullcontext) -> Answer:
        """One try; ClosedError when its sync was stopped: then there is no answer to go on from."""
        answer = self._try(prepared, connecting)
        if self._is_closed and answer.status_code == NO_ANSWER:
            raise ClosedError
        return answer

    def _try(self, prepared: Prepared, connecting: Connecting) -> Answer:
        if self._is_closed:
            raise ClosedError
        request = httpx.Request(
            prepared.method,
            prepared.url,
            headers=list(prepared.headers.items()),
            content=prepared.content,
            extensions={"timeout": dict.fromkeys(_TIMEOUTS, prepared.timeout_seconds)},
        )
        try:
            with answer_within(prepared.timeout_seconds, connecting):
                return self._exchange(request)
        except (httpx.LocalProtocolError, UnicodeError) as error:
            return self.refusal(f"not sent: {error}")
        except httpx.TransportError as error:
            why = str(error) or type(error).__name__
            return Answer(NO_ANSWER, self._shown(f"no answer: {why} ({type(error).__name__})"))

    def _exchange(self, request: httpx.Request) -> Answer:
        response = self._transport.handle_request(request)
        headers = dict(response.headers.items())
        try:
            # not iter_raw(), which refuses the answers of a MockTransport: they are read already
            chunks = cast("httpx.SyncByteStream", response.stream)
            text = read_text(chunks, headers, check_time=check_deadline)
            return Answer(response.status_code, text, headers)
        except UnreadableError as error:
            return Answer(response.status_code, self._shown(str(error)), headers, refused=True)
        finally:
            response.close()

    def refusal(self, why: str) -> Answer:
        """The answer to what doesn't go out."""
        return Answer(NO_ANSWER, self._shown(why), refused=True)

    def without_token(self, why: str) -> Answer:
        """The answer to what can't go out for want of a token; the rows aren't to blame."""
        return Answer(NO_ANSWER, self._shown(why), is_unsent=True)

    def _shown(self, why: str) -> str:
        return self._redactor.redact(why)[:_SHOWN]

    def close(self) -> None:
        """End all connections, also those on which another thread waits for an answer."""
        self._is_closed = True
        self._transport.close()
