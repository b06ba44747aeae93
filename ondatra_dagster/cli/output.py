"""How commands speak: people's text and tables on stderr or stdout, JSON one object a line on stdout."""

import re
import shutil
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import click
import orjson

from ondatra_dagster.changes import Json
from ondatra_dagster.cli.width import padded, padded_left, shorter, width_of

GAP = "  "
NULL = "NULL"  # of a row: an empty text is another value
LAYOUT = "\n\t"  # what may stand in a text besides letters
NUMBER = re.compile(r"-?\d+(\.\d+)?([eE][+-]?\d+)?|NULL|-?inf|nan|")


class Shrink(NamedTuple):
    """A column of a table that gives room to the others, down to a width; to that of its head at least."""

    column: str
    narrowest: int


def say(text: str) -> None:
    """A line for the user, beside the output that a program may read."""
    click.echo(harmless(text), err=True)


def harmless(text: str) -> str:
    """The text without what a terminal would obey: keys and an API's answers are in it. Its lines stay."""
    return "".join(letter if letter.isprintable() or letter in LAYOUT else "·" for letter in text)


def indented(text: str, width: int = 4) -> str:
    """Return the text with its further lines indented: a row's value begins no line of ours."""
    return text.replace("\n", "\n" + " " * width)


def put_json(line: Mapping[str, Json]) -> None:
    """An object for a program."""
    click.echo(orjson.dumps(dict(line)).decode())


def put_table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Columns that stand under each other; numbers to the right."""
    texts = [[_text(cell) for cell in row] for row in rows]
    widths = [max(map(width_of, column)) for column in zip(head, *texts, strict=True)]
    numbers = [all(map(NUMBER.fullmatch, column)) for column in zip(*texts, strict=True)] or [False] * len(
        head
    )
    for line in (list(head), *texts):
        cells = (
            padded_left(cell, width) if is_number else padded(cell, width)
            for cell, width, is_number in zip(line, widths, numbers, strict=True)
        )
        click.echo(GAP.join(cells).rstrip())


def terminal_width() -> int | None:
    """How wide a line may be; None where no terminal cuts it off."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def shortened(
    head: Sequence[str], rows: Iterable[Sequence[str]], *, width: int | None, shrinks: Sequence[Shrink]
) -> list[Sequence[str]]:
    """The rows so that a line of their table is no wider, as far as columns may shrink.

    These do so one after the other, as far as it has to; who comes twice gives more then.
    """
    lines = list(rows)
    if width is None:
        return lines
    widths = [max(map(width_of, column)) for column in zip(head, *lines, strict=True)]
    excess = sum(widths) + len(GAP) * (len(head) - 1) - width
    for name, narrowest in shrinks:
        place = head.index(name)
        cut = max(0, min(excess, widths[place] - max(narrowest, width_of(name))))
        widths[place] -= cut
        excess -= cut
    return [[shorter(cell, width) for cell, width in zip(line, widths, strict=True)] for line in lines]


def as_cell(value: Json) -> str:
    """A row's value on one line of a table; what a terminal would obey is made harmless."""
    if value is None:
        return NULL
    is_nested = isinstance(value, list | dict | bool)
    text = orjson.dumps(value).decode() if is_nested else str(value)
    return _on_one_line(text)


def _text(cell: object) -> str:
    return "" if cell is None else _on_one_line(str(cell))


def _on_one_line(text: str) -> str:
    return text if text.isprintable() else "".join(each if each.isprintable() else "·" for each in text)
