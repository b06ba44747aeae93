"""The Maven repository that jars are fetched from, and whether the way to it is protected."""

import ipaddress
from collections.abc import Mapping
from urllib.parse import urlsplit

HTTP_ALLOWED = "on"


def is_repository(address: str) -> bool:
    """Return whether jars can be fetched from such an address: https, http or a folder of this machine."""
    parts = urlsplit(address)
    return (parts.scheme in ("https", "http") and bool(parts.hostname)) or parts.scheme == "file"


def needs_permission(chosen: Mapping[str, object]) -> bool:
    """Return whether these settings name a repository that others may listen to, and don't allow it."""
    parts = urlsplit(str(chosen.get("maven_mirror", "")))
    is_open = parts.scheme == "http" and not _is_this_machine(parts.hostname or "")
    return is_open and chosen.get("maven_http") != HTTP_ALLOWED


def _is_this_machine(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
