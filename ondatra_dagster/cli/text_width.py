"""The width of a text in terminal columns: a wide letter takes two, a mark on a letter none.

All code that pads or cuts text for a terminal calls this module. Control characters are replaced before.
"""

import functools
import unicodedata

WIDE_CLASSES = ("W", "F")  # of Unicode's East Asian widths: CJK, emoji, full-width forms
ZERO_WIDTH_CATEGORIES = ("Mn", "Me", "Cf")  # marks that stand on the letter before, and what only joins or directs
FIRST_JOINING_LETTER, LAST_JOINING_LETTER = (
    "\u1160",
    "\u11ff",
)  # Korean vowels and ends: they go into the letter before
ELLIPSIS = "…"


def display_width(text: str) -> int:
    """Return how many columns the text takes."""
    return len(text) if text.isascii() else sum(map(_letter_width, text))


def pad_right(text: str, width: int) -> str:
    """Pad the text with blanks on its right."""
    return text + " " * (width - display_width(text))


def pad_left(text: str, width: int) -> str:
    """Pad the text with blanks on its left."""
    return " " * (width - display_width(text)) + text


def shorten_text(text: str, width: int) -> str:
    """Cut a text that is wider, and end it with an ellipsis."""
    return text if display_width(text) <= width else cut_text(text, width - len(ELLIPSIS)) + ELLIPSIS


def cut_text(text: str, width: int) -> str:
    """Return as much of the text as fits; no letter loses its marks."""
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
    if unicodedata.category(letter) in ZERO_WIDTH_CATEGORIES or FIRST_JOINING_LETTER <= letter <= LAST_JOINING_LETTER:
        return 0
    return 2 if unicodedata.east_asian_width(letter) in WIDE_CLASSES else 1
