"""The collector's HTTP requests and responses. A refusal's body says what to do.

A request's Host and Origin are checked: web pages send events only if the settings allow it. The owner of a web
page can make its domain name mean this machine (DNS rebinding). The browser then takes the collector for a part of
that site, and asks for no permission. But the request's Host still names that site.
"""

import asyncio
import contextlib
import functools
import hmac
import ipaddress
import re
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from typing import Any, NamedTuple, TypeAlias
from urllib.parse import urlsplit

import orjson

from ondatra_dagster.collector.group_commit import STOPPING_MESSAGE
from ondatra_dagster.project.settings.read_settings_and_defaults import EventSettings
from ondatra_dagster.prometheus_format import CONTENT_TYPE

Headers: TypeAlias = tuple[tuple[bytes, bytes], ...]
JSON_HEADERS: Headers = ((b"content-type", b"application/json"),)
METRICS_HEADERS: Headers = ((b"content-type", CONTENT_TYPE.encode()),)
CLOSE_HEADERS: Headers = ((b"connection", b"close"),)  # for a response after which the rest of the request isn't read


class CollectorResponse(NamedTuple):
    status: int
    body: bytes = b""
    headers: Headers = JSON_HEADERS
    reason: str = ""  # one word about a refusal, for the metrics


class RequestRejectedError(Exception):
    """A refused request and its response; the reason is one word, for the metrics."""

    def __init__(self, status: int, reason: str, sentence: str, headers: Headers = (), **details: Any) -> None:
        super().__init__(reason)
        body = orjson.dumps({"error": sentence, **details})
        self.response = CollectorResponse(status, body, (*JSON_HEADERS, *headers), reason)


def retry_later_error(reason: str, sentence: str, retry_after_seconds: int) -> RequestRejectedError:
    return RequestRejectedError(429, reason, sentence, ((b"retry-after", str(retry_after_seconds).encode()),))


def accepted_response(events: int) -> CollectorResponse:
    return CollectorResponse(202, b'{"accepted":%d}' % events)


Scope: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[MutableMapping[str, Any]]]
RequestHeaders: TypeAlias = Mapping[bytes, bytes]
BODY_TIMEOUT_SECONDS = 30.0  # for a whole body to arrive
DISCARD_SECONDS, DISCARD_BYTES = 5.0, 50_000_000  # read at most this much of a body that is too large
MAX_KEY_LENGTH = 200
JSON_CONTENT_TYPE = re.compile(rb"application/json\s*(;\s*charset\s*=\s*\"?utf-8\"?\s*)?", re.IGNORECASE)
IDEMPOTENCY_KEY = re.compile(rb"[\x21-\x7e]{1,%d}" % MAX_KEY_LENGTH)
AUTHENTICATE_HEADERS: Headers = ((b"www-authenticate", b"Bearer"),)


def check_token(headers: RequestHeaders, token: str | None) -> None:
    """Refuse a client without the token, if one is set. No response and no log contains the token."""
    if token is None:
        return
    word, _, request_token = headers.get(b"authorization", b"").partition(b" ")
    is_right = hmac.compare_digest(request_token.strip(), token.encode())
    if word.lower() != b"bearer" or not is_right:
        sentence = "the token is missing or wrong; send Authorization: Bearer TOKEN"
        raise RequestRejectedError(401, "token", sentence, AUTHENTICATE_HEADERS)


def check_content_type(headers: RequestHeaders) -> None:
    """Refuse a body that isn't JSON, or that is compressed.

    Pages of any site can send forms and texts without a preflight request, but not JSON.
    """
    content_type = headers.get(b"content-type", b"")
    if not JSON_CONTENT_TYPE.fullmatch(content_type):
        sentence = "only JSON is accepted; send Content-Type: application/json"
        raise RequestRejectedError(415, "format", sentence)
    if headers.get(b"content-encoding", b"identity").lower() != b"identity":
        raise RequestRejectedError(415, "format", "send the body uncompressed")


def read_idempotency_key(headers: RequestHeaders) -> str | None:
    """Return the Idempotency-Key; None if there is none. Refuse an invalid one."""
    key = headers.get(b"idempotency-key")
    if key is None:
        return None
    if not IDEMPOTENCY_KEY.fullmatch(key):
        sentence = f"an Idempotency-Key has 1 to {MAX_KEY_LENGTH} visible ASCII characters"
        raise RequestRejectedError(400, "key", sentence)
    return key.decode("ascii")


async def read_body(headers: RequestHeaders, receive: Receive, settings: EventSettings) -> bytes | None:
    """Return the whole body; None if the client has disconnected."""
    try:
        return await _read_whole_body(headers, receive, settings)
    except asyncio.CancelledError:  # the server is ending; nothing of the body was stored
        raise RequestRejectedError(503, "ending", STOPPING_MESSAGE, CLOSE_HEADERS) from None


