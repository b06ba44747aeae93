"""The feed of a table that goes on in a clone of it: first that of the one, then that of the other.

A clone counts its versions from 0; here they go on from those of its original.
"""

import dataclasses
from collections.abc import Iterator

from ondatra_dagster.changes import FeedPage, InvalidRow, Segment
from ondatra_dagster.sync.ports import Feed


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class SplicedFeed:
    """Of both tables, and of the two beside them that have the rows which were set aside."""

    before: Feed
    after: Feed
    at: int  # the version of the original that is the clone's version 0
    invalid_at: int | None  # the same for rows that were set aside; None where they had no table

    def segments(self, after: int | None, upto: int) -> Iterator[Segment]:
        """As a feed tells them; what the clone begins with is no change."""
        if after is None:
            yield from self._later(None, upto) if upto > self.at else self.before.segments(None, upto)
            return
        if after < self.at:
            yield from self.before.segments(after, min(upto, self.at))
        if upto > self.at:
            yield from self._later(max(after, self.at), upto)

    def _later(self, after: int | None, upto: int) -> Iterator[Segment]:
        since = None if after is None else after - self.at
        for segment in self.after.segments(since, upto - self.at):
            start = segment.after if since is None else segment.after + self.at
            yield Segment(start, segment.upto + self.at, map(self._page, segment.pages))

    def _page(self, page: FeedPage) -> FeedPage:
        changes = [change._replace(version=change.version + self.at) for change in page.changes]
        return page._replace(changes=changes)

    def invalid(self, after: int, upto: int) -> Iterator[InvalidRow]:
        """The same for rows that were set aside."""
        at = self.invalid_at
        if at is None:
            yield from self.after.invalid(after, upto)
            return
        if after < at:
            yield from self.before.invalid(after, min(upto, at))
        if upto > at:
            for row in self.after.invalid(max(after - at, 0), upto - at):
                yield row._replace(version=row.version + at)
