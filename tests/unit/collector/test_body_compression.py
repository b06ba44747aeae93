"""Bodies come out of the event file as they went in."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ondatra_dagster.collector.event_store import LZ4_PREFIX, MIN_COMPRESSED_BYTES, compress_body, decompress_body
from ondatra_dagster.errors import StateError

EVENT = b'{"page": "/coffee", "seconds": 12}'


@given(st.binary(max_size=40), st.integers(0, 100))
def test_a_body_comes_back_as_it_was(part: bytes, times: int) -> None:
    """Whether it gets smaller or not."""
    body = b"[%s]" % (part * times)
    assert body == decompress_body(compress_body(body))


def test_a_batch_is_kept_smaller() -> None:
    """Writing is what a batch costs most."""
    body = b"[%s]" % b",".join([EVENT] * 100)
    assert len(compress_body(body)) < len(body) / 5


@pytest.mark.parametrize("body", [EVENT, random.Random(1).randbytes(2 * MIN_COMPRESSED_BYTES)])
def test_what_packing_does_not_make_smaller_stays_as_it_is(body: bytes) -> None:
    """A single event can be read in the file by anybody."""
    assert body == compress_body(body)


def test_a_frame_that_is_cut_off_is_told() -> None:
    """A flush that can't read a request must say so, and not call it an empty one."""
    kept = compress_body(EVENT * MIN_COMPRESSED_BYTES)
    assert kept.startswith(LZ4_PREFIX)
    with pytest.raises(StateError, match="a request in the file of events can't be read any more"):
        decompress_body(kept[:-9])
