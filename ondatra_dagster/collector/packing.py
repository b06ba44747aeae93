"""How bodies lie in the event file: large ones packed by LZ4, which costs less than writing what it saves."""

import functools
from typing import Any

from ondatra_dagster.errors import StateError

PACKED_BYTES = 1000  # from here on it is worth it; events that come one by one are smaller
MARK = b"\0lz4"  # then the size, and the frame: no JSON begins so
SIZE_BYTES = 4


def packed(body: bytes) -> bytes:
    """The body as it is kept: shorter than it was, or as it was."""
    if len(body) < PACKED_BYTES:
        return body
    frame = _lz4().compress(body, asbytes=True)
    smaller: bytes = b"".join((MARK, len(body).to_bytes(SIZE_BYTES), frame))
    return smaller if len(smaller) < len(body) else body


def unpacked(kept: bytes) -> bytes:
    """The body as it was; raises StateError where it can't be read any more."""
    if not kept.startswith(MARK):
        return kept
    frame = len(MARK) + SIZE_BYTES
    size = int.from_bytes(kept[len(MARK) : frame])
    try:
        body: bytes = _lz4().decompress(kept[frame:], decompressed_size=size, asbytes=True)
    except OSError as error:
        what = "a request in the file of events can't be read any more"
        raise StateError(f"{what} ({error}); look at the disk") from error
    return body


@functools.cache
def _lz4() -> Any:
    import pyarrow  # here: who looks at small things must be quick

    return pyarrow.Codec("lz4")
