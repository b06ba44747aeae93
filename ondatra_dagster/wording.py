"""How numbers, and ondatra itself, stand in sentences. Else what a sentence says belongs where it is said."""

import functools


def count(number: int, word: str) -> str:
    """1 row, 2 rows."""
    return f"{number} {word}" if number == 1 else f"{number} {word}s"


def set_aside(rows: int) -> str:
    """What a model's check and its sink's say of rows that can't be told apart."""
    return f"{count(rows, 'row')} set aside, without a key of {'its' if rows == 1 else 'their'} own"


def size_of(number: int) -> str:
    """0 bytes, 1.2 kB, 34 MB: as people say it."""
    size, unit = float(number), ""
    for unit in ("", "k", "M", "G", "T"):
        if size < 1000 or unit == "T":
            break
        size /= 1000
    if not unit:
        return count(number, "byte")
    return f"{size:.0f} {unit}B" if size >= 10 else f"{size:.1f} {unit}B"


@functools.cache
def ondatra_version() -> str:
    """Which ondatra this is."""
    import importlib.metadata  # here: it loads much, and is hardly ever asked

    return importlib.metadata.version("ondatra")
