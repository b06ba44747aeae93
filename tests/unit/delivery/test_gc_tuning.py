"""The garbage collector's threshold: raised during delivery, and restored afterwards."""

import gc
from collections.abc import Iterator

import pytest

from ondatra_dagster.delivery.gc_tuning import GC_THRESHOLD, raise_gc_threshold


@pytest.fixture(autouse=True)
def default_gc_threshold() -> Iterator[tuple[int, int, int]]:
    before = gc.get_threshold()
    yield before
    gc.set_threshold(*before)


def collections_of(objects: int) -> int:
    """Return how often the collector runs while this many objects are created."""
    before = gc.get_stats()[0]["collections"]
    lists = [[number] for number in range(objects)]
    assert len(lists) == objects
    return gc.get_stats()[0]["collections"] - before


def test_the_garbage_collector_runs_less_often_during_delivery():
    gc.collect()
    with raise_gc_threshold():
        seldom = collections_of(20_000)
    assert (0, True) == (seldom, collections_of(20_000) > 0)


def test_the_threshold_is_restored_after_an_error(default_gc_threshold):
    with pytest.raises(ZeroDivisionError), raise_gc_threshold():
        _ = 1 / 0
    assert default_gc_threshold == gc.get_threshold()


@pytest.mark.parametrize("own", [0, GC_THRESHOLD * 2])
def test_a_higher_threshold_and_a_disabled_collector_are_kept(own):
    gc.set_threshold(own, 10, 10)
    with raise_gc_threshold():
        assert (own, 10, 10) == gc.get_threshold()
    assert (own, 10, 10) == gc.get_threshold()
