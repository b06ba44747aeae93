"""The texts of counts, times, sizes and ondatra's version. Any other text is in the module that shows it."""

import functools
from datetime import datetime


def format_count(number: int, word: str) -> str:
    """Return a count with its noun: 1 row, 2 rows."""
    return f"{number} {word}" if number == 1 else f"{number} {word}s"


def format_local_time(value: datetime | None) -> str:
    """Return a time in the local time zone, or "" for None."""
    return value.astimezone().strftime("%Y-%m-%d %H:%M:%S") if value else ""


def format_duration(seconds: float) -> str:
    """Return a rounded duration, such as 3 s, 5 min, 2.5 h or 3 days."""
    for limit, size, unit in ((120, 1, "s"), (7200, 60, "min"), (172_800, 3600, "h")):
        if seconds < limit:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds / 86_400:.0f} days"


def format_elapsed(seconds: float) -> str:
    """Return the time that something took, such as 0.3 s, 42 s or 5 min."""
    return f"{seconds:.1f} s" if seconds < 10 else format_duration(seconds)


def describe_invalid_rows(rows: int) -> str:
    """Return the text about invalid rows. The checks of a model and of its sink use the same text."""
    return f"{format_count(rows, 'row')} {'is' if rows == 1 else 'are'} invalid: a null or repeated key"


def describe_invalid_events(events: int) -> str:
    """Return the text about events that are invalid because their model's columns were changed later."""
    return f"{format_count(events, 'event')} {'is' if events == 1 else 'are'} invalid since the columns were changed"


def format_size(number: int) -> str:
    """Return a size with its unit, such as 0 bytes, 1.2 kB or 34 MB."""
    size, unit = float(number), ""
    for unit in ("", "k", "M", "G", "T"):
        if size < 1000 or unit == "T":
            break
        size /= 1000
    if not unit:
        return format_count(number, "byte")
    return f"{size:.0f} {unit}B" if size >= 10 else f"{size:.1f} {unit}B"


def docs_command(name: str) -> str:
    """Return the command that shows a page of the docs.

    Messages use it instead of a link, because it works everywhere.
    """
    return f"`ondatra docs {name}`"


@functools.cache
def ondatra_version() -> str:
    """Return the installed version of ondatra."""
    import importlib.metadata  # imported only here, because the import is slow and rarely needed

    return importlib.metadata.version("ondatra")
