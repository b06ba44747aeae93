"""The check of a request's Host and Origin: web pages send events only if the settings allow it.

The owner of any web page can make its name mean this machine (DNS rebinding). The browser then takes the
collector for a part of that site, and asks for no permission. But the request still names that site.
"""

import functools
import ipaddress
from urllib.parse import urlsplit

from ondatra_dagster.collector.http_messages import (
    CLOSE_HEADERS,
    CollectorResponse,
    RequestHeaders,
    RequestRejectedError,
    error_response,
)
from ondatra_dagster.project.settings.settings import EventSettings

MAX_SHOWN_LENGTH = 100  # characters of a Host or an Origin in an answer


class HostCheck:
    """The names under which requests may reach the collector.

    With a token every name is allowed unless `events.hosts` lists some: a web page doesn't know the token.
    """

    def __init__(self, settings: EventSettings, *, has_token: bool) -> None:
        self._hosts = frozenset(map(host_name, settings.hosts))
        self._allows_all = has_token and not self._hosts
        self._is_allowed = functools.lru_cache(maxsize=256)(self._is_name_allowed)

    def check_host(self, headers: RequestHeaders) -> None:
        """Refuse a request for another host."""
        host = headers.get(b"host", b"")
        if not self._is_allowed(host):
            raise RequestRejectedError(_wrong_host_response(host.decode("latin-1")))

    def _is_name_allowed(self, host: bytes) -> bool:
        name = host_name(host.decode("latin-1"))
        return self._allows_all or is_loopback(name) or name in self._hosts


def check_origin(headers: RequestHeaders, settings: EventSettings) -> None:
    """Refuse events of a web page whose origin isn't in the settings; programs send no Origin."""
    origin = headers.get(b"origin")
    if origin is None or settings.allows_any_origin or origin.decode("latin-1") in settings.origins:
        return
    shown = origin.decode("latin-1")[:MAX_SHOWN_LENGTH]
    sentence = f"pages of {shown} may not send events; add it to the setting events.origins if they should"
    raise RequestRejectedError(error_response(403, "origin", sentence))


def is_loopback(host: str) -> bool:
    """Return whether a host's name or address can only mean this machine."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def host_name(host: str) -> str:
    """Return the name or address in a Host header in small letters, without its port; "" if there is none."""
    try:
        parts = urlsplit(f"//{host}")
        is_host_only = parts.netloc == host and "@" not in host
        return (parts.hostname or "").removesuffix(".") if is_host_only else ""
    except ValueError:  # a bracket without its other half
        return ""


def _wrong_host_response(host: str) -> CollectorResponse:
    what = (
        f"requests for the host {host[:MAX_SHOWN_LENGTH]!r} aren't taken" if host else "the request has no Host header"
    )
    how = "use 127.0.0.1 or localhost, or add the name to the setting events.hosts, without a port"
    return error_response(421, "host", f"{what}; {how}", CLOSE_HEADERS)
