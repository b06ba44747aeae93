"""The policy on the addresses that a sink may call; nothing here opens a connection.

Credentials go to base_url's host only, no other host is called unless allow_hosts names it, and no path can
climb out of what the sink's author wrote, whatever a row's value holds.
"""

import re
import unicodedata
from collections.abc import Collection
from typing import NamedTuple
from urllib.parse import unquote

DEFAULT_PORTS = {"http": 80, "https": 443}
# a name that was quoted twice is unquoted as often as servers may do it
_UNQUOTE_ROUNDS = 4
# what some servers cut off a segment before they look at it
_SEGMENT_TAIL = re.compile(r"[;?#\x00].*", re.DOTALL)
# a character as IIS wrote it, and one below 128 in more bytes of UTF-8 than it needs
_IIS_ESCAPE = re.compile(r"%u([0-9a-f]{4})", re.IGNORECASE)
_OVERLONG_ESCAPE = re.compile(r"%(?:c|e0%8|f0%80%8|f8%80%80%8|fc%80%80%80%8)([01])%([0-9a-f]{2})", re.IGNORECASE)
_ABSOLUTE_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:|//|\\")
# what Windows makes slashes of, next to the full-width ones that NFKC knows
_SLASHES = str.maketrans("\u2044\u2215\u2216", "//\\")


class UrlOrigin(NamedTuple):
    """The place that an address names."""

    scheme: str
    host: str
    port: int

    def __str__(self) -> str:
        port = "" if self.port == DEFAULT_PORTS.get(self.scheme) else f":{self.port}"
        return f"{self.scheme}://{self.host}{port}"


def is_absolute_url(url: str) -> bool:
    """Whether the address names a host of its own."""
    return bool(_ABSOLUTE_URL.match(url))


def join_url(base_url: str, path: str) -> str:
    """The address below base_url; base_url's own path stays in front."""
    if path.startswith("?") or not path:
        return base_url + path
    return f"{base_url.rstrip('/')}/{path.lstrip('/')}"


def has_dot_segments(url: str) -> bool:
    """Return whether a part of the path is `.` or `..`, plain or in any spelling that a server may undo."""
    path = url.split("?", 1)[0].split("#", 1)[0]
    for _ in range(_UNQUOTE_ROUNDS):
        path = unicodedata.normalize("NFKC", path).translate(_SLASHES)
        if any(_strip_tail(segment) in {".", ".."} for segment in re.split(r"[/\\]", path)):
            return True
        if "%" not in path:
            return False
        path = unquote(
            _OVERLONG_ESCAPE.sub(_decode_overlong, _IIS_ESCAPE.sub(lambda found: chr(int(found[1], 16)), path))
        )
    return False


def _strip_tail(segment: str) -> str:
    """Return what a careless server looks at: nothing invisible, and nothing from a delimiter on."""
    return "".join(filter(str.isprintable, _SEGMENT_TAIL.sub("", segment))).replace(" ", "")


def _decode_overlong(found: re.Match[str]) -> str:
    return chr(int(found[1]) << 6 | int(found[2], 16) & 0x3F)


def is_allowed_host(origin: UrlOrigin, allow_hosts: Collection[str]) -> bool:
    """Whether allow_hosts names the place: `host` on the usual port, or `host:port`."""
    if f"{origin.host}:{origin.port}" in allow_hosts:
        return True
    return origin.port == DEFAULT_PORTS.get(origin.scheme) and origin.host in allow_hosts
