"""A builder of requests from a push function's calls: address, body, headers and credentials.

Credentials are sent to base_url's host only. No other host is called unless allow_hosts names it. No value of a row
can lead a path out of the base_url that the sink's author wrote. api_client sends the requests.
"""

import base64
import dataclasses
import functools
import re
import unicodedata
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import NamedTuple
from urllib.parse import unquote, urlencode

import httpx

from ondatra_dagster.delivery.push.push_config import (
    Auth,
    BasicAuth,
    BearerAuth,
    HeaderAuth,
    ParamAuth,
    PushConfig,
    TextOrVariable,
    Variable,
)
from ondatra_dagster.delivery.response_journal import digest_request

DEFAULT_PORTS = {"http": 80, "https": 443}
# servers may unquote a path more than once
_UNQUOTE_ROUNDS = 4
# the end of a segment that some servers cut off before they read the segment
_SEGMENT_TAIL = re.compile(r"[;?#\x00].*", re.DOTALL)
# a character as IIS escapes it (%uXXXX), and an ASCII character in more bytes of UTF-8 than needed
_IIS_ESCAPE = re.compile(r"%u([0-9a-f]{4})", re.IGNORECASE)
_OVERLONG_ESCAPE = re.compile(r"%(?:c|e0%8|f0%80%8|f8%80%80%8|fc%80%80%80%8)([01])%([0-9a-f]{2})", re.IGNORECASE)
_ABSOLUTE_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:|//|\\")
# characters that Windows turns into slashes, in addition to the full-width ones that NFKC knows
_SLASHES = str.maketrans("\u2044\u2215\u2216", "//\\")


class UrlOrigin(NamedTuple):
    """The origin of an address: scheme, host and port."""

    scheme: str
    host: str
    port: int

    def __str__(self) -> str:
        port = "" if self.port == DEFAULT_PORTS.get(self.scheme) else f":{self.port}"
        return f"{self.scheme}://{self.host}{port}"


def is_absolute_url(url: str) -> bool:
    """Return whether the address names a host."""
    return bool(_ABSOLUTE_URL.match(url))


def join_url(base_url: str, path: str) -> str:
    """Return base_url with the path added to it. The path that base_url itself has stays in front."""
    if path.startswith("?") or not path:
        return base_url + path
    return f"{base_url.rstrip('/')}/{path.lstrip('/')}"


def has_dot_segments(url: str) -> bool:
    """Return whether a segment of the path is `.` or `..`, plain or in any spelling that a server may decode."""
    path = url.split("?", 1)[0].split("#", 1)[0]
    for _ in range(_UNQUOTE_ROUNDS):
        path = unicodedata.normalize("NFKC", path).translate(_SLASHES)
        if any(_strip_tail(segment) in {".", ".."} for segment in re.split(r"[/\\]", path)):
            return True
        if "%" not in path:
            return False
        path = _IIS_ESCAPE.sub(lambda match: chr(int(match[1], 16)), path)
        path = unquote(_OVERLONG_ESCAPE.sub(_decode_overlong, path))
    return False


def _strip_tail(segment: str) -> str:
    """Return the segment as a careless server reads it: without invisible characters, and only up to a delimiter."""
    return "".join(filter(str.isprintable, _SEGMENT_TAIL.sub("", segment))).replace(" ", "")


def _decode_overlong(match: re.Match[str]) -> str:
    return chr(int(match[1]) << 6 | int(match[2], 16) & 0x3F)


def is_allowed_host(origin: UrlOrigin, allow_hosts: Collection[str]) -> bool:
    """Return whether allow_hosts names the origin: `host` on the default port, or `host:port`."""
    if f"{origin.host}:{origin.port}" in allow_hosts:
        return True
    return origin.port == DEFAULT_PORTS.get(origin.scheme) and origin.host in allow_hosts


Headers = dict[bytes, bytes]

URL_CACHE_SIZE = 256

