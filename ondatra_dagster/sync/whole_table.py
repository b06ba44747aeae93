"""A table that goes out whole: whatever changed in it, its content is one unit, and it may be empty."""

from collections.abc import Iterator

from ondatra_dagster.changes import Change, ChangeType, Column, FeedPage, Layout, Segment
from ondatra_dagster.sync.ports import Feed

KEY = ""  # of the one unit that there is


def whole_segment(feed: Feed, *, after: int, upto: int, columns: tuple[Column, ...]) -> Segment:
    """The content at `upto`, as what became of the table since `after`."""
    return Segment(after, upto, _pages(feed, upto, Layout(columns)))


def _pages(feed: Feed, upto: int, layout: Layout) -> Iterator[FeedPage]:
    is_empty = True
    for segment in feed.segments(None, upto):
        for page in segment.pages:
            is_empty = is_empty and not page.changes
            yield page._replace(changes=[change._replace(key=KEY) for change in page.changes])
    if is_empty:
        # nothing is content, too: a unit of no rows
        yield FeedPage(layout, [Change(KEY, 0, ChangeType.DELETE, upto, "[]")])
