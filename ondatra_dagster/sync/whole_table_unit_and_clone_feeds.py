"""Two variants of a change feed: one for syncs that send whole tables, and one for dry runs.

For a sync of whole tables, any change yields the table's whole content as one unit, which may have no rows. In a dry
run, the changes of the original table are followed by those of its clone.
"""

import dataclasses
from collections.abc import Iterator

from ondatra_dagster.row_changes import ChangeType, Column, FeedPage, FeedSegment, InvalidRow, Layout, RowChange
from ondatra_dagster.sync.run_context import Feed

WHOLE_TABLE_KEY = ""  # the key of the only unit


def read_whole_table(feed: Feed, *, after: int, upto: int, columns: tuple[Column, ...]) -> FeedSegment:
    """Return the table's whole content at version `upto` as the one change since version `after`."""
    return FeedSegment(after, upto, _read_whole_table_pages(feed, upto, Layout(columns)))


def _read_whole_table_pages(feed: Feed, upto: int, layout: Layout) -> Iterator[FeedPage]:
    is_empty = True
    for segment in feed.segments(None, upto):
        for page in segment.pages:
            is_empty = is_empty and not page.changes
            yield page._replace(changes=[change._replace(key=WHOLE_TABLE_KEY) for change in page.changes])
    if is_empty:
        # an empty table is content too: a unit without rows
        yield FeedPage(layout, [RowChange(WHOLE_TABLE_KEY, 0, ChangeType.DELETE, upto, "[]")])


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class CloneFeed:
    """The feed of an original table, followed by the feed of its clone; also for their tables of invalid rows."""

    original_feed: Feed
    clone_feed: Feed
    clone_start_version: int  # the version of the original that is the clone's version 0
    clone_start_invalid_version: int | None  # the same for the table of invalid rows; None: it doesn't exist

    def segments(self, after: int | None, upto: int) -> Iterator[FeedSegment]:
        """Yield the original's segments, then the clone's; the content with which the clone starts isn't a change."""
        if after is None:
            yield from (
                self._read_clone_segments(None, upto)
                if upto > self.clone_start_version
                else self.original_feed.segments(None, upto)
            )
            return
        if after < self.clone_start_version:
            yield from self.original_feed.segments(after, min(upto, self.clone_start_version))
        if upto > self.clone_start_version:
            yield from self._read_clone_segments(max(after, self.clone_start_version), upto)

    def _read_clone_segments(self, after: int | None, upto: int) -> Iterator[FeedSegment]:
        since = None if after is None else after - self.clone_start_version
        for segment in self.clone_feed.segments(since, upto - self.clone_start_version):
            start = segment.after_version if since is None else segment.after_version + self.clone_start_version
            yield FeedSegment(
                start, segment.last_version + self.clone_start_version, map(self._shift_versions, segment.pages)
            )

    def _shift_versions(self, page: FeedPage) -> FeedPage:
        changes = [change._replace(version=change.version + self.clone_start_version) for change in page.changes]
        return page._replace(changes=changes)

    def invalid_rows(self, after: int, upto: int) -> Iterator[InvalidRow]:
        """Yield the original's invalid rows, then those that became invalid in the clone."""
        at = self.clone_start_invalid_version
        if at is None:
            yield from self.clone_feed.invalid_rows(after, upto)
            return
        if after < at:
            yield from self.original_feed.invalid_rows(after, min(upto, at))
        if upto > at:
            for row in self.clone_feed.invalid_rows(max(after - at, 0), upto - at):
                yield row._replace(version=row.version + at)
