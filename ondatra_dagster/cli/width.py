"""How many columns of a terminal a text takes: a wide letter takes two, a mark on a letter none.

Whoever pads or cuts what a terminal shows does it here. Control characters are no matter of this room: they
are made harmless before.
"""

import functools
import unicodedata

WIDE = ("W", "F")  # of Unicode's East Asian widths: CJK, emoji, full-width forms
NO_LETTER = ("Mn", "Me", "Cf")  # marks that stand on the letter before, and what only joins or directs
FIRST_JOINED, LAST_JOINED = "\u1160", "\u11ff"  # Korean vowels and ends: they go into the letter before
CUT = "…"


def width_of(text: str) -> int:
    """How many columns the text takes."""
    return len(text) if text.isascii() else sum(map(_letter_width, text))


def padded(text: str, width: int) -> str:
    """The text, with blanks behind it up to the width."""
    return text + " " * (width - width_of(text))


def padded_left(text: str, width: int) -> str:
    """The text, with the blanks before it."""
    return " " * (width - width_of(text)) + text


def shorter(text: str, width: int) -> str:
    """The text, cut off where it is wider."""
    return text if width_of(text) <= width else beginning(text, width - len(CUT)) + CUT


def beginning(text: str, width: int) -> str:
    """As much of the text as has room; no letter loses its marks."""
    if text.isascii():
        return text[:width]
    left = width
    for place, letter in enumerate(text):
        left -= _letter_width(letter)
        if left < 0:
            return text[:place]
    return text


@functools.lru_cache(maxsize=4096)
def _letter_width(letter: str) -> int:
    if unicodedata.category(letter) in NO_LETTER or FIRST_JOINED <= letter <= LAST_JOINED:
        return 0
    return 2 if unicodedata.east_asian_width(letter) in WIDE else 1
