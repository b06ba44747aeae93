"""The parsers of the values in header lines. model_header.py decides which header words go together."""

import re
from collections.abc import Callable, Iterator
from decimal import Decimal
from typing import TypeAlias

from ondatra_dagster.project.model import RowLimit
from ondatra_dagster.project.model_kinds import KINDS, Kind
from ondatra_dagster.project.spelling_suggestions import find_nearest, suggest_correction

UNIT_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
MIRROR_KIND_HINT = "for inserts, updates and deletes by key: tracked with @group_key"
NAME_PATTERN = r"`(?:[^`]|``)+`|[^`,]+"
QUOTED_PATTERN = r"'(?:[^']|'')*'|\"(?:[^\"]|\"\")*\""
SINK_PATTERN = re.compile(
    rf"(?P<name>\w+)\s*(?:\(\s*(?P<arguments>(?:{QUOTED_PATTERN})(?:\s*,\s*(?:{QUOTED_PATTERN}))*)?\s*\))?"
)
EMAIL_PATTERN = re.compile(r"[A-Za-z0-9._%+-]+@[A-Za-z0-9.-]+\.[A-Za-z]{2,}")
TEAM_PATTERN = re.compile(r"team:\S(.*\S)?")
# the pattern that Dagster accepts
TAG_PATTERN = re.compile(r"([A-Za-z0-9_.-]{1,63}/)?[A-Za-z0-9_.-]{1,63}(\s*=\s*[A-Za-z0-9_.-]{0,63})?")


class HeaderValueError(ValueError):
    """The error for a header value that can't be used. Its text says what is wrong, and what to write instead."""

    def __init__(self, description: str, remedy: str) -> None:
        self.description = description
        self.remedy = remedy
        super().__init__(f"{description}; {remedy}")


def read_kind(value: str) -> Kind:
    kind = KINDS.get(value.casefold())
    if kind is None:
        remedy = f"{suggest_correction(value, KINDS, plural='kinds')}; {MIRROR_KIND_HINT}"
        raise HeaderValueError(f"@kind {value!r} is not a kind", remedy)
    return kind


def read_column_names(value: str) -> tuple[str, ...]:
    """Return the column names in a text such as `a, b`. A name with a comma or a backquote is written in backquotes."""
    if not re.fullmatch(rf"\s*(?:{NAME_PATTERN})\s*(?:,\s*(?:{NAME_PATTERN})\s*)*", value):
        raise HeaderValueError(f"{value!r} is not a list of columns", "write names between commas: a, b")
    names = tuple(_unquote(name) for name in re.findall(NAME_PATTERN, value) if name.strip())
    if len({name.casefold() for name in names}) < len(names):
        raise HeaderValueError(f"{value!r} names a column twice", "name each column once")
    return names


def read_column_name(value: str) -> str:
    """Return the only column name in a header value."""
    names = read_column_names(value)
    if len(names) > 1:
        raise HeaderValueError(f"{value!r} names {len(names)} columns", "name one")
    return names[0]


def read_sink(value: str) -> tuple[str, tuple[str, ...]]:
    """Return the name of a lib/*.star file and the texts between the parentheses after the name."""
    match = SINK_PATTERN.fullmatch(value)
    if match is None:
        raise HeaderValueError(f"@sink {value!r} can't be read", "write @sink: name or @sink: name('text', 'text')")
    arguments = re.findall(QUOTED_PATTERN, match["arguments"] or "")
    return match["name"], tuple(text[1:-1].replace(text[0] * 2, text[0]) for text in arguments)


def read_sync_id(value: str) -> str:
    if not re.fullmatch(r"(?!\.+$)[A-Za-z0-9._-]{1,100}", value):
        raise HeaderValueError(f"@sync_id {value!r} can't be a sync's id", "use up to 100 of A-Z a-z 0-9 . _ -")
    return value


def read_owner(value: str) -> str:
    if not EMAIL_PATTERN.fullmatch(value) and not TEAM_PATTERN.fullmatch(value):
        raise HeaderValueError(f"@owner {value!r} is neither", "write an e-mail address or team:name")
    return value


def read_tag(value: str) -> str:
    """Return a tag as Dagster accepts it: name or name=value."""
    if not TAG_PATTERN.fullmatch(value):
        raise HeaderValueError(
            f"@tag {value!r} is not a tag", "write name or name=value, each up to 63 of A-Z a-z 0-9 . _ -"
        )
    return re.sub(r"\s*=\s*", "=", value)


def read_column(value: str) -> tuple[str, str]:
    match = re.fullmatch(r"(`(?:[^`]|``)+`|[^`=]+?)\s*=\s*(.+)", value)
    if match is None:
        raise HeaderValueError(f"@column {value!r} has no description", "write @column: name = what it holds")
    return _unquote(match[1]), match[2]


