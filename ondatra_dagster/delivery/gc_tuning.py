"""The garbage collector's threshold, which is raised during delivery.

Rows are many small objects that live for a moment and make no cycles. With Python's own threshold, every few
hundred of them start a collection. A collection also scans Dagster's modules, and each thread waits for it.
"""

import contextlib
import gc
from collections.abc import Iterator

GC_THRESHOLD = 100_000  # new objects before a collection; Python's own threshold is 700


@contextlib.contextmanager
def raise_gc_threshold() -> Iterator[None]:
    """Raise the garbage collector's threshold for the `with` block.

    A threshold that the user has set higher stays. A collector that the user switched off stays off.
    """
    thresholds = gc.get_threshold()
    if 0 < thresholds[0] < GC_THRESHOLD:
        gc.set_threshold(GC_THRESHOLD, *thresholds[1:])
    try:
        yield
    finally:
        gc.set_threshold(*thresholds)