# only the encoding that response_status_and_body_decoding decompresses itself, with its own limit
_DEFAULT_HEADERS: Headers = {b"user-agent": b"ondatra", b"accept": b"*/*", b"accept-encoding": b"gzip"}
_HEADER_NAME = re.compile(rb"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
# control characters except the tab, and the line ends of Unicode: some servers split lines at all of these
_FORBIDDEN_CHARACTERS = re.compile("[\x00-\x08\x0a-\x1f\x7f-\x9f\u2028\u2029]")
_MAX_TIMEOUT_SECONDS = 86_400
# only the client sets the headers that frame the message: a wrong one would smuggle a second request
_CLIENT_HEADERS = frozenset({b"content-length", b"transfer-encoding", b"connection", b"host"})


class RequestRefusedError(Exception):
    """An error of a request that can't or mustn't be sent; nothing was sent."""


@dataclasses.dataclass(frozen=True, slots=True)
class HttpCall:
    """A request from a push function."""

    method: str
    url: str
    json: str | None = None  # the body as JSON text
    data: object = None  # a text, or a dict to be sent as a form
    params: object = None
    headers: object = None
    timeout: object = None  # seconds


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class PreparedRequest:
    """A request that is ready to be sent."""

    method: str
    # no credentials in a repr
    url: httpx.URL = dataclasses.field(repr=False)
    headers: Headers = dataclasses.field(repr=False)
    content: bytes = dataclasses.field(repr=False)
    digest: str  # identifies the request in the journal; credentials aren't part of it
    is_to_base_url: bool  # whether it goes to base_url's host
    timeout_seconds: float

    def with_header(self, name: bytes, value: bytes) -> "PreparedRequest":
        """Return the request with one more header; a header with this name that the request has already stays."""
        return dataclasses.replace(self, headers={name: value, **self.headers})


class RequestBuilder:
    """A builder of the requests of one sink; it has the sink's credentials."""

    def __init__(self, config: PushConfig, secret: Callable[[Variable], str]) -> None:
        self._base_url = config.base_url
        self._timeout_seconds = config.timeout_seconds
        self._base_origin = _origin_of(httpx.URL(config.base_url)) if config.base_url else None
        self._allow_hosts = frozenset(re.sub(r"[\[\]]", "", host.lower()) for host in config.allow_hosts)
        headers = {name: _resolve_text(value, secret) for name, value in config.headers}
        self._base_headers = _DEFAULT_HEADERS | _encode_headers({**_auth_headers(config.auth, secret), **headers})
        self._base_query = ""
        if isinstance(config.auth, ParamAuth):
            self._base_query = urlencode({config.auth.param: secret(config.auth.token)})
        # most push functions call few addresses, and parsing one takes a tenth of a call
        self._check_url_cached = functools.lru_cache(maxsize=URL_CACHE_SIZE)(self._check_url)

    def build_request(self, call: HttpCall) -> PreparedRequest:
        """Return the request, or raise RequestRefusedError with the reason."""
        content, content_type = _encode_body(call)
        text = _add_query(self._absolute_url(call.url), _encode_query(_require_dict("params", call.params)))
        url, is_home = self._check_url_cached(text)
        digest = digest_request(call.method, text, content)
        headers = dict(self._base_headers if is_home else _DEFAULT_HEADERS)
        if content_type:
            headers[b"content-type"] = content_type
        headers.update(_encode_headers(_require_dict("headers", call.headers)))
        if is_home and self._base_query:
            url = _parse_url(_add_query(text, self._base_query))
        timeout = _parse_timeout(call.timeout, self._timeout_seconds)
        return PreparedRequest(
            method=call.method,
            url=url,
            headers=headers,
            content=content,
            digest=digest,
            is_to_base_url=is_home,
            timeout_seconds=timeout,
        )

    def build_form_request(self, url: str, fields: Mapping[str, str], headers: Mapping[str, str]) -> PreparedRequest:
        """Return a form request to an address that the sink's author wrote, without the sink's own headers."""
        address = _parse_url(self._absolute_url(url))
        content = urlencode(fields).encode()
        form_headers = {"accept": "application/json", "content-type": "application/x-www-form-urlencoded", **headers}
        return PreparedRequest(
            method="POST",
            url=address,
            headers=_DEFAULT_HEADERS | _encode_headers(form_headers),
            content=content,
            digest="",
            is_to_base_url=_origin_of(address) == self._base_origin,
            timeout_seconds=self._timeout_seconds,
        )

    def _absolute_url(self, url: str) -> str:
        if is_absolute_url(url):
            return url
        if self._base_url is None:
            raise RequestRefusedError(f"{url!r} has no host; write it out, or give API a base_url")
        return join_url(self._base_url, url)

    def _check_url(self, text: str) -> tuple[httpx.URL, bool]:
        """Return the address, and whether it belongs to base_url's host. Raise an error if it mustn't be called."""
        url = _parse_url(text)
        if has_dot_segments(text):
            raise RequestRefusedError(f"{text!r} has a '.' or '..' in its path, which could lead out of base_url")
        if url.userinfo:
            raise RequestRefusedError("the address contains a user name; credentials belong into API's auth")
        origin = _origin_of(url)
        if origin == self._base_origin:
            return url, True
        if origin.scheme not in DEFAULT_PORTS or not is_allowed_host(origin, self._allow_hosts):
            base_url_text = f"base_url is {self._base_origin}" if self._base_origin else "there is no base_url"
            raise RequestRefusedError(f"{origin} may not be called: {base_url_text}; allow_hosts names other hosts")
        return url, False


def _parse_url(text: str) -> httpx.URL:
    try:
        return httpx.URL(text)
    except httpx.InvalidURL as error:
        raise RequestRefusedError(f"{text!r} is not an address: {error}; quote values with url_quote()") from error


def _origin_of(url: httpx.URL) -> UrlOrigin:
    return UrlOrigin(url.scheme, url.host, url.port or DEFAULT_PORTS.get(url.scheme, 0))


def _resolve_text(value: TextOrVariable, secret: Callable[[Variable], str]) -> str:
    return secret(value) if isinstance(value, Variable) else value


def _auth_headers(auth: Auth | None, secret: Callable[[Variable], str]) -> Mapping[str, str]:
    match auth:
        case BearerAuth(token):
            return {"authorization": f"Bearer {secret(token)}"}
        case HeaderAuth(token, header):
            return {header: secret(token)}
        case BasicAuth(user, password):
            credentials = f"{_resolve_text(user, secret)}:{secret(password)}"
            return {"authorization": f"Basic {base64.b64encode(credentials.encode()).decode()}"}
    return {}


def _encode_headers(headers: Mapping[str, object]) -> Headers:
    headers_in_bytes: Headers = {}
    for name, value in headers.items():
        if value is None:
            continue
        key, text = str(name).lower().encode(), str(value).strip(" \t\r\n")
        if not _HEADER_NAME.fullmatch(key) or key in _CLIENT_HEADERS:
            raise RequestRefusedError(f"{name!r} can't be set as a header")
        if _FORBIDDEN_CHARACTERS.search(text):
            raise RequestRefusedError(
                f"the value of the header {name!r} has a line break or another control character in it"
            )
        headers_in_bytes[key] = text.encode()
    return headers_in_bytes


def _encode_body(call: HttpCall) -> tuple[bytes, bytes | None]:
    if call.json is not None:
        if call.data is not None:
            raise RequestRefusedError("a call takes json= or data=, not both")
        return call.json.encode(), b"application/json"
    if call.data is None:
        return b"", None
    if isinstance(call.data, Mapping):
        return _encode_query(call.data).encode(), b"application/x-www-form-urlencoded"
    if isinstance(call.data, str):
        return call.data.encode(), b"text/plain; charset=utf-8"
    raise RequestRefusedError(f"data= takes a string or a dict, not {type(call.data).__name__}")


def _require_dict(name: str, value: object) -> Mapping[str, object]:
    if value is None:
        return {}
    if isinstance(value, Mapping):
        return value
    raise RequestRefusedError(f"{name}= takes a dict, not {type(value).__name__}")


def _parse_timeout(timeout: object, default: float) -> float:
    if timeout is None:
        return default
    if isinstance(timeout, int | float) and not isinstance(timeout, bool) and 0 < timeout < _MAX_TIMEOUT_SECONDS:
        return float(timeout)
    raise RequestRefusedError(f"timeout= takes a number of seconds below {_MAX_TIMEOUT_SECONDS:,}, not {timeout!r}")


def _encode_query(params: Mapping[str, object]) -> str:
    return urlencode(list(_query_pairs(params))) if params else ""


def _query_pairs(params: Mapping[str, object]) -> Iterator[tuple[str, str]]:
    for name, value in params.items():
        for item in value if isinstance(value, list | tuple) else [value]:
            if item is not None:
                yield str(name), ("true" if item else "false") if isinstance(item, bool) else str(item)


def _add_query(url: str, query: str) -> str:
    if not query:
        return url
    address, _, _fragment = url.partition("#")
    return f"{address}{'&' if '?' in address else '?'}{query}"
