"""How bodies lie in the event file: large ones packed by LZ4, which costs less than writing what it saves.

A frame of LZ4 has its own check: what was changed on the disk isn't read as something else.
"""

import functools
from typing import Any

from ondatra_dagster.errors import StateError

PACKED_BYTES = 1000  # from here on it is worth it; events that come one by one are smaller


def packed(body: bytes) -> bytes:
    """The body as it is kept: shorter than it was, or as it was."""
    if len(body) < PACKED_BYTES:
        return body
    smaller: bytes = _lz4().compress(body, asbytes=True)
    return smaller if len(smaller) < len(body) else body


def unpacked(kept: bytes, size: int) -> bytes:
    """The body of that size as it was; raises StateError for what no body was packed into."""
    if len(kept) == size:
        return kept
    try:
        body: bytes = _lz4().decompress(kept, decompressed_size=size, asbytes=True)
    except OSError as error:
        raise StateError(f"a request in the file of events can't be read: {error}") from error
    return body


@functools.cache
def _lz4() -> Any:
    import pyarrow  # here: who looks at what waits must be quick

    return pyarrow.Codec("lz4")
