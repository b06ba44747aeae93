"""The compression of bodies in the event file: each is read back unchanged."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ondatra_dagster.collector.event_store import LZ4_PREFIX, MIN_COMPRESSED_BYTES, compress_body, decompress_body
from ondatra_dagster.errors import StateError

EVENT = b'{"page": "/coffee", "seconds": 12}'


@given(st.binary(max_size=40), st.integers(0, 100))
def test_a_compressed_body_is_read_back_unchanged(part: bytes, times: int) -> None:
    """This holds for bodies that get smaller and for others."""
    body = b"[%s]" % (part * times)
    assert body == decompress_body(compress_body(body))


def test_a_batch_is_stored_compressed() -> None:
    """Most of the time for a batch is spent writing."""
    body = b"[%s]" % b",".join([EVENT] * 100)
    assert len(compress_body(body)) < len(body) / 5


@pytest.mark.parametrize("body", [EVENT, random.Random(1).randbytes(2 * MIN_COMPRESSED_BYTES)])
def test_a_body_that_does_not_get_smaller_is_stored_unchanged(body: bytes) -> None:
    """So a single event in the file can be read with any tool."""
    assert body == compress_body(body)


def test_a_frame_that_is_cut_off_is_an_error() -> None:
    """A flush that can't read a request must report it, and not treat it as empty."""
    frame = compress_body(EVENT * MIN_COMPRESSED_BYTES)
    assert frame.startswith(LZ4_PREFIX)
    with pytest.raises(StateError, match="a request in the file of events can't be read any more"):
        decompress_body(frame[:-9])
