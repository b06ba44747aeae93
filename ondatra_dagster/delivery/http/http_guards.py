"""Which addresses a sink may call, judged on values: nothing here opens a connection.

Credentials go to base_url's host only, no other host is called unless allow_hosts names it, and no path can
climb out of what the sink's author wrote, whatever a row's value holds.
"""

import re
from collections.abc import Collection
from typing import NamedTuple
from urllib.parse import unquote

DEFAULT_PORTS = {"http": 80, "https": 443}
# a name that was quoted twice is unquoted as often as servers may do it
_UNQUOTE_ROUNDS = 4
# what some servers cut off a segment before they look at it
_TAIL = re.compile(r"[;?#].*", re.DOTALL)
_ABSOLUTE = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:|//|\\")


class Origin(NamedTuple):
    """The place that an address names."""

    scheme: str
    host: str
    port: int

    def __str__(self) -> str:
        port = "" if self.port == DEFAULT_PORTS.get(self.scheme) else f":{self.port}"
        return f"{self.scheme}://{self.host}{port}"


def is_absolute(url: str) -> bool:
    """Whether the address names a host of its own."""
    return bool(_ABSOLUTE.match(url))


def join(base_url: str, path: str) -> str:
    """The address below base_url; base_url's own path stays in front."""
    if path.startswith("?") or not path:
        return base_url + path
    return f"{base_url.rstrip('/')}/{path.lstrip('/')}"


def has_dot_segments(url: str) -> bool:
    """Whether a part of the path is `.` or `..`, plain or encoded in any way a server may undo."""
    path = url.split("?", 1)[0].split("#", 1)[0]
    for _ in range(_UNQUOTE_ROUNDS):
        if any(_TAIL.sub("", segment) in {".", ".."} for segment in re.split(r"[/\\]", path)):
            return True
        path = unquote(path)
    return False


def is_allowed(origin: Origin, allow_hosts: Collection[str]) -> bool:
    """Whether allow_hosts names the place: `host` on the usual port, or `host:port`."""
    if f"{origin.host}:{origin.port}" in allow_hosts:
        return True
    return origin.port == DEFAULT_PORTS.get(origin.scheme) and origin.host in allow_hosts