def read_limit(value: str) -> RowLimit:
    """Return the limit that a text such as 10, 5% or 0.5% means: a number of rows, or a percentage."""
    match = re.fullmatch(r"(\d+)|(\d+(?:\.\d+)?)\s*%", value)
    if match is None or Decimal(match[2] or 0) > 100:
        raise HeaderValueError(f"{value!r} is not a limit", "write a number of rows, 10, or a percentage, 5%")
    return RowLimit(Decimal(match[1])) if match[1] else RowLimit(Decimal(match[2]), is_percentage=True)


def read_lag(value: str) -> float:
    """Return the seconds that a duration such as 90s, 30m, 24h or 7d means."""
    if not re.fullmatch(r"[1-9]\d*[smhd]", value):
        raise HeaderValueError(f"{value!r} is not a length of time", "write 30m, 24h or 7d")
    return float(value[:-1]) * UNIT_SECONDS[value[-1]]


def _unquote(name: str) -> str:
    name = name.strip()
    return name[1:-1].replace("``", "`") if name.startswith("`") else name


HeaderValueReader: TypeAlias = Callable[[str], object]
ON_CHANGE = "on change"  # a sensor watches the model's inputs for changes
CRON_NICKNAMES = frozenset({"@hourly", "@daily", "@midnight", "@weekly", "@monthly", "@yearly", "@annually"})
MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
WEEKDAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
CRON_FIELDS = (
    ("minute", range(60), ()),
    ("hour", range(24), ()),
    ("day", range(1, 32), ()),
    ("month", range(1, 13), MONTHS),
    ("weekday", range(8), WEEKDAYS),
)
CRON_PART = re.compile(r"(?:\*|(?P<first>\w+)(?:-(?P<last>\w+))?)(?:/(?P<step>\d+))?")
DAYS_OF_MONTHS = (31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
SCHEDULE_REMEDY = "write minute hour day month weekday, such as 0 6 * * mon-fri, or @daily; times are UTC"
ON_CHANGE_LIKENESS = 0.7  # a text at least this similar to "on change" is a misspelling; no cron text is as similar


def read_schedule(value: str) -> str:
    """Return the cron text, or ON_CHANGE for "on change"; raise HeaderValueError for anything else."""
    text = " ".join(value.casefold().split())
    if text == ON_CHANGE:
        return text
    if find_nearest(text, [ON_CHANGE], likeness=ON_CHANGE_LIKENESS):
        raise HeaderValueError(f"{value!r} is not a time", f"did you mean {ON_CHANGE!r}?")
    return read_cron(text, remedy=f"{SCHEDULE_REMEDY}; or write {ON_CHANGE}")


def read_cron(value: str, *, remedy: str = SCHEDULE_REMEDY) -> str:
    """Return a cron text of five fields, or a nickname such as @daily; raise HeaderValueError for an invalid one."""
    text = " ".join(value.casefold().split())
    if text in CRON_NICKNAMES:
        return text
    fields = text.split(" ")
    if len(fields) != len(CRON_FIELDS):
        raise HeaderValueError(f"{value!r} is not a time", remedy)
    for field, (name, numbers, names) in zip(fields, CRON_FIELDS, strict=True):
        if not all(_is_cron_part(part, numbers, names) for part in field.split(",")):
            raise HeaderValueError(f"a schedule has no {name} {field!r}", remedy)
    # Dagster never runs a schedule with an impossible day, not even if the text also has a weekday
    if not _has_possible_day(fields[2], fields[3]):
        raise HeaderValueError(f"{value!r} never comes", "no such month has such a day")
    return text


def _is_cron_part(part: str, numbers: range, names: tuple[str, ...]) -> bool:
    """Return whether a part of a cron field is valid, such as *, 5, 1-5, mon, */15 or 1-9/2."""
    match = CRON_PART.fullmatch(part)
    if match is None or match["step"] == "0" or (match["step"] and match["first"] and not match["last"]):
        return False
    ends = [_parse_cron_number(end, numbers, names) for end in (match["first"], match["last"]) if end]
    return None not in ends and ends == sorted(ends, key=lambda end: end or 0)


def _parse_cron_number(text: str, numbers: range, names: tuple[str, ...]) -> int | None:
    if text in names:
        return names.index(text) + numbers.start
    return int(text) if text.isdecimal() and int(text) in numbers else None


def _has_possible_day(days: str, months: str) -> bool:
    """Return whether at least one of the months has one of the days: the 31st never comes in February."""
    last = max(DAYS_OF_MONTHS[month - 1] for month in _expand_cron_field(months, *CRON_FIELDS[3][1:]))
    return min(_expand_cron_field(days, *CRON_FIELDS[2][1:])) <= last


def _expand_cron_field(field: str, numbers: range, names: tuple[str, ...]) -> Iterator[int]:
    """Yield the numbers that a cron field means, such as 1, 2, 3 for 1-3. The field must be valid."""
    for part in field.split(","):
        match = CRON_PART.fullmatch(part)
        first = _parse_cron_number(match["first"], numbers, names) if match and match["first"] else None
        last = _parse_cron_number(match["last"], numbers, names) if match and match["last"] else first
        step = int(match["step"]) if match and match["step"] else 1
        yield from numbers[::step] if first is None else range(first, (last or first) + 1, step)
