"""How the value of each header word is written, a reader a shape. What goes with what: header.py."""

import re
from collections.abc import Callable
from decimal import Decimal
from typing import TypeAlias

from ondatra_dagster.project.kinds import KINDS, Kind
from ondatra_dagster.project.model import Limit
from ondatra_dagster.project.suggestions import correction

SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
MIRRORS = "for inserts, updates and deletes by key: tracked with @group_key"
NAME = r"`(?:[^`]|``)+`|[^`,]+"
QUOTED = r"'(?:[^']|'')*'|\"(?:[^\"]|\"\")*\""
SINK = re.compile(rf"(?P<name>\w+)\s*(?:\(\s*(?P<arguments>(?:{QUOTED})(?:\s*,\s*(?:{QUOTED}))*)?\s*\))?")
EMAIL = re.compile(r"[A-Za-z0-9._%+-]+@[A-Za-z0-9.-]+\.[A-Za-z]{2,}")
TEAM = re.compile(r"team:\S(.*\S)?")
TAG = re.compile(
    r"([A-Za-z0-9_.-]{1,63}/)?[A-Za-z0-9_.-]{1,63}(\s*=\s*[A-Za-z0-9_.-]{0,63})?"
)  # Dagster's own


class BadHeaderError(ValueError):
    """A header's value that can't be used: what it is, and what to write instead."""

    def __init__(self, what: str, remedy: str) -> None:
        self.what = what
        self.remedy = remedy
        super().__init__(f"{what}; {remedy}")


def read_text(value: str) -> str:
    return value


def read_kind(value: str) -> Kind:
    kind = KINDS.get(value.casefold())
    if kind is None:
        remedy = f"{correction(value, KINDS, plural='kinds')}; {MIRRORS}"
        raise BadHeaderError(f"@kind {value!r} is not a kind", remedy)
    return kind


def read_names(value: str) -> tuple[str, ...]:
    """Column names: a, b or, where a name holds a comma or a backquote, `a, b`."""
    if not re.fullmatch(rf"\s*(?:{NAME})\s*(?:,\s*(?:{NAME})\s*)*", value):
        raise BadHeaderError(f"{value!r} is not a list of columns", "write names between commas: a, b")
    names = tuple(_unquoted(name) for name in re.findall(NAME, value) if name.strip())
    if len({name.casefold() for name in names}) < len(names):
        raise BadHeaderError(f"{value!r} names a column twice", "name each column once")
    return names


def read_name(value: str) -> str:
    """One column's name."""
    names = read_names(value)
    if len(names) > 1:
        raise BadHeaderError(f"{value!r} names {len(names)} columns", "name one")
    return names[0]


def read_sink(value: str) -> tuple[str, tuple[str, ...]]:
    """The name of a lib/*.star file and the texts between its parentheses."""
    found = SINK.fullmatch(value)
    if found is None:
        raise BadHeaderError(
            f"@sink {value!r} can't be read", "write @sink: name or @sink: name('text', 'text')"
        )
    arguments = re.findall(QUOTED, found["arguments"] or "")
    return found["name"], tuple(text[1:-1].replace(text[0] * 2, text[0]) for text in arguments)


def read_sync_id(value: str) -> str:
    if not re.fullmatch(r"(?!\.+$)[A-Za-z0-9._-]{1,100}", value):
        raise BadHeaderError(f"@sync_id {value!r} can't be a sync's id", "use up to 100 of A-Z a-z 0-9 . _ -")
    return value


def read_owner(value: str) -> str:
    if not EMAIL.fullmatch(value) and not TEAM.fullmatch(value):
        raise BadHeaderError(f"@owner {value!r} is neither", "write an e-mail address or team:name")
    return value


def read_tag(value: str) -> str:
    """A tag as Dagster takes it: a word, or word=value."""
    if not TAG.fullmatch(value):
        raise BadHeaderError(
            f"@tag {value!r} is not a tag", "write name or name=value, each up to 63 of A-Z a-z 0-9 . _ -"
        )
    return re.sub(r"\s*=\s*", "=", value)


def read_column(value: str) -> tuple[str, str]:
    found = re.fullmatch(r"(`(?:[^`]|``)+`|[^`=]+?)\s*=\s*(.+)", value)
    if found is None:
        raise BadHeaderError(f"@column {value!r} has no description", "write @column: name = what it holds")
    return _unquoted(found[1]), found[2]


def read_limit(value: str) -> Limit:
    """A number of rows, or a percentage: 10, 5%, 0.5%."""
    found = re.fullmatch(r"(\d+)|(\d+(?:\.\d+)?)\s*%", value)
    if found is None or Decimal(found[2] or 0) > 100:
        raise BadHeaderError(f"{value!r} is not a limit", "write a number of rows, 10, or a percentage, 5%")
    return Limit(Decimal(found[1])) if found[1] else Limit(Decimal(found[2]), is_share=True)


def read_lag(value: str) -> float:
    """A length of time in seconds: 90s, 30m, 24h, 7d."""
    if not re.fullmatch(r"[1-9]\d*[smhd]", value):
        raise BadHeaderError(f"{value!r} is not a length of time", "write 30m, 24h or 7d")
    return float(value[:-1]) * SECONDS[value[-1]]


def _unquoted(name: str) -> str:
    name = name.strip()
    return name[1:-1].replace("``", "`") if name.startswith("`") else name


Reader: TypeAlias = Callable[[str], object]
