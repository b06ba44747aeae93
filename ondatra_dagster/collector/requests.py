"""A request as ASGI brings it: who sends it, what its headers say, and its body, no longer than it may be."""

import asyncio
import contextlib
import hmac
import re
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from typing import Any, TypeAlias

from ondatra_dagster.collector.answers import CLOSE, Answer, Headers, refused
from ondatra_dagster.collector.group_commit import GONE
from ondatra_dagster.project.settings.event_settings import EventSettings

Scope: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[MutableMapping[str, Any]]]
RequestHeaders: TypeAlias = Mapping[bytes, bytes]

BODY_SECONDS = 30.0  # in which a body has to be there
PASSING_SECONDS, PASSING_BYTES = 5.0, 50_000_000  # of a body that is too large
LONGEST_KEY = 200
IS_JSON = re.compile(rb"application/json\s*(;\s*charset\s*=\s*\"?utf-8\"?\s*)?", re.IGNORECASE)
KEY = re.compile(rb"[\x21-\x7e]{1,%d}" % LONGEST_KEY)
ASK_FOR_TOKEN: Headers = ((b"www-authenticate", b"Bearer"),)


class RefusedError(Exception):
    """A request that gets no further."""

    def __init__(self, answer: Answer) -> None:
        super().__init__(answer.reason)
        self.answer = answer


def check_token(headers: RequestHeaders, token: str | None) -> None:
    """Refuse who doesn't show the token, where one is set; it stands in no answer and no log."""
    if token is None:
        return
    word, _, shown = headers.get(b"authorization", b"").partition(b" ")
    is_right = hmac.compare_digest(shown.strip(), token.encode())
    if word.lower() != b"bearer" or not is_right:
        sentence = "the token is missing or wrong; send Authorization: Bearer TOKEN"
        raise RefusedError(refused(401, "token", sentence, ASK_FOR_TOKEN))


def check_format(headers: RequestHeaders) -> None:
    """Refuse what isn't JSON: a page of any site can send a form or a text without asking first."""
    of = headers.get(b"content-type", b"")
    if not IS_JSON.fullmatch(of):
        sentence = "only JSON is taken; send Content-Type: application/json"
        raise RefusedError(refused(415, "format", sentence))
    if headers.get(b"content-encoding", b"identity").lower() != b"identity":
        raise RefusedError(refused(415, "format", "send the body as it is, not packed"))


def key_of(headers: RequestHeaders) -> str | None:
    """The Idempotency-Key, if there is one."""
    key = headers.get(b"idempotency-key")
    if key is None:
        return None
    if not KEY.fullmatch(key):
        sentence = f"an Idempotency-Key has 1 to {LONGEST_KEY} visible letters of ASCII"
        raise RefusedError(refused(400, "key", sentence))
    return key.decode("ascii")


async def body_of(headers: RequestHeaders, receive: Receive, settings: EventSettings) -> bytes | None:
    """The whole body; None when who sends it is gone."""
    try:
        return await _whole_body(headers, receive, settings)
    except asyncio.CancelledError:  # the server waits for it no longer, and nothing of it was taken
        raise RefusedError(refused(503, "ending", GONE, CLOSE)) from None


async def _whole_body(headers: RequestHeaders, receive: Receive, settings: EventSettings) -> bytes | None:
    length = headers.get(b"content-length", b"")
    if length.isdigit() and int(length) > settings.max_bytes:
        await _let_pass(receive)
        raise RefusedError(_too_large(settings))
    message = await _next(receive)
    if message["type"] == "http.disconnect":
        return None
    body: bytes = message.get("body", b"")
    if len(body) <= settings.max_bytes and not message.get("more_body"):
        return body
    return await _in_parts(body, receive, settings)


async def _in_parts(first: bytes, receive: Receive, settings: EventSettings) -> bytes | None:
    """A body that doesn't come at once, and may not say how long it is."""
    parts, size = [first], len(first)
    try:
        async with asyncio.timeout(BODY_SECONDS):
            while size <= settings.max_bytes:
                message = await receive()
                if message["type"] == "http.disconnect":
                    return None
                parts.append(message.get("body", b""))
                size += len(parts[-1])
                if not message.get("more_body"):
                    break
    except TimeoutError:
        raise RefusedError(_too_slow()) from None
    if size > settings.max_bytes:
        await _let_pass(receive)
        raise RefusedError(_too_large(settings))
    return b"".join(parts)


async def _let_pass(receive: Receive) -> None:
    """Let some of a body go by: who is cut off while sending doesn't hear why."""
    size = 0
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(PASSING_SECONDS):
            while size < PASSING_BYTES:
                message = await receive()
                size += len(message.get("body", b""))
                if not message.get("more_body"):
                    return


async def _next(receive: Receive) -> MutableMapping[str, Any]:
    try:
        async with asyncio.timeout(BODY_SECONDS):
            return await receive()
    except TimeoutError:
        raise RefusedError(_too_slow()) from None


def _too_slow() -> Answer:
    return refused(408, "slow", f"the body didn't come within {BODY_SECONDS:.0f} seconds", CLOSE)


def _too_large(settings: EventSettings) -> Answer:
    sentence = f"a request has at most {settings.max_bytes} bytes; send fewer events at once"
    return refused(413, "size", sentence, CLOSE)


def origin_headers(headers: RequestHeaders, settings: EventSettings) -> Headers:
    """What lets a page's script read the answer, if its origin is one that may send."""
    origin = headers.get(b"origin")
    if origin is None or not settings.origins:
        return ()
    vary = (b"vary", b"origin")
    is_known = settings.takes_any_origin or origin.decode("latin-1") in settings.origins
    return ((b"access-control-allow-origin", origin), vary) if is_known else (vary,)


PREFLIGHT: Headers = (
    (b"access-control-allow-methods", b"POST"),
    (b"access-control-allow-headers", b"authorization, content-type, idempotency-key"),
    (b"access-control-max-age", b"600"),
)