async def _read_whole_body(headers: RequestHeaders, receive: Receive, settings: EventSettings) -> bytes | None:
    length = headers.get(b"content-length", b"")
    parts, size, content_length = [], 0, int(length) if length.isdigit() else 0
    try:
        async with asyncio.timeout(BODY_TIMEOUT_SECONDS):
            while max(size, content_length) <= settings.max_bytes:
                message = await receive()
                if message["type"] == "http.disconnect":
                    return None
                parts.append(message.get("body", b""))
                size += len(parts[-1])
                if not message.get("more_body"):
                    break
    except TimeoutError:
        sentence = f"the body didn't arrive within {BODY_TIMEOUT_SECONDS:.0f} seconds"
        raise RequestRejectedError(408, "slow", sentence, CLOSE_HEADERS) from None
    if max(size, content_length) > settings.max_bytes:
        await _discard_rest(receive)
        sentence = f"a request has at most {settings.max_bytes} bytes; send fewer events at once"
        raise RequestRejectedError(413, "size", sentence, CLOSE_HEADERS)
    return b"".join(parts)


async def _discard_rest(receive: Receive) -> None:
    """Discard the rest of a body, up to a limit.

    A client that is cut off while it sends doesn't read the response.
    """
    size = 0
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(DISCARD_SECONDS):
            while size < DISCARD_BYTES:
                message = await receive()
                size += len(message.get("body", b""))
                if not message.get("more_body"):
                    return


def cors_headers(headers: RequestHeaders, settings: EventSettings) -> Headers:
    """Return the headers that let a page's script read the response, if the page's origin is allowed."""
    origin = headers.get(b"origin")
    if origin is None or not settings.origins:
        return ()
    vary_header = (b"vary", b"origin")
    is_known = settings.allows_any_origin or origin.decode("latin-1") in settings.origins
    return ((b"access-control-allow-origin", origin), vary_header) if is_known else (vary_header,)


PREFLIGHT_HEADERS: Headers = (
    (b"access-control-allow-methods", b"POST"),
    (b"access-control-allow-headers", b"authorization, content-type, idempotency-key"),
    (b"access-control-max-age", b"600"),
)


MAX_SHOWN_LENGTH = 100  # characters of a Host or an Origin in a response


class HostCheck:
    """The host names under which requests may reach the collector.

    With a token every name is allowed unless `events.hosts` lists some, because a web page doesn't know the token.
    """

    def __init__(self, settings: EventSettings, *, has_token: bool) -> None:
        self._hosts = frozenset(map(host_name, settings.hosts))
        self._allows_all = has_token and not self._hosts
        self._is_allowed = functools.lru_cache(maxsize=256)(self._is_name_allowed)

    def check_host(self, headers: RequestHeaders) -> None:
        """Refuse a request whose Host header names another host."""
        host = headers.get(b"host", b"")
        if not self._is_allowed(host):
            raise _wrong_host_error(host.decode("latin-1"))

    def _is_name_allowed(self, host: bytes) -> bool:
        name = host_name(host.decode("latin-1"))
        return self._allows_all or is_loopback(name) or name in self._hosts


def check_origin(headers: RequestHeaders, settings: EventSettings) -> None:
    """Refuse events of a web page whose origin isn't in the settings. Programs other than browsers send no Origin."""
    origin = headers.get(b"origin")
    if origin is None or settings.allows_any_origin or origin.decode("latin-1") in settings.origins:
        return
    origin_text = origin.decode("latin-1")[:MAX_SHOWN_LENGTH]
    sentence = f"pages of {origin_text} may not send events; add it to the setting events.origins if they should"
    raise RequestRejectedError(403, "origin", sentence)


def is_loopback(host: str) -> bool:
    """Return whether a host's name or address can only mean this machine."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def host_name(host: str) -> str:
    """Return the name or address in a Host header in lower case, without its port; "" if there is none."""
    try:
        parts = urlsplit(f"//{host}")
        is_host_only = parts.netloc == host and "@" not in host
        return (parts.hostname or "").removesuffix(".") if is_host_only else ""
    except ValueError:  # a bracket isn't closed
        return ""


def _wrong_host_error(host: str) -> RequestRejectedError:
    problem = (
        f"requests for the host {host[:MAX_SHOWN_LENGTH]!r} aren't accepted" if host else "there is no Host header"
    )
    remedy = "use 127.0.0.1 or localhost, or add the name to the setting events.hosts, without a port"
    return RequestRejectedError(421, "host", f"{problem}; {remedy}", CLOSE_HEADERS)
