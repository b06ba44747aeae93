"""Python's collector of cycles, kept from looking at a process's whole heap every few hundred rows.

Rows are many small objects that live for a moment and make no cycles. By Python's own measure they have
it go through all else again and again, Dagster's modules included, while each thread waits.
"""

import contextlib
import gc
from collections.abc import Iterator

OBJECTS = 100_000  # more of them than before: then it looks; Python's own measure is 700


@contextlib.contextmanager
def rare_collections() -> Iterator[None]:
    """Inside, cycles wait longer; a measure of somebody's own that is larger, or none at all, stays."""
    usual = gc.get_threshold()
    if 0 < usual[0] < OBJECTS:
        gc.set_threshold(OBJECTS, *usual[1:])
    try:
        yield
    finally:
        gc.set_threshold(*usual)
