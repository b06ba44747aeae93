"""How numbers, times and ondatra itself stand in sentences. Else what one says belongs where it is said."""

import functools
from datetime import datetime


def format_count(number: int, word: str) -> str:
    """1 row, 2 rows."""
    return f"{number} {word}" if number == 1 else f"{number} {word}s"


def format_local_time(value: datetime | None) -> str:
    """A time as people of one place read it."""
    return value.astimezone().strftime("%Y-%m-%d %H:%M:%S") if value else ""


def format_duration(seconds: float) -> str:
    """About how long: 3 s, 5 min, 2.5 h, 3 days."""
    for limit, size, unit in ((120, 1, "s"), (7200, 60, "min"), (172_800, 3600, "h")):
        if seconds < limit:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds / 86_400:.0f} days"


def format_elapsed(seconds: float) -> str:
    """How long something took, as exactly as one wants to know: 0.3 s, 42 s, 5 min."""
    return f"{seconds:.1f} s" if seconds < 10 else format_duration(seconds)


def describe_invalid_rows(rows: int) -> str:
    """Return what a model's check and its sink's say of rows that can't be told apart."""
    return f"{format_count(rows, 'row')} {'is' if rows == 1 else 'are'} invalid: a null or repeated key"


def describe_invalid_events(events: int) -> str:
    """Return the same of events that came before their model was changed."""
    return f"{format_count(events, 'event')} {'is' if events == 1 else 'are'} invalid since the columns were changed"


def format_size(number: int) -> str:
    """0 bytes, 1.2 kB, 34 MB: as people say it."""
    size, unit = float(number), ""
    for unit in ("", "k", "M", "G", "T"):
        if size < 1000 or unit == "T":
            break
        size /= 1000
    if not unit:
        return format_count(number, "byte")
    return f"{size:.0f} {unit}B" if size >= 10 else f"{size:.1f} {unit}B"


def docs_command(name: str) -> str:
    """Return how a message names a page of the docs: by the command that shows it wherever ondatra is."""
    return f"`ondatra docs {name}`"


@functools.cache
def ondatra_version() -> str:
    """Which ondatra this is."""
    import importlib.metadata  # here: it loads much, and is hardly ever asked

    return importlib.metadata.version("ondatra")
