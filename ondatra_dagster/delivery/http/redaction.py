"""Secrets never leave: every text on its way to a log, a message, a record or a page goes through here.

By value, not by name: a secret is found wherever it stands, also in base64, quoted for an address, in JSON or
in HTML.
"""

import base64
import html
import json
import re
from collections.abc import Iterable, Iterator
from urllib.parse import quote_plus

MASK = "***"
# what only some write otherwise: PHP its slashes, older XML its apostrophes
_SOMETIMES = {"/": {r"\/"}, "'": {r"\'", "&apos;"}}

SHORTEST = 4  # a shorter value isn't a secret, and masking it would make every message unreadable


class Redactor:
    """Knows the secrets of one sync."""

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        self._forms: dict[str, int] = {}  # patterns, and the length of what they find
        self._known: set[str] = set()
        self._pattern: re.Pattern[str] | None = None
        for secret in secrets:
            self.learn(secret)

    def __repr__(self) -> str:
        return f"Redactor({len(self._forms)} forms)"

    def learn(self, secret: str) -> None:
        """From now on this value is masked too, also without the line end that a file had after it."""
        for value in {secret, secret.strip()} - self._known:
            if len(value) >= SHORTEST:
                self._known.add(value)
                # a new dict and a new pattern, so that other threads never see one that is being changed
                self._forms = self._forms | _forms(value)
        longest_first = sorted(self._forms, key=self._forms.__getitem__, reverse=True)
        self._pattern = re.compile("|".join(longest_first)) if self._forms else None

    def redact(self, text: str) -> str:
        """The text with each secret masked."""
        return self._pattern.sub(MASK, text) if self._pattern else text


def _forms(secret: str) -> dict[str, int]:
    """Patterns of the secret in whatever it may stand, and how long it is there."""
    packed = {re.escape(form): len(form) for form in _base64_forms(secret.encode())}
    return {**packed, "".join(map(_ways, secret)): len(secret), re.escape(secret): len(secret)}


def _ways(letter: str) -> str:
    """A letter as addresses, JSON, HTML and Python write it: a text may be of several of them at once."""
    if letter.isascii() and letter.isalnum():
        return letter
    plain = {letter, quote_plus(letter), repr(letter)[1:-1], json.dumps(letter)[1:-1], html.escape(letter)}
    plain |= _SOMETIMES.get(letter, set())
    return "(?>" + "|".join([*_numbered(letter), *map(re.escape, sorted(plain, key=len, reverse=True))]) + ")"


def _numbered(letter: str) -> Iterator[str]:
    """By its number, in hexadecimal digits of either case."""
    yield "(?i:" + "".join(f"%{byte:02x}" for byte in letter.encode()) + ")"
    units = letter.encode("utf-16-be", errors="surrogatepass")
    yield "(?i:" + "".join(rf"\\u{units[at]:02x}{units[at + 1]:02x}" for at in range(0, len(units), 2)) + ")"
    yield f"(?i:&#0*{ord(letter)};|&#x0*{ord(letter):x};)"


def _base64_forms(secret: bytes) -> Iterable[str]:
    """How the secret looks inside of the base64 of something longer, at each of its three offsets.

    Basic credentials are such: the base64 of user:password. The characters at its ends, which stand for its
    neighbours too, are left out.
    """
    for offset in range(3):
        padded = bytes(offset) + secret
        inner = slice((offset * 8 + 5) // 6, len(padded) * 8 // 6)
        for encode in (base64.b64encode, base64.urlsafe_b64encode):
            form = encode(padded).decode()[inner]
            if len(form) > SHORTEST:  # a shorter one may be part of any text
                yield form
