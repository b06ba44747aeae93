"""Secrets never leave: every text on its way to a log, a message, a record or a page goes through here.

By value, not by name: a secret is found wherever it stands, also in base64, quoted for an address or in JSON.
"""

import base64
import json
import re
from collections.abc import Iterable
from urllib.parse import quote, quote_plus

MASK = "***"
SHORTEST = 4  # a shorter value isn't a secret, and masking it would make every message unreadable


class Redactor:
    """Knows the secrets of one sync."""

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        self._forms: set[str] = set()
        self._pattern: re.Pattern[str] | None = None
        for secret in secrets:
            self.learn(secret)

    def __repr__(self) -> str:
        return f"Redactor({len(self._forms)} forms)"

    def learn(self, secret: str) -> None:
        """From now on this value is masked too."""
        if len(secret) < SHORTEST or secret in self._forms:
            return
        # a new set and a new pattern, so that other threads never see one that is being changed
        self._forms = self._forms | {form for form in _forms(secret) if len(form) >= SHORTEST}
        longest_first = sorted(self._forms, key=len, reverse=True)
        self._pattern = re.compile("|".join(map(re.escape, longest_first)))

    def redact(self, text: str) -> str:
        """The text with each secret masked."""
        return self._pattern.sub(MASK, text) if self._pattern else text


def _forms(secret: str) -> Iterable[str]:
    yield secret
    yield quote(secret, safe="")
    yield quote(secret)
    yield quote_plus(secret)
    yield json.dumps(secret, ensure_ascii=False)[1:-1]
    yield json.dumps(secret)[1:-1]
    yield repr(secret)[1:-1]
    yield from _base64_forms(secret.encode())


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
