"""The masking of secrets: every text on its way to a log, a message, a record or a page goes through here.

By value, not by name: a secret is found wherever it is, quoted up to four times, with lines broken or joined,
in base64, in hex, and with its end cut off. The page on reliability lists what isn't found.
"""

import re
from collections.abc import Iterable, Iterator

from ondatra_dagster.delivery.http.escape_decoding import DecodedText
from ondatra_dagster.delivery.http.secret_encodings import (
    MAX_QUOTING_DEPTH,
    MIN_PREFIX_LENGTH,
    SecretEncoding,
    find_secrets,
    list_encodings,
)

MASK = "***"
# after what is left of a secret: an escape that is cut off, too, and then the text's end, dots or a quote
_TRUNCATION = re.compile(
    r"(?:%[0-9A-Fa-f]?|\\[uUx]?[0-9A-Fa-f]{0,7}|&[#A-Za-z0-9]{0,31}|\ufffd)?"
    r"""(?:\s*(?:\Z|…|\.\.\.)|["'`”\r\n])"""
)


class Redactor:
    """Knows the secrets of one sync. Threads may share it."""

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        self._secrets: set[str] = set()
        self._long_encodings: tuple[SecretEncoding, ...] = ()  # searched in texts without blanks
        self._short_encodings: tuple[SecretEncoding, ...] = ()
        for secret in secrets:
            self.add_secret(secret)

    def __repr__(self) -> str:
        return f"Redactor({len(self._secrets)} secrets)"

    def add_secret(self, secret: str) -> None:
        """Mask this value from now on, also without the line end that a file had after it."""
        new = set(find_secrets(secret)) - self._secrets
        if not new:
            return
        found = {spelling: None for value in new for spelling in list_encodings(value)}
        # new tuples, so that other threads never see one that is being changed
        self._long_encodings += tuple(each for each in found if len(each.text) >= MIN_PREFIX_LENGTH)
        self._short_encodings += tuple(each for each in found if len(each.text) < MIN_PREFIX_LENGTH)
        self._secrets |= new

    def redact(self, text: str) -> str:
        """Return the text with each secret masked."""
        return (
            _mask_spans(text, sorted(self._secret_spans(text)))
            if self._long_encodings or self._short_encodings
            else text
        )

    def _secret_spans(self, text: str) -> Iterator[tuple[int, int]]:
        """Yield where in the text secrets are; the spans may overlap."""
        layer = DecodedText(text)
        for _ in range(MAX_QUOTING_DEPTH + 1):
            plain = layer.text.replace("+", " ")
            for secret in self._short_encodings:
                if secret.search_prefix in plain:
                    yield from (layer.original_span(*place) for place in _find_whole(plain, secret.text))
            squeezed = layer.remove_blanks()
            for secret in self._long_encodings:
                if secret.search_prefix in squeezed.text:
                    yield from (layer.original_span(*place) for place in _find_truncated(squeezed, layer, secret))
            decoded = layer.decode_once()
            if decoded.text == layer.text:
                return
            layer = decoded


def _find_whole(text: str, wanted: str) -> Iterator[tuple[int, int]]:
    start = text.find(wanted)
    while start >= 0:
        yield start, start + len(wanted)
        start = text.find(wanted, start + len(wanted))


def _find_truncated(squeezed: DecodedText, layer: DecodedText, secret: SecretEncoding) -> Iterator[tuple[int, int]]:
    """Yield where in the layer a secret is: whole, more than half of it, or cut off."""
    found = squeezed.text.find(secret.search_prefix)
    while found >= 0:
        length = _common_length(squeezed.text, found, secret)
        start, end = squeezed.source_span(found, found + length)
        if length == len(secret.text):
            yield _extend_to_edges(layer.text, start, end, secret)
        elif length != secret.word_length and (2 * length >= len(secret.text) or _TRUNCATION.match(layer.text, end)):
            yield start, end
        else:
            length = 1
        found = squeezed.text.find(secret.search_prefix, found + length)


def _extend_to_edges(text: str, start: int, end: int, secret: SecretEncoding) -> tuple[int, int]:
    """Return the span with the plus signs and spaces at the secret's ends."""
    first, last = max(start - secret.blanks_before, 0), end + secret.blanks_after
    before, after = text[first:start], text[end:last]
    return start - len(before) + len(before.rstrip("+ ")), end + len(after) - len(after.lstrip("+ "))


def _common_length(text: str, start: int, secret: SecretEncoding) -> int:
    """Return how many characters of the secret are in the text from there on; the seed is."""
    if text.startswith(secret.text, start):
        return len(secret.text)
    least, most = len(secret.search_prefix), len(secret.text) - 1
    while least < most:
        middle = (least + most + 1) // 2
        if text.startswith(secret.text[:middle], start):
            least = middle
        else:
            most = middle - 1
    return least


def _mask_spans(text: str, spans: list[tuple[int, int]]) -> str:
    """Return the text with the mask in place of each span, or of several that overlap."""
    pieces, done, last = [], 0, -1
    for start, end in spans:
        if start >= last:
            pieces += [text[done:start], MASK]
        last = done = max(end, last)
    return "".join([*pieces, text[done:]])
