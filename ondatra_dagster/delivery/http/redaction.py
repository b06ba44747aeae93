"""The masking of secrets: every text on its way to a log, a message, a record or a page goes through here.

By value, not by name: a secret is found wherever it is, quoted up to four times, with lines broken or joined,
in base64, in hex, and with its end cut off. The page on reliability lists what isn't found.
"""

import re
from collections.abc import Iterable, Iterator

from ondatra_dagster.delivery.http.decoded_text import DecodedText
from ondatra_dagster.delivery.http.secret_spellings import (
    DEPTH,
    SHORTEST_BEGINNING,
    Spelling,
    secrets_in,
    spellings,
)

MASK = "***"
# after what is left of a secret: an escape that is cut off, too, and then the text's end, dots or a quote
_CUT = re.compile(
    r"(?:%[0-9A-Fa-f]?|\\[uUx]?[0-9A-Fa-f]{0,7}|&[#A-Za-z0-9]{0,31}|\ufffd)?"
    r"""(?:\s*(?:\Z|…|\.\.\.)|["'`”\r\n])"""
)


class Redactor:
    """Knows the secrets of one sync. Threads may share it."""

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        self._known: set[str] = set()
        self._long: tuple[Spelling, ...] = ()  # searched in texts without blanks
        self._short: tuple[Spelling, ...] = ()
        for secret in secrets:
            self.learn(secret)

    def __repr__(self) -> str:
        return f"Redactor({len(self._known)} secrets)"

    def learn(self, secret: str) -> None:
        """Mask this value from now on, also without the line end that a file had after it."""
        new = set(secrets_in(secret)) - self._known
        if not new:
            return
        found = {spelling: None for value in new for spelling in spellings(value)}
        # new tuples, so that other threads never see one that is being changed
        self._long += tuple(each for each in found if len(each.text) >= SHORTEST_BEGINNING)
        self._short += tuple(each for each in found if len(each.text) < SHORTEST_BEGINNING)
        self._known |= new

    def redact(self, text: str) -> str:
        """Return the text with each secret masked."""
        return _masked(text, sorted(self._spans(text))) if self._long or self._short else text

    def _spans(self, text: str) -> Iterator[tuple[int, int]]:
        """Yield where in the text secrets are; the spans may overlap."""
        layer = DecodedText(text)
        for _ in range(DEPTH + 1):
            plain = layer.text.replace("+", " ")
            for secret in self._short:
                if secret.seed in plain:
                    yield from (layer.original_span(*place) for place in _places(plain, secret.text))
            squeezed = layer.without_blanks()
            for secret in self._long:
                if secret.seed in squeezed.text:
                    yield from (layer.original_span(*place) for place in _cut_places(squeezed, layer, secret))
            decoded = layer.decoded()
            if decoded.text == layer.text:
                return
            layer = decoded


def _places(text: str, wanted: str) -> Iterator[tuple[int, int]]:
    start = text.find(wanted)
    while start >= 0:
        yield start, start + len(wanted)
        start = text.find(wanted, start + len(wanted))


def _cut_places(squeezed: DecodedText, layer: DecodedText, secret: Spelling) -> Iterator[tuple[int, int]]:
    """Yield where in the layer a secret is: whole, more than half of it, or cut off."""
    found = squeezed.text.find(secret.seed)
    while found >= 0:
        length = _common_length(squeezed.text, found, secret)
        start, end = squeezed.source_span(found, found + length)
        if length == len(secret.text):
            yield _with_edges(layer.text, start, end, secret)
        elif length != secret.word and (2 * length >= len(secret.text) or _CUT.match(layer.text, end)):
            yield start, end
        else:
            length = 1
        found = squeezed.text.find(secret.seed, found + length)


def _with_edges(text: str, start: int, end: int, secret: Spelling) -> tuple[int, int]:
    """Return the span with the plus signs and spaces at the secret's ends."""
    first, last = max(start - secret.before, 0), end + secret.after
    before, after = text[first:start], text[end:last]
    return start - len(before) + len(before.rstrip("+ ")), end + len(after) - len(after.lstrip("+ "))


def _common_length(text: str, start: int, secret: Spelling) -> int:
    """Return how many characters of the secret are in the text from there on; the seed is."""
    if text.startswith(secret.text, start):
        return len(secret.text)
    least, most = len(secret.seed), len(secret.text) - 1
    while least < most:
        middle = (least + most + 1) // 2
        if text.startswith(secret.text[:middle], start):
            least = middle
        else:
            most = middle - 1
    return least


def _masked(text: str, spans: list[tuple[int, int]]) -> str:
    """Return the text with the mask in place of each span, or of several that overlap."""
    pieces, done, last = [], 0, -1
    for start, end in spans:
        if start >= last:
            pieces += [text[done:start], MASK]
        last = done = max(end, last)
    return "".join([*pieces, text[done:]])
