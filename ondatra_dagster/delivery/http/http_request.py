"""From what a push function asks for to a request that may go out: address, body, headers, credentials.

Here is decided who gets the credentials. Sending, retrying and reading answers are in http_api.
"""

import base64
import dataclasses
import functools
import re
from collections.abc import Callable, Iterator, Mapping
from urllib.parse import urlencode

import httpx

from ondatra_dagster.delivery.http.http_guards import (
    DEFAULT_PORTS,
    Origin,
    has_dot_segments,
    is_absolute,
    is_allowed,
    join,
)
from ondatra_dagster.delivery.journal import request_digest
from ondatra_dagster.delivery.push.push_config import (
    Auth,
    BasicAuth,
    BearerAuth,
    HeaderAuth,
    ParamAuth,
    PushConfig,
    Text,
    Variable,
)

Headers = dict[bytes, bytes]

ADDRESSES_KEPT = 256

# only what http_api unpacks itself, under its own limit
_DEFAULT_HEADERS: Headers = {b"user-agent": b"ondatra", b"accept": b"*/*", b"accept-encoding": b"gzip"}
_HEADER_NAME = re.compile(rb"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
# control characters but the tab, and the line ends of Unicode: some servers split lines at these too
_NOT_IN_HEADERS = re.compile("[\x00-\x08\x0a-\x1f\x7f-\x9f\u2028\u2029]")
_LONGEST_SECONDS = 86_400
# what frames the message is the client's business: a wrong one would smuggle a second request
_OWN_HEADERS = frozenset({b"content-length", b"transfer-encoding", b"connection", b"host"})


class RefusedError(Exception):
    """The request can't or mustn't be sent; nothing has gone out."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """What a push function asks for."""

    method: str
    url: str
    json: str | None = None  # the body as JSON text
    data: object = None  # a text, or a dict to be sent as a form
    params: object = None
    headers: object = None
    timeout: object = None  # seconds


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """A request ready to go."""

    method: str
    # no credentials into a repr
    url: httpx.URL = dataclasses.field(repr=False)
    headers: Headers = dataclasses.field(repr=False)
    content: bytes = dataclasses.field(repr=False)
    digest: str  # made without credentials
    is_home: bool  # goes to base_url's host
    timeout_seconds: float

    def with_header(self, name: bytes, value: bytes) -> "Prepared":
        """With one header more, unless it is there."""
        return dataclasses.replace(self, headers={name: value, **self.headers})


class RequestBuilder:
    """Makes the requests of one sink; holds its credentials."""

    def __init__(self, config: PushConfig, secret: Callable[[Variable], str]) -> None:
        self._base_url = config.base_url
        self._timeout_seconds = config.timeout_seconds
        self._home = _origin(httpx.URL(config.base_url)) if config.base_url else None
        self._allow_hosts = frozenset(re.sub(r"[\[\]]", "", host.lower()) for host in config.allow_hosts)
        given = {name: _resolve(value, secret) for name, value in config.headers}
        self._home_headers = _DEFAULT_HEADERS | _encoded({**_auth_headers(config.auth, secret), **given})
        self._home_query = ""
        if isinstance(config.auth, ParamAuth):
            self._home_query = urlencode({config.auth.param: secret(config.auth.token)})
        # most push functions call few addresses, and reading one takes a tenth of a call
        self._judged = functools.lru_cache(maxsize=ADDRESSES_KEPT)(self._judge)

    def prepare(self, call: Call) -> Prepared:
        """The request, or RefusedError with the reason."""
        content, content_type = _body(call)
        text = _with_query(self._address(call.url), _query(_mapping("params", call.params)))
        url, is_home = self._judged(text)
        digest = request_digest(call.method, text, content)
        headers = dict(self._home_headers if is_home else _DEFAULT_HEADERS)
        if content_type:
            headers[b"content-type"] = content_type
        headers.update(_encoded(_mapping("headers", call.headers)))
        if is_home and self._home_query:
            url = _parse(_with_query(text, self._home_query))
        timeout = _seconds(call.timeout, self._timeout_seconds)
        return Prepared(
            method=call.method,
            url=url,
            headers=headers,
            content=content,
            digest=digest,
            is_home=is_home,
            timeout_seconds=timeout,
        )

    def form(self, url: str, fields: Mapping[str, str], headers: Mapping[str, str]) -> Prepared:
        """A form for an address that the sink's author wrote, without the sink's own headers."""
        address = _parse(self._address(url))
        content = urlencode(fields).encode()
        own = {"accept": "application/json", "content-type": "application/x-www-form-urlencoded", **headers}
        return Prepared(
            method="POST",
            url=address,
            headers=_DEFAULT_HEADERS | _encoded(own),
            content=content,
            digest="",
            is_home=_origin(address) == self._home,
            timeout_seconds=self._timeout_seconds,
        )

    def _address(self, url: str) -> str:
        if is_absolute(url):
            return url
        if self._base_url is None:
            raise RefusedError(f"{url!r} has no host; write it out, or give API a base_url")
        return join(self._base_url, url)

    def _judge(self, text: str) -> tuple[httpx.URL, bool]:
        url = _parse(text)
        return url, self._is_home(url, text)

    def _is_home(self, url: httpx.URL, text: str) -> bool:
        if has_dot_segments(text):
            raise RefusedError(f"{text!r} has a '.' or '..' in its path, which could lead out of base_url")
        if url.userinfo:
            raise RefusedError("the address holds a user name; credentials belong into API's auth")
        origin = _origin(url)
        if origin == self._home:
            return True
        if origin.scheme not in DEFAULT_PORTS or not is_allowed(origin, self._allow_hosts):
            home = f"base_url is {self._home}" if self._home else "there is no base_url"
            raise RefusedError(f"{origin} may not be called: {home}; allow_hosts names other hosts")
        return False


def _parse(text: str) -> httpx.URL:
    try:
        return httpx.URL(text)
    except httpx.InvalidURL as error:
        raise RefusedError(f"{text!r} is not an address: {error}; quote values with url_quote()") from error


def _origin(url: httpx.URL) -> Origin:
    return Origin(url.scheme, url.host, url.port or DEFAULT_PORTS.get(url.scheme, 0))


def _resolve(value: Text, secret: Callable[[Variable], str]) -> str:
    return secret(value) if isinstance(value, Variable) else value


def _auth_headers(auth: Auth | None, secret: Callable[[Variable], str]) -> Mapping[str, str]:
    match auth:
        case BearerAuth(token):
            return {"authorization": f"Bearer {secret(token)}"}
        case HeaderAuth(token, header):
            return {header: secret(token)}
        case BasicAuth(user, password):
            pair = f"{_resolve(user, secret)}:{secret(password)}"
            return {"authorization": f"Basic {base64.b64encode(pair.encode()).decode()}"}
    return {}


def _encoded(headers: Mapping[str, object]) -> Headers:
    encoded: Headers = {}
    for name, value in headers.items():
        if value is None:
            continue
        key, text = str(name).lower().encode(), str(value).strip(" \t\r\n")
        if not _HEADER_NAME.fullmatch(key) or key in _OWN_HEADERS:
            raise RefusedError(f"{name!r} can't be set as a header")
        if _NOT_IN_HEADERS.search(text):
            raise RefusedError(
                f"the value of the header {name!r} has a line break or another control character in it"
            )
        encoded[key] = text.encode()
    return encoded


def _body(call: Call) -> tuple[bytes, bytes | None]:
    if call.json is not None:
        if call.data is not None:
            raise RefusedError("a call takes json= or data=, not both")
        return call.json.encode(), b"application/json"
    if call.data is None:
        return b"", None
    if isinstance(call.data, Mapping):
        return _query(call.data).encode(), b"application/x-www-form-urlencoded"
    if isinstance(call.data, str):
        return call.data.encode(), b"text/plain; charset=utf-8"
    raise RefusedError(f"data= takes a text or a dict, not {type(call.data).__name__}")


def _mapping(name: str, value: object) -> Mapping[str, object]:
    if value is None:
        return {}
    if isinstance(value, Mapping):
        return value
    raise RefusedError(f"{name}= takes a dict, not {type(value).__name__}")


def _seconds(timeout: object, default: float) -> float:
    if timeout is None:
        return default
    if isinstance(timeout, int | float) and not isinstance(timeout, bool) and 0 < timeout < _LONGEST_SECONDS:
        return float(timeout)
    raise RefusedError(f"timeout= takes a number of seconds below {_LONGEST_SECONDS:,}, not {timeout!r}")


def _query(params: Mapping[str, object]) -> str:
    return urlencode(list(_pairs(params))) if params else ""


def _pairs(params: Mapping[str, object]) -> Iterator[tuple[str, str]]:
    for name, value in params.items():
        for each in value if isinstance(value, list | tuple) else [value]:
            if each is not None:
                yield str(name), ("true" if each else "false") if isinstance(each, bool) else str(each)


def _with_query(url: str, query: str) -> str:
    if not query:
        return url
    address, _, _fragment = url.partition("#")
    return f"{address}{'&' if '?' in address else '?'}{query}"
