"""A text as programs read it: escapes and entities decoded, with the place of each letter in the original.

An escape is `%2F`, `&#47;`, `&sol;`, `\\u002f`, `\\x2f` or `\\/`. Each pattern here is linear in the text.
"""

import bisect
import functools
import html.entities
import re
from array import array
from collections.abc import Callable

_PERCENT_ESCAPE = (
    r"%[0-7][0-9A-Fa-f]"
    r"|%[CDcd][0-9A-Fa-f]%[89ABab][0-9A-Fa-f]"
    r"|%[Ee][0-9A-Fa-f](?:%[89ABab][0-9A-Fa-f]){2}"
    r"|%[Ff][0-7](?:%[89ABab][0-9A-Fa-f]){3}"
    r"|%[0-9A-Fa-f]{2}"
)
_HEX = "[0-9A-Fa-f]"
_BACKSLASH_ESCAPE = (
    rf"\\u[Dd][89ABab]{_HEX}{{2}}\\u[Dd][C-Fc-f]{_HEX}{{2}}"
    rf"|\\u{_HEX}{{4}}|\\U{_HEX}{{8}}|\\x{_HEX}{{2}}|\\u\{{{_HEX}{{1,6}}\}}"
    r"""|\\["'/\\abfnrtv]"""
)
_ENTITY = rf"&#[0-9]{{1,9}};|&#[xX]{_HEX}{{1,8}};|&[A-Za-z][A-Za-z0-9]{{1,31}};"
ESCAPE = re.compile(f"{_PERCENT_ESCAPE}|{_BACKSLASH_ESCAPE}|{_ENTITY}")
# White space, and "+", which may be a space. Secrets and texts are compared without them, so it doesn't matter
# where base64 and PEM break lines.
BLANKS = re.compile(r"[\s+]+")
_CONTROL_LETTERS = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}


class DecodedText:
    """A decoded text, with the text that it was decoded from (its source)."""

    def __init__(self, text: str, source: "DecodedText | None" = None, escapes: re.Pattern[str] = ESCAPE):
        self.text = text
        self._source = source
        self._escapes = escapes

    def decode_once(self) -> "DecodedText":
        """Return this text with each escape decoded once; this text is the result's source."""
        return DecodedText(decode_escapes(self.text), self, ESCAPE)

    def remove_blanks(self) -> "DecodedText":
        """Return this text without white space and plus signs; this text is the result's source."""
        return DecodedText(BLANKS.sub("", self.text), self, BLANKS)

    def source_span(self, start: int, end: int) -> tuple[int, int]:
        """Return the span of the source from which a span of this text was decoded. Neither span is empty."""
        return self._source_offset(start), self._source_offset(end - 1, is_end=True)

    def original_span(self, start: int, end: int) -> tuple[int, int]:
        """Return the span of the original text from which a span of this text was decoded. Neither span is empty."""
        layer = self
        while layer._source is not None:
            start, end = layer.source_span(start, end)
            layer = layer._source
        return start, end

    def _source_offset(self, position: int, *, is_end: bool = False) -> int:
        """Return where the character at `position` starts in the source or, with `is_end`, where it ends.

        For a decoded escape, return the start or end of the whole escape, because an escape is masked as a whole.
        """
        positions, origins = self._offsets
        index = bisect.bisect_right(positions, position) - 1
        if index % 2:  # an escape; the text between two escapes was copied
            return origins[index + is_end]
        return origins[index] + position - positions[index] + is_end

    @functools.cached_property
    def _offsets(self) -> "tuple[array[int], array[int]]":
        """Return where copied texts and escapes start, in turn: in this text, and in the source."""
        positions, origins = array("q", [0]), array("q", [0])
        decode_escape: Callable[[re.Match[str]], str] = _decode_match if self._escapes is ESCAPE else lambda _: ""
        position = copied_end = 0
        for match in self._escapes.finditer(self._source.text if self._source else ""):
            position += match.start() - copied_end
            positions.append(position)
            origins.append(match.start())
            position += len(decode_escape(match))
            copied_end = match.end()
            positions.append(position)
            origins.append(copied_end)
        return positions, origins


def decode_escapes(text: str) -> str:
    """Return the text with each escape decoded once."""
    return ESCAPE.sub(_decode_match, text)


def _decode_match(match: re.Match[str]) -> str:
    """Return the character that an escape encodes, or the escape itself if it encodes none."""
    return _decode_escape(match[0])


@functools.lru_cache(maxsize=4096)
def _decode_escape(escape: str) -> str:
    kind = escape[0]
    if kind == "%":
        octets = bytes.fromhex(escape.replace("%", ""))
        return octets.decode(errors="ignore") or octets.decode("latin-1")
    if kind == "&" and escape[1] != "#":
        return html.entities.html5.get(escape[1:], escape)
    if kind == "&":
        return _character_of(int(escape[3:-1], 16) if escape[2] in "xX" else int(escape[2:-1]), escape)
    if len(escape) == len(r"\n"):
        return _CONTROL_LETTERS.get(escape[1], escape[1])
    if len(escape) == len(r"\ud83d\ude00") and escape[1] == "u" and escape[6] == "\\":
        return bytes.fromhex(escape[2:6] + escape[8:]).decode("utf-16-be")
    return _character_of(int(escape[2:].strip("{}"), 16), escape)


def _character_of(number: int, escape: str) -> str:
    return chr(number) if 0 < number <= 0x10FFFF else escape
