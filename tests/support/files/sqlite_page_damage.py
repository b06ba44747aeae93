"""A way to damage SQLite files: some of their bytes are overwritten."""

import contextlib
import sqlite3
from pathlib import Path


def overwrite_sqlite_page(path: Path, name: str, content: bytes = b"\xa5" * 16) -> None:
    """Overwrite the beginning of the first page of a table or index."""
    at, _ = _first_page(path, name)
    with path.open("r+b") as file:
        file.seek(at)
        file.write(content)


def replace_in_sqlite_page(path: Path, name: str, old: bytes, new: bytes) -> int:
    """Replace bytes in the first page of a table or index; return how often they occurred."""
    at, size = _first_page(path, name)
    with path.open("r+b") as file:
        file.seek(at)
        page = file.read(size)
        file.seek(at)
        file.write(page.replace(old, new))
    return page.count(old)


def _first_page(path: Path, name: str) -> tuple[int, int]:
    """Return the page's offset and size, after a checkpoint that moves the write-ahead log into the file."""
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.execute("pragma wal_checkpoint(truncate)").fetchall()
        ((number,),) = connection.execute("select rootpage from sqlite_master where name = ?", (name,))
        ((size,),) = connection.execute("pragma page_size")
    return (number - 1) * size, size
