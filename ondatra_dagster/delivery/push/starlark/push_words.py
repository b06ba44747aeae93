"""What stands behind the words of prelude.star that need no network: digests, base64, times, quoting.

Pure functions of what the .star file hands over; WrongUseError becomes an error of its line.
"""

import base64
import hashlib
import hmac
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote

LONGEST_QUOTED = 1_000_000  # no address is longer, and 100 MB would take a minute
LONGEST_PATTERN = 1_000


class WrongUseError(Exception):
    """The .star file uses a word as it can't be used."""


def named(value: object) -> str:
    """What a value is, without the value: it may hold secrets, and a part of one can't be masked."""
    return f"a value of type {type(value).__name__}"


def _text(value: object, word: str) -> str:
    if not isinstance(value, str):
        raise WrongUseError(f"{word} takes a text, not {named(value)}")
    return value


def _encoded(digest: bytes, encoding: object) -> str:
    if encoding == "hex":
        return digest.hex()
    if encoding == "base64":
        return base64.b64encode(digest).decode()
    raise WrongUseError(f"encoding is {encoding!r}; it can be 'hex' or 'base64'")


def digest(name: str, text: object, encoding: object) -> str:
    """A digest of the text's UTF-8."""
    return _encoded(hashlib.new(name, _text(text, name).encode(), usedforsecurity=False).digest(), encoding)


def hmac_sha256(key: object, text: object, encoding: object) -> str:
    """The text's signature."""
    word = "hmac_sha256"
    return _encoded(hmac.digest(_text(key, word).encode(), _text(text, word).encode(), "sha256"), encoding)


def base64_encode(text: object) -> str:
    return base64.b64encode(_text(text, "base64.encode").encode()).decode()


def base64_decode(text: object) -> str:
    """The text that was encoded; one that holds bytes can't be had here."""
    try:
        return base64.b64decode(_text(text, "base64.decode"), validate=True).decode()
    except ValueError as error:  # what isn't ASCII, isn't base64, or isn't UTF-8 then
        raise WrongUseError(f"base64.decode: {error}") from error


def url_quote(text: str, safe: object) -> str:
    """Return the text as a part of an address, its slashes quoted too."""
    if len(text) > LONGEST_QUOTED:
        raise WrongUseError(f"url_quote takes a text of at most {LONGEST_QUOTED:,} characters")
    return quote(text, safe=_text(safe, "url_quote"))


def now() -> str:
    return datetime.now(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


def unix() -> float:
    return datetime.now(UTC).timestamp()


def parse_time(text: object) -> float:
    """Seconds since 1970 of an ISO 8601 time; without an offset it is UTC."""
    try:
        moment = datetime.fromisoformat(_text(text, "time.parse"))
    except ValueError as error:
        raise WrongUseError(f"time.parse: {error}") from error
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


def format_time(seconds: object, pattern: object = "%Y-%m-%dT%H:%M:%SZ") -> str:
    """Seconds since 1970 as text, in UTC."""
    if not isinstance(seconds, int | float):
        raise WrongUseError(f"time.format takes seconds since 1970, not {named(seconds)}")
    if len(_text(pattern, "time.format")) > LONGEST_PATTERN:
        raise WrongUseError(f"time.format takes a pattern of at most {LONGEST_PATTERN:,} characters")
    try:
        return datetime.fromtimestamp(seconds, UTC).strftime(str(pattern))
    except (ValueError, OverflowError, OSError) as error:
        raise WrongUseError(f"time.format: {error}") from error


WORDS: Mapping[str, Callable[..., Any]] = {
    "host_digest": digest,
    "host_hmac_sha256": hmac_sha256,
    "host_base64_encode": base64_encode,
    "host_base64_decode": base64_decode,
    "host_url_quote": url_quote,
    "host_now": now,
    "host_unix": unix,
    "host_parse_time": parse_time,
    "host_format_time": format_time,
}
