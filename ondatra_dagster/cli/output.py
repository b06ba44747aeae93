"""The output of commands: text and tables for the user, JSON Lines on stdout for programs."""

import functools
import re
import shutil
import sys
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import click
import orjson

from ondatra_dagster.row_changes import Json

COLUMN_GAP = "  "
NULL_TEXT = "NULL"  # the text of a null; an empty text is a different value
ALLOWED_CONTROL_CHARACTERS = "\n\t"  # control characters that are printed unchanged
NUMBER_PATTERN = re.compile(r"-?\d+(\.\d+)?([eE][+-]?\d+)?|NULL|-?inf|nan|")


class ColumnShrink(NamedTuple):
    """A column of a table that may shrink to a width, but never below the width of its heading."""

    column: str
    min_width: int


def print_message(text: str) -> None:
    """Print a message for the user on stderr, because stdout is for programs."""
    click.echo(replace_control_characters(text), err=True)


def replace_control_characters(text: str, allowed_characters: str = ALLOWED_CONTROL_CHARACTERS) -> str:
    """Replace control characters, except the allowed ones. The text may contain keys and API responses."""
    if text.isprintable():
        return text
    return "".join(
        character if character.isprintable() or character in allowed_characters else "·" for character in text
    )


def indent_lines(text: str, width: int = 4) -> str:
    """Indent all lines except the first, so that no line of a row's value looks like a line of the command."""
    return text.replace("\n", "\n" + " " * width)


def print_json(line: Mapping[str, Json]) -> None:
    """Print an object as a line of JSON, for programs."""
    click.echo(orjson.dumps(dict(line)).decode())


def print_shrunk_table(head: Sequence[str], rows: Iterable[Sequence[str]], shrinks: Sequence[ColumnShrink]) -> None:
    """Print aligned columns that fit the terminal's width, if the columns in `shrinks` can shrink enough."""
    print_table(head, shrink_columns(head, rows, width=terminal_width(), shrinks=shrinks))


def print_table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Print aligned columns. Columns of numbers are right-aligned."""
    texts = [["" if cell is None else replace_control_characters(str(cell), "") for cell in row] for row in rows]
    widths = [max(map(display_width, column)) for column in zip(head, *texts, strict=True)]
    numbers = [all(map(NUMBER_PATTERN.fullmatch, column)) for column in zip(*texts, strict=True)] or [False] * len(head)
    for line in (list(head), *texts):
        cells = (
            pad_left(cell, width) if is_number else pad_right(cell, width)
            for cell, width, is_number in zip(line, widths, numbers, strict=True)
        )
        click.echo(COLUMN_GAP.join(cells).rstrip())


def terminal_width() -> int | None:
    """Return the width of the terminal; None if stdout isn't a terminal."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def shrink_columns(
    head: Sequence[str], rows: Iterable[Sequence[str]], *, width: int | None, shrinks: Sequence[ColumnShrink]
) -> list[Sequence[str]]:
    """Shorten cells so that a line of the table fits the width, if the columns in `shrinks` can shrink enough.

    The columns shrink one after the other, and only as far as needed. A column that is listed twice shrinks further.
    """
    lines = list(rows)
    if width is None:
        return lines
    widths = [max(map(display_width, column)) for column in zip(head, *lines, strict=True)]
    excess = sum(widths) + len(COLUMN_GAP) * (len(head) - 1) - width
    for name, min_width in shrinks:
        column_index = head.index(name)
        cut_width = max(0, min(excess, widths[column_index] - max(min_width, display_width(name))))
        widths[column_index] -= cut_width
        excess -= cut_width
    return [[shorten_text(cell, width) for cell, width in zip(line, widths, strict=True)] for line in lines]


def format_cell(value: Json) -> str:
    """Return a value as one line of text without control characters, for a cell of a table."""
    if value is None:
        return NULL_TEXT
    is_nested = isinstance(value, list | dict | bool)
    text = orjson.dumps(value).decode() if is_nested else str(value)
    return replace_control_characters(text, "")


# the classes of Unicode's East Asian Width that take two columns: CJK, emoji, full-width forms
WIDE_CLASSES = ("W", "F")
# the categories of marks on the character before, and of format characters such as joiners
ZERO_WIDTH_CATEGORIES = ("Mn", "Me", "Cf")
# Korean vowels and final consonants, which are drawn as part of the character before
FIRST_JOINING_LETTER, LAST_JOINING_LETTER = "\u1160", "\u11ff"
ELLIPSIS = "…"


def display_width(text: str) -> int:
    """Return the number of terminal columns that the text occupies."""
    return len(text) if text.isascii() else sum(map(_letter_width, text))


def pad_right(text: str, width: int) -> str:
    """Append spaces to the text, up to the width."""
    return text + " " * (width - display_width(text))


def pad_left(text: str, width: int) -> str:
    """Put spaces before the text, up to the width."""
    return " " * (width - display_width(text)) + text


def shorten_text(text: str, width: int) -> str:
    """Return the text if it fits the width, otherwise its beginning with an ellipsis."""
    return text if display_width(text) <= width else cut_text(text, width - len(ELLIPSIS)) + ELLIPSIS


def cut_text(text: str, width: int) -> str:
    """Return the beginning of the text that fits the width. A character isn't separated from its marks."""
    if text.isascii():
        return text[:width]
    remaining_width = width
    for position, character in enumerate(text):
        remaining_width -= _letter_width(character)
        if remaining_width < 0:
            return text[:position]
    return text


@functools.lru_cache(maxsize=4096)
def _letter_width(letter: str) -> int:
    if unicodedata.category(letter) in ZERO_WIDTH_CATEGORIES or FIRST_JOINING_LETTER <= letter <= LAST_JOINING_LETTER:
        return 0
    return 2 if unicodedata.east_asian_width(letter) in WIDE_CLASSES else 1
