"""What a sync is about to remove from its destination, and whether somebody has to say yes to that first."""

from collections.abc import Callable, Iterator

from ondatra_dagster.delivery.queue.removals import (
    Measure,
    Removals,
    known_size,
    let_through,
    remember_size,
    removals,
)
from ondatra_dagster.delivery.queue.tables import Queue
from ondatra_dagster.delivery.target import Shape
from ondatra_dagster.store.database import Store
from ondatra_dagster.sync.ports import Feed, SourceState
from ondatra_dagster.sync.sync import Sync


def look_at_removals(
    queue: Queue, sync: Sync, source: SourceState, feed: Feed, *, is_allowed: bool
) -> Removals | None:
    """What the queue would remove that nobody has let through; None where a model sets no limit.

    With `is_allowed` it may go, now and at every later try.
    """
    if sync.limits.max_deletes is None:
        return None
    found = removals(queue.store, measure_of(sync), size=lambda: _size(queue, sync, source, feed))
    if is_allowed:
        let_through(queue)
    return found._replace(is_allowed=is_allowed)


def standing_removals(store: Store, sync: Sync, *, rows: Callable[[], int | None]) -> Removals | None:
    """The same for who only looks; `rows` tells how many the model's table has."""
    if sync.limits.max_deletes is None:
        return None
    return removals(
        store, measure_of(sync), size=lambda: known_size(store) if _counts_groups(sync) else rows()
    )


def measure_of(sync: Sync) -> Measure:
    """What counts as removed in the sync's table."""
    kind = sync.model.kind
    if kind.replaces_rows:
        return Measure("row", is_shrinking=True, is_mirror=sync.shape is Shape.MIRROR)
    return Measure("group" if kind.delivers_groups else "key" if kind.delivers_by_key else "row")


def unit_noun(sync: Sync) -> str:
    """Return what users call a unit of the sync."""
    return "group" if sync.model.kind.delivers_groups else "row"


def _counts_groups(sync: Sync) -> bool:
    return sync.model.kind.delivers_groups


def table_size(queue: Queue, sync: Sync, source: SourceState, feed: Feed) -> int | None:
    """Return how many units the table has; groups are counted, which reads the table."""
    return _size(queue, sync, source, feed) if _counts_groups(sync) else source.rows


def _size(queue: Queue, sync: Sync, source: SourceState, feed: Feed) -> int:
    """How many keys, groups or rows the table has; groups nobody has counted, so they are read."""
    if source.rows is not None and not _counts_groups(sync):
        return source.rows
    size = known_size(queue.store)
    if size is None:
        size = sum(_keys(feed, source.version))
        remember_size(queue, size)
    return size


def _keys(feed: Feed, version: int) -> Iterator[int]:
    """A 1 for each delivery key of the table at this version."""
    last = None
    for segment in feed.segments(None, version):
        for page in segment.pages:
            for change in page.changes:
                if change.key != last:
                    yield 1
                last = change.key
