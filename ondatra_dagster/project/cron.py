"""When a model runs by itself, as `@schedule` says it: at times that come again, or on change.

When a time comes is Dagster's to tell.
"""

import re
from collections.abc import Iterator

from ondatra_dagster.project.header_values import BadHeaderError
from ondatra_dagster.project.suggestions import nearest

ON_CHANGE = "on change"  # of what the model reads, which a sensor looks for
NICKNAMES = frozenset({"@hourly", "@daily", "@midnight", "@weekly", "@monthly", "@yearly", "@annually"})
MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
WEEKDAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
FIELDS = (
    ("minute", range(60), ()),
    ("hour", range(24), ()),
    ("day", range(1, 32), ()),
    ("month", range(1, 13), MONTHS),
    ("weekday", range(8), WEEKDAYS),
)
PART = re.compile(r"(?:\*|(?P<first>\w+)(?:-(?P<last>\w+))?)(?:/(?P<step>\d+))?")
DAYS_OF_MONTHS = (31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
REMEDY = "write minute hour day month weekday, such as 0 6 * * mon-fri, or @daily; times are UTC"
LIKENESS = 0.7  # to "on change", of what is meant for it; no time comes near


def read_schedule(value: str) -> str:
    """A time that comes again, or ON_CHANGE; raises BadHeaderError."""
    text = " ".join(value.casefold().split())
    if text == ON_CHANGE:
        return text
    if nearest(text, [ON_CHANGE], likeness=LIKENESS):
        raise BadHeaderError(f"{value!r} is no time", f"did you mean {ON_CHANGE!r}?")
    return read_cron(text, remedy=f"{REMEDY}; or write {ON_CHANGE}")


def read_cron(value: str, *, remedy: str = REMEDY) -> str:
    """The five fields of a time that comes again; raises BadHeaderError."""
    text = " ".join(value.casefold().split())
    if text in NICKNAMES:
        return text
    fields = text.split(" ")
    if len(fields) != len(FIELDS):
        raise BadHeaderError(f"{value!r} is no time", remedy)
    for field, (name, numbers, names) in zip(fields, FIELDS, strict=True):
        if not all(_is_part(part, numbers, names) for part in field.split(",")):
            raise BadHeaderError(f"a schedule has no {name} {field!r}", remedy)
    if not _has_a_day(fields[2], fields[3]):  # to Dagster not even on a weekday
        raise BadHeaderError(f"{value!r} never comes", "no such month has such a day")
    return text


def _is_part(part: str, numbers: range, names: tuple[str, ...]) -> bool:
    """Whether it is *, 5, 1-5, mon, */15 or 1-9/2."""
    found = PART.fullmatch(part)
    if found is None or found["step"] == "0" or (found["step"] and found["first"] and not found["last"]):
        return False
    ends = [_number(end, numbers, names) for end in (found["first"], found["last"]) if end]
    return None not in ends and ends == sorted(ends, key=lambda end: end or 0)


def _number(text: str, numbers: range, names: tuple[str, ...]) -> int | None:
    if text in names:
        return names.index(text) + numbers.start
    return int(text) if text.isdecimal() and int(text) in numbers else None


def _has_a_day(days: str, months: str) -> bool:
    """Whether a month of these has a day of these."""
    last = max(DAYS_OF_MONTHS[month - 1] for month in _meant(months, *FIELDS[3][1:]))
    return min(_meant(days, *FIELDS[2][1:])) <= last


def _meant(field: str, numbers: range, names: tuple[str, ...]) -> Iterator[int]:
    """The numbers that a field's parts mean; each part is one."""
    for part in field.split(","):
        found = PART.fullmatch(part)
        first = _number(found["first"], numbers, names) if found and found["first"] else None
        last = _number(found["last"], numbers, names) if found and found["last"] else first
        step = int(found["step"]) if found and found["step"] else 1
        yield from numbers[::step] if first is None else range(first, (last or first) + 1, step)
